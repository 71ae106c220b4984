package launcher

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/weft-mpi/weft/internal/sys"
)

// secretSize is the length of a job's secret.
const secretSize = 32

// A rank is one process of the job.
type rank struct {
	id      int
	app     *App
	file    string // what is executed
	pid     int
	streams []*stream // empty when the rank writes to files

	mu     sync.Mutex
	reaped bool // the process id may belong to another by now

	// Owned by the job's loop.
	status  syscall.WaitStatus
	ended   bool // the process has ended
	silent  bool // its PMI connection has ended
	drained bool // its output is through
	judged  bool
}

// signal reaches the rank's whole group while the rank lives.
func (r *rank) signal(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pid > 0 && !r.reaped {
		sys.SignalGroup(r.pid, sig)
	}
}

// bury kills what is left of the group of a rank that has ended, and frees the rank's process id. Until then nobody else can have it.
func (r *rank) bury(k *keeper) syscall.WaitStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	sys.SignalGroup(r.pid, syscall.SIGKILL)
	k.forget(r.pid)
	status, _ := sys.Reap(r.pid)
	r.reaped = true
	return status
}

// descriptors are the files that a rank starts with, in the order of their numbers there.
type descriptors struct {
	theirs []uintptr
	close  []int // the launcher's copies of what is only the rank's
}

func (d *descriptors) closeAll() {
	for _, fd := range d.close {
		syscall.Close(fd)
	}
}

// give adds a descriptor; own says that the launcher has no use for it once the rank is started.
func (d *descriptors) give(fd int, own bool) {
	d.theirs = append(d.theirs, uintptr(fd))
	if own {
		d.close = append(d.close, fd)
	}
}

// connect makes everything that the rank and the launcher share, and returns the rank's ends.
func (j *running) connect(r *rank) (d descriptors, err error) {
	defer func() {
		if err != nil {
			d.closeAll()
			if err == syscall.EMFILE {
				err = fmt.Errorf("%w: %d ranks need about %d (ulimit -n)", err, len(j.ranks), 5*len(j.ranks)+20)
			}
			err = fmt.Errorf("connecting rank %d: %w", r.id, err)
		}
	}()
	if err := j.connectInput(r, &d); err != nil {
		return d, err
	}
	if err := j.connectOutput(r, &d); err != nil {
		return d, err
	}
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		return d, err
	}
	d.give(theirs, true)
	file := os.NewFile(uintptr(ours), "pmi")
	defer file.Close()
	if j.conns[r.id], err = net.FileConn(file); err != nil {
		return d, err
	}
	reader, writer, err := sys.Pipe()
	if err != nil {
		return d, err
	}
	defer syscall.Close(writer)
	d.give(reader, true)
	_, err = syscall.Write(writer, j.secret[:])
	return d, err
}

func (j *running) connectInput(r *rank, d *descriptors) error {
	switch {
	case j.job.In == nil || j.job.Stdin != InputAll && int(j.job.Stdin) != r.id:
		d.give(int(j.null.Fd()), false)
	case j.input == nil:
		d.give(int(j.job.In.Fd()), false)
	default:
		fd, err := j.input.add(r.id)
		if err != nil {
			return err
		}
		d.give(fd, true)
	}
	return nil
}

func (j *running) connectOutput(r *rank, d *descriptors) error {
	if j.job.Output != "" {
		for _, kind := range []string{"out", "err"} {
			width := len(fmt.Sprint(len(j.ranks) - 1))
			name := filepath.Join(j.job.Output, fmt.Sprintf("rank.%0*d.%s", width, r.id, kind))
			fd, err := syscall.Open(name, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC|syscall.O_CLOEXEC, 0o666)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			d.give(fd, true)
		}
		return nil
	}
	label := ""
	if j.job.Label {
		label = fmt.Sprintf("[%d] ", r.id)
	}
	for _, to := range []*sink{j.out, j.err} {
		reader, writer, err := sys.Pipe()
		if err != nil {
			return err
		}
		d.give(writer, true)
		// Only this end of the pipe does not block; the rank's does, as programs expect.
		syscall.SetNonblock(reader, true)
		r.streams = append(r.streams, &stream{sink: to, label: label, pipe: os.NewFile(uintptr(reader), "output")})
	}
	return nil
}

// newSecret draws what the ranks of one job prove to each other that they belong to it.
func newSecret() (secret [secretSize]byte) {
	rand.Read(secret[:])
	return secret
}
