// Package check finds mistakes of programs, for checking mode (WEFT_CHECK=1): arguments that must be the same
// at all ranks and are not, buffers that are used during an operation, and unfinished operations at the end.
// It does not communicate: package mpi carries headers and signatures to other ranks, and calls this package.
package check
