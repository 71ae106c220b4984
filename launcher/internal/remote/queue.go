package remote

import (
	"io"
	"sync"
)

// queue writes frames to a stream in a goroutine of its own, so that callers never wait.
type queue struct {
	mu      sync.Mutex
	pending []byte
	closed  bool
	err     error
	fits    *sync.Cond    // signaled when less is pending, or nothing more will be written
	more    chan struct{} // signaled when there is something to write
	written chan struct{} // signaled when something was written
	done    chan struct{} // closed when run has returned
}

func newQueue() *queue {
	q := &queue{more: make(chan struct{}, 1), written: make(chan struct{}, 1), done: make(chan struct{})}
	q.fits = sync.NewCond(&q.mu)
	return q
}

func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put adds frames.
func (q *queue) put(frames []byte) {
	q.mu.Lock()
	if !q.closed && q.err == nil {
		q.pending = append(q.pending, frames...)
	}
	q.mu.Unlock()
	tell(q.more)
}

// room waits until at most maxUnsent bytes wait. It reports whether what is put then is written.
func (q *queue) room() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.pending) > maxUnsent && !q.closed && q.err == nil {
		q.fits.Wait()
	}
	return !q.closed && q.err == nil
}

// size returns how many bytes wait.
func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending)
}

// close makes run return when everything is written.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.fits.Broadcast()
	tell(q.more)
}

// run writes until close, or a failure.
func (q *queue) run(w io.Writer) {
	defer close(q.done)
	for range q.more {
		for {
			q.mu.Lock()
			out, closed := q.pending, q.closed
			q.pending = nil
			q.mu.Unlock()
			q.fits.Broadcast()
			if len(out) == 0 {
				if closed {
					return
				}
				break
			}
			if _, err := w.Write(out); err != nil {
				q.mu.Lock()
				q.err = err
				q.mu.Unlock()
				q.fits.Broadcast()
				return
			}
			tell(q.written)
		}
	}
}
