package chaostest

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// restoreSignals gives the signals that this process was started to ignore their default meaning in the
// commands it starts: a shell starts what follows `&` with SIGINT ignored, weft run inherits that, as it
// should, and would not end. This process goes on to ignore them. Go leaves these two ignored, and no others.
var restoreSignals = sync.OnceFunc(func() {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s) // what a process catches, its children do not ignore
		}
	}
})
