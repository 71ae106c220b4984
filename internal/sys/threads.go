package sys

import (
	"runtime"
	"sync"
)

// ReserveThreads has the Go runtime start n threads, unless it has as many already, which it keeps for
// goroutines that need one later. The runtime aborts the process where the system refuses it a thread.
func ReserveThreads(n int) {
	var held, ended sync.WaitGroup
	release := make(chan struct{})
	for range n {
		held.Add(1)
		ended.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			held.Done()
			<-release
		})
	}
	held.Wait()
	close(release)
	ended.Wait()
}
