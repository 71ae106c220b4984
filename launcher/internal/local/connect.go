package local

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// descriptors are the files that a rank starts with, in the order of their numbers there.
type descriptors struct {
	theirs []uintptr
	close  []int // this process's copies of what is only the rank's
}

func (d *descriptors) closeAll() {
	for _, fd := range d.close {
		syscall.Close(fd)
	}
}

// give adds a descriptor; own says that this process has no use for it once the rank is started.
func (d *descriptors) give(fd int, own bool) {
	d.theirs = append(d.theirs, uintptr(fd))
	if own {
		d.close = append(d.close, fd)
	}
}

// connect makes everything that the rank and the agent share, and returns the rank's ends.
func (s *starter) connect(p *process, r *agent.Rank) (d descriptors, err error) {
	p.pmi = -1
	defer func() {
		if err != nil {
			d.closeAll()
			p.abandon()
			if errors.Is(err, syscall.EMFILE) {
				err = fmt.Errorf("%w: %d ranks need about %d (ulimit -n)", err, s.ranks, 6*s.ranks+20)
			}
			err = fmt.Errorf("connecting rank %d: %w", r.ID, err)
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
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		return d, err
	}
	p.pmi = ours
	d.give(theirs, true)
	if err := syscall.SetNonblock(ours, true); err != nil {
		return d, err
	}
	reader, writer, err := sys.Pipe()
	if err != nil {
		return d, err
	}
	defer syscall.Close(writer)
	d.give(reader, true)
	if _, err = syscall.Write(writer, s.secret); err != nil {
		return d, err
	}
	if ours, theirs, err = sys.StreamPair(); err != nil {
		return d, err
	}
	d.give(theirs, true)
	if err := syscall.SetNonblock(ours, true); err != nil {
		syscall.Close(ours)
		return d, err
	}
	p.snapshots = os.NewFile(uintptr(ours), "snapshots")
	s.connectRecorder(p, &d)
	return d, nil
}

func (s *starter) connectInput(p *process, r *agent.Rank, d *descriptors) error {
	switch {
	case r.Stdin == agent.StdinInherit && s.agent.stdin != nil:
		d.give(int(s.agent.stdin.Fd()), false)
	case r.Stdin == agent.StdinFed:
		reader, writer, err := sys.Pipe()
		if err != nil {
			return err
		}
		d.give(reader, true)
		// Only this end of the pipe does not block; the rank's does, as programs expect.
		syscall.SetNonblock(writer, true)
		p.feeder = &feeder{pipe: os.NewFile(uintptr(writer), "stdin"), parts: make(chan []byte, 1)}
	default:
		d.give(int(s.agent.null.Fd()), false)
	}
	return nil
}

func (s *starter) connectOutput(p *process, kind agent.Stream, file string, d *descriptors) error {
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
