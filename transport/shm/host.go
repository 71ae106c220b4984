package shm

// Host identifies the host of this process. Endpoints of processes with the same Host can reach each other:
// they run on one kernel, in one network namespace.
func Host() (string, error) { return host() }
