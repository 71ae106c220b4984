package observe

import "sync"

// exitHooks upload a rank's measurements to its launcher or its user: at its end, whether that is Finalize, a
// failure or Abort, and before a signal of the launcher that may end it. The program may handle the signal
// and go on.
type exitHooks struct {
	mu    sync.Mutex
	hooks []func(last bool) // last says that the rank ends: later measurements are lost
	ended bool
}

// newExitHooks returns nil if there is nothing to do.
func newExitHooks(hooks []func(last bool)) *exitHooks {
	if len(hooks) == 0 {
		return nil
	}
	return &exitHooks{hooks: hooks}
}

// run runs the hooks at the end of the rank, once.
func (x *exitHooks) run() { x.call(true) }

// handOver runs the hooks while the rank may go on.
func (x *exitHooks) handOver() { x.call(false) }

func (x *exitHooks) call(last bool) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return
	}
	x.ended = last
	for _, hook := range x.hooks {
		hook(last)
	}
}
