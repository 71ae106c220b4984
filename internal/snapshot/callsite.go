package snapshot

import "time"

// A CallSite is a call of the program, and what its calls of a rank came to.
type CallSite struct {
	Call, Site    string // the function of package mpi, and file:line
	Count         uint64
	Bytes         uint64        // of the buffers that were given to it
	Time, Waiting time.Duration // in it, and asleep in it; of all goroutines together
}
