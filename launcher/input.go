package launcher

import (
	"os"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

const (
	// foregroundPoll is how often a background job checks whether it is now the terminal's foreground job.
	foregroundPoll = 200 * time.Millisecond
	// inputStopTimeout is how long close waits for a read. A read whose data another reader has taken waits
	// for more, and cannot be cancelled.
	inputStopTimeout = 300 * time.Millisecond
)

// An input copies the launcher's standard input to ranks: from a terminal, which ranks in sessions of their
// own may not read themselves, to all ranks, or to a rank on another host. Otherwise the one rank gets the
// launcher's descriptor itself, and so only what it reads is used up. A rank that does not read holds the
// others up.
type input struct {
	from        int
	stop, stops int           // the two ends of a pipe: closing stops ends the reading
	parts       chan []byte   // what has been read; an empty part is the end
	next        chan struct{} // told when the last part has been taken
	over        chan struct{} // closed by close
	done        chan struct{} // nil until start, closed when the reading has ended

	to      map[int]bool // the ranks that still take input
	waiting map[int]bool // those that have not taken the last part yet
}

func newInput(from *os.File) (*input, error) {
	in := &input{
		from: int(from.Fd()), parts: make(chan []byte), next: make(chan struct{}, 1),
		over: make(chan struct{}), to: make(map[int]bool), waiting: make(map[int]bool),
	}
	var err error
	if in.stop, in.stops, err = sys.Pipe(); err != nil {
		return nil, err
	}
	return in, nil
}

// start begins to read.
func (in *input) start() {
	in.done = make(chan struct{})
	go in.read()
}

// read reads the next part when the last one has been taken, until the end of the input or close.
func (in *input) read() {
	defer close(in.done)
	terminal := sys.IsTerminal(in.from)
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
		buf := make([]byte, 32<<10)
		n, err := syscall.Read(in.from, buf)
		if err == syscall.EINTR || err == syscall.EAGAIN {
			continue
		}
		part := buf[:max(n, 0)]
		select {
		case in.parts <- part:
		case <-in.over:
			return
		}
		if len(part) == 0 {
			return
		}
		select {
		case <-in.next:
		case <-in.over:
			return
		}
	}
}

// hand returns the commands that pass a part to the ranks.
func (in *input) hand(part []byte) (commands []agent.Command) {
	for rank := range in.to {
		in.waiting[rank] = true
		commands = append(commands, agent.Input{Rank: rank, Data: part})
	}
	return commands
}

// taken notes that a rank has taken a part. When all have, the next one is read.
func (in *input) taken(e agent.InputTaken) {
	if e.Closed {
		delete(in.to, e.Rank)
	}
	in.release(e.Rank)
}

// remove notes that a rank has ended.
func (in *input) remove(rank int) {
	delete(in.to, rank)
	in.release(rank)
}

func (in *input) release(rank int) {
	if !in.waiting[rank] {
		return
	}
	delete(in.waiting, rank)
	if len(in.waiting) == 0 && len(in.to) > 0 {
		in.next <- struct{}{} // there is room: one is sent for each part at most
	}
}

// close ends the reading.
func (in *input) close() {
	syscall.Close(in.stops)
	close(in.over)
	if in.done != nil {
		select {
		case <-in.done:
		case <-time.After(inputStopTimeout):
			return
		}
	}
	syscall.Close(in.stop)
}
