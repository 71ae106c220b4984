// Package pmi implements PMI-1.1, the line protocol by which a launcher tells processes their ranks and lets
// them exchange their addresses.
//
// A Client lets a weft rank start under weft's own launcher, MPICH's Hydra, Slurm's pmi2 plugin and Flux; a
// Server lets weft's launcher start weft ranks and programs that are linked with another MPI library. A
// request is one line, "cmd=NAME key=value key=value\n", and its answer is one line; a connection has one
// request at a time.
package pmi
