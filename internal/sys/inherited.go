package sys

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// UnignoreForChildren gives the signals that this process was started to ignore their default meaning in the
// processes it starts, and goes on to ignore them itself. A shell without job control starts what follows `&`
// with SIGINT ignored; children inherit that, and could not be interrupted.
var UnignoreForChildren = sync.OnceFunc(func() {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} { // Go leaves no others ignored
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s) // what a process catches, its children do not ignore
		}
	}
})
