package mpitest

import "time"

// WaitLess has what does not end given up soon.
func WaitLess() { busyFor, returnWithin = time.Second, time.Second }
