package live

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// greetingTimeout is how long a launcher may take to greet a caller.
const greetingTimeout = 5 * time.Second

// A Watcher is a connection to the launcher of a job.
type Watcher struct {
	Job  Job // as in the launcher's greeting, without ranks
	conn *net.UnixConn
}

// Find returns connections to the launchers of all jobs of this user on this host, by process id. The caller
// closes them. Sockets of launchers that have been killed are removed.
func Find() (list []*Watcher, refused error) {
	for _, path := range sockets() {
		if filepath.Ext(path) != suffix {
			sweep(path)
			continue
		}
		w, err := dial(path)
		switch {
		case err == nil:
			list = append(list, w)
		case errors.As(err, new(refusal)):
			refused = err
		default:
			sweep(path)
		}
	}
	slices.SortFunc(list, func(a, b *Watcher) int { return a.Job.PID - b.Job.PID })
	return list, refused
}

// refusal is the reason why a launcher does not serve a caller.
type refusal string

func (r refusal) Error() string { return string(r) }

func dial(path string) (*Watcher, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	w := &Watcher{conn: conn}
	if _, uid, err := sys.PeerOf(conn); err != nil || uid != os.Getuid() {
		w.Close()
		return nil, fmt.Errorf("%s: another user listens there", path)
	}
	conn.SetDeadline(time.Now().Add(greetingTimeout))
	job, err := readJob(conn)
	if err == nil && job.Refused != "" {
		err = refusal(job.Refused)
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	w.Job = *job
	return w, nil
}

// Start subscribes to reports on the ranks, which Next returns.
func (w *Watcher) Start() error {
	w.conn.SetDeadline(time.Time{})
	_, err := w.conn.Write([]byte{Watch})
	return err
}

// Next waits for the launcher's next report. The end of the job is io.EOF.
func (w *Watcher) Next() (*Job, error) {
	j, err := readJob(w.conn)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) {
		err = io.EOF
	}
	return j, err
}

// Close ends the connection, and a waiting Next.
func (w *Watcher) Close() { w.conn.Close() }
