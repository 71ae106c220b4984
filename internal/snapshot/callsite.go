package snapshot

import "time"

// A CallSite is a call in the program, with the totals of a rank.
type CallSite struct {
	Call, Site    string // the function of package mpi, and file:line
	Count         uint64
	Bytes         uint64        // of the buffers passed to it
	Time, Waiting time.Duration // in the call, and asleep in it; of all goroutines together
}
