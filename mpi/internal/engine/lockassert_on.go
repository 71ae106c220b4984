//go:build race || assert

package engine

import "sync/atomic"

// assertHeld panics if nobody has the lock. A function whose name ends in Locked begins with it, in builds
// for the race detector and with the build tag assert.
func (l *Lock) assertHeld() {
	if atomic.LoadUint32(&l.held) == 0 {
		panic("weft: the engine's lock is not held")
	}
}
