package local

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/weft-mpi/weft/internal/inherited"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// firstInherited is the number of the PMI connection in a rank. The other files that it shares with the agent
// follow. Scripts use the numbers below 10, and shells keep their own files from 10 on.
const firstInherited = 20

// descriptors are the files that a rank starts with, in the order of their numbers there.
type descriptors struct {
	theirs    []uintptr
	close     []int  // this process's copies of the rank's files, to close
	inherited string // value of inherited.Variable for the rank
}

// env returns the variable with the numbers of these files.
func (d *descriptors) env() []string { return []string{inherited.Variable + "=" + d.inherited} }

func (d *descriptors) closeAll() {
	for _, fd := range d.close {
		syscall.Close(fd)
	}
}

// give adds a descriptor. own makes this process close its copy once the rank is started.
func (d *descriptors) give(fd int, own bool) {
	d.theirs = append(d.theirs, uintptr(fd))
	if own {
		d.close = append(d.close, fd)
	}
}

// share adds a named descriptor of the rank, and closes this process's copy once the rank is started.
func (d *descriptors) share(name string, fd int) (err error) {
	d.close = append(d.close, fd)
	return d.lend(name, fd)
}

// lend adds a named descriptor that this process keeps.
func (d *descriptors) lend(name string, fd int) (err error) {
	d.inherited, err = inherited.Append(d.inherited, name, fd, len(d.theirs))
	d.give(fd, false)
	return err
}

// passOn adds the files between standard error and firstInherited that this process has inherited itself.
func (d *descriptors) passOn() {
	for fd := len(d.theirs); fd < firstInherited; fd++ {
		if sys.Inheritable(fd) {
			d.give(fd, false)
		} else {
			d.theirs = append(d.theirs, ^uintptr(0)) // none
		}
	}
}

// explain adds to an error, if the limit of descriptors is the cause, what the job needs.
func (s *spawner) explain(err error) error {
	if errors.Is(err, syscall.EMFILE) {
		return fmt.Errorf("%w: %d ranks need about %d (ulimit -n)", err, s.ranks, 6*s.ranks+20)
	}
	return err
}

// connect makes everything that the rank and the agent share, and returns the rank's ends.
func (s *spawner) connect(p *process, r *agent.Rank) (d descriptors, err error) {
	p.pmi = -1
	defer func() {
		if err != nil {
			d.closeAll()
			p.abandon()
			err = fmt.Errorf("connecting rank %d: %w", r.ID, s.explain(err))
		}
	}()
	if err := s.connectInput(p, r, &d); err != nil {
		return d, err
	}
	for kind := range agent.Stream(agent.Streams) {
		if err := s.connectOutput(p, kind, r.Files[kind], &d); err != nil {
			return d, err
		}
	}
	d.passOn()
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		return d, err
	}
	p.pmi = ours
	if err := d.share(inherited.PMI, theirs); err != nil {
		return d, err
	}
	if err := syscall.SetNonblock(ours, true); err != nil {
		return d, err
	}
	reader, writer, err := sys.Pipe()
	if err != nil {
		return d, err
	}
	defer syscall.Close(writer)
	if err := d.share(inherited.Secret, reader); err != nil {
		return d, err
	}
	if _, err = syscall.Write(writer, s.secret); err != nil {
		return d, err
	}
	if ours, theirs, err = sys.StreamPair(); err != nil {
		return d, err
	}
	err = d.share(inherited.Snapshots, theirs)
	if err == nil {
		err = syscall.SetNonblock(ours, true)
	}
	if err != nil {
		syscall.Close(ours)
		return d, err
	}
	p.snapshots = os.NewFile(uintptr(ours), "snapshots")
	if err := s.connectRecorder(p, &d); err != nil || s.firstMessages < 0 {
		return d, err
	}
	return d, d.lend(inherited.FirstMessages, s.firstMessages)
}

func (s *spawner) connectInput(p *process, r *agent.Rank, d *descriptors) error {
	switch {
	case r.Stdin == agent.StdinInherit && s.agent.stdin != nil:
		d.give(int(s.agent.stdin.Fd()), false)
	case r.Stdin == agent.StdinFed:
		reader, writer, err := sys.Pipe()
		if err != nil {
			return err
		}
		d.give(reader, true)
		// Only this end of the pipe is non-blocking; programs expect that theirs blocks.
		syscall.SetNonblock(writer, true)
		p.feeder = &feeder{pipe: os.NewFile(uintptr(writer), "stdin"), parts: make(chan []byte, 1)}
	default:
		d.give(int(s.agent.null.Fd()), false)
	}
	return nil
}

func (s *spawner) connectOutput(p *process, kind agent.Stream, file string, d *descriptors) error {
	if file != "" {
		fd, err := syscall.Open(file, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC|syscall.O_CLOEXEC,
			0o666)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		d.give(fd, true)
		return nil
	}
	reader, writer, err := sys.Pipe()
	if err != nil {
		return err
	}
	d.give(writer, true)
	syscall.SetNonblock(reader, true)
	p.streams = append(p.streams, &stream{
		rank: p.id, kind: kind, pipe: os.NewFile(uintptr(reader), kind.String()), over: make(chan struct{}),
		flow: &s.agent.flow[kind], emit: s.agent.emit,
	})
	return nil
}
