package launcher

import (
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// foregroundPoll is how often a job in the background looks whether it has become the terminal's foreground job.
const foregroundPoll = 200 * time.Millisecond

// An input copies the launcher's standard input to ranks: from a terminal, which ranks may not read themselves because they are in
// groups of their own, or to several ranks. Where neither is so, the rank gets the launcher's descriptor itself, and so only
// what it reads is used up.
type input struct {
	from        int
	stop, stops int           // the two ends of a pipe: closing stops ends the copying
	done        chan struct{} // nil until start, closed when the copying has ended

	mu sync.Mutex
	to map[int]*os.File // by rank
}

func newInput(from int) (*input, error) {
	stop, stops, err := sys.Pipe()
	if err != nil {
		return nil, err
	}
	return &input{from: from, stop: stop, stops: stops, to: make(map[int]*os.File)}, nil
}

// add makes a rank one of those that get the input, and returns the descriptor that it shall read, which the caller closes.
func (in *input) add(rank int) (reader int, err error) {
	reader, writer, err := sys.Pipe()
	if err != nil {
		return -1, err
	}
	// Only this end of the pipe does not block; the rank's does, as programs expect.
	syscall.SetNonblock(writer, true)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.to[rank] = os.NewFile(uintptr(writer), "stdin")
	return reader, nil
}

// remove ends a rank's input.
func (in *input) remove(rank int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if f := in.to[rank]; f != nil {
		f.Close()
		delete(in.to, rank)
	}
}

// start begins to copy, to the ranks added so far.
func (in *input) start() {
	in.done = make(chan struct{})
	go in.copy()
}

// copy carries the input until its end, until no rank takes any, or until close. A rank that does not read holds the others up
// when its pipe is full.
func (in *input) copy() {
	defer close(in.done)
	defer func() {
		for rank := range in.targets() {
			in.remove(rank)
		}
	}()
	terminal := sys.IsTerminal(in.from)
	buf := make([]byte, 32<<10)
	for {
		ready, err := sys.WaitReadable(in.from, in.stop)
		if err != nil || !ready {
			return
		}
		// Reading the terminal from the background would stop the launcher.
		if terminal && !sys.InForeground(in.from) {
			time.Sleep(foregroundPoll)
			continue
		}
		n, err := syscall.Read(in.from, buf)
		if err == syscall.EINTR || err == syscall.EAGAIN {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		targets := in.targets()
		if len(targets) == 0 {
			return
		}
		for rank, f := range targets {
			if _, err := f.Write(buf[:n]); err != nil {
				in.remove(rank)
			}
		}
	}
}

func (in *input) targets() map[int]*os.File {
	in.mu.Lock()
	defer in.mu.Unlock()
	targets := make(map[int]*os.File, len(in.to))
	for rank, f := range in.to {
		targets[rank] = f
	}
	return targets
}

// close ends the copying, after the last rank has been removed.
func (in *input) close() {
	syscall.Close(in.stops)
	if in.done != nil {
		select {
		case <-in.done:
		case <-time.After(foregroundPoll + partialAfter):
			return // Another reader has taken what was there: the read waits for more, and cannot be called back.
		}
	}
	syscall.Close(in.stop)
}
