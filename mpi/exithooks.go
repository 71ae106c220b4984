package mpi

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// exitHooks are what this rank has to do at its end, whatever the end is: Finalize, a failure, Abort, or
// SIGTERM, by which launchers end a job that has failed or takes too long.
type exitHooks struct {
	hooks []func()
	once  sync.Once
	end   chan os.Signal
}

// newExitHooks begins to wait for SIGTERM. It returns nil where there is nothing to do.
func newExitHooks(hooks []func()) *exitHooks {
	if len(hooks) == 0 {
		return nil
	}
	x := &exitHooks{hooks: hooks, end: make(chan os.Signal, 1)}
	signal.Notify(x.end, syscall.SIGTERM)
	go func() {
		if _, ended := <-x.end; !ended {
			return
		}
		x.run()
		signal.Stop(x.end)
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			self.Signal(syscall.SIGTERM) // now with its usual effect
		}
	}()
	return x
}

// run runs them, once.
func (x *exitHooks) run() {
	if x == nil {
		return
	}
	x.once.Do(func() {
		for _, hook := range x.hooks {
			hook()
		}
	})
}

// close ends the wait for SIGTERM.
func (x *exitHooks) close() {
	if x != nil {
		signal.Stop(x.end)
		close(x.end)
	}
}
