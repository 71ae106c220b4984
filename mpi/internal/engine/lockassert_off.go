//go:build !(race || assert) || !(amd64 || arm64)

package engine

import "sync"

// In this build the locks do not check their order.

type (
	engineLock   = Lock
	orderedMutex = sync.Mutex
)

func (*Lock) assertHeld() {}

func (*Hub) orderLocks() {}

func (*Engine) orderLocks() {}

func (*Window) orderLocks() {}

func (*attachedParts) orderLocks(*Hub) {}
