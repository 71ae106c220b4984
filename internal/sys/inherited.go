package sys

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// UnignoreForChildren restores the default action of inherited ignored signals in the processes that this
// process starts, which still ignores them itself. A shell without job control starts background commands
// with SIGINT ignored; children inherit that, and could not be interrupted.
var UnignoreForChildren = sync.OnceFunc(func() {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} { // Go leaves no others ignored
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s) // what a process catches, its children do not ignore
		}
	}
})
