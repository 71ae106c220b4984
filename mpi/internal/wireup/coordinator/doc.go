// Package coordinator starts a job that no launcher has started. Rank 0 listens at an address that all ranks
// are given; every rank calls there, proves the job's secret, and keeps its connection for as long as the job
// lasts. Over it go the key-value space, barriers, and the end of the job. The protocol is in
// docs/internals/spec/coordinator.md.
package coordinator
