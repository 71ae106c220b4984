package mpi

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// lastWords are what this rank has to say at its end, whatever the end is: Finalize, a failure, Abort, or
// SIGTERM, by which launchers end a job that has failed or takes too long.
type lastWords struct {
	words []func()
	once  sync.Once
	end   chan os.Signal
}

// newLastWords begins to wait for SIGTERM. It returns nil where there is nothing to say.
func newLastWords(words []func()) *lastWords {
	if len(words) == 0 {
		return nil
	}
	l := &lastWords{words: words, end: make(chan os.Signal, 1)}
	signal.Notify(l.end, syscall.SIGTERM)
	go func() {
		if _, ended := <-l.end; !ended {
			return
		}
		l.say()
		signal.Stop(l.end)
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			self.Signal(syscall.SIGTERM) // now with its usual effect
		}
	}()
	return l
}

// say says everything, once.
func (l *lastWords) say() {
	if l == nil {
		return
	}
	l.once.Do(func() {
		for _, word := range l.words {
			word()
		}
	})
}

// close ends the wait for SIGTERM.
func (l *lastWords) close() {
	if l != nil {
		signal.Stop(l.end)
		close(l.end)
	}
}
