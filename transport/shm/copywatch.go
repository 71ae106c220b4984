package shm

import (
	"fmt"
	"slices"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// copyWatch is the watcher's state of a system call that copies a peer's memory. Such a call waits for pages
// of the peer, which may never come: their faults may be handled by a program (userfaultfd), or they belong
// to a file whose file system does not respond. Only the end of a process ends the wait.
type copyWatch struct {
	call   uint64        // in progress at the last look; see sys.Foreign
	lasted time.Duration // time for which the call was found waiting
	gaveUp uatomic.Bool  // the peer was given up because of it
}

// watchCopy checks a copy of a peer's memory, since after the last check. there is false if the peer's
// process has ended: its pid may have been reused. Only time that the copy spends waiting for pages counts,
// because its thread may also wait for a CPU. After PeerTimeout/2 the peer is given up and its process
// killed, so that the call returns in time for this rank to send its own signs of life. If the call still
// does not return, because the pages belong to yet another process, this process cannot continue
// (Options.Fatal).
func (d *Device) watchCopy(l *connection, there bool, since time.Duration) {
	w := &l.copying
	call := l.outside.Call()
	if call&1 == 0 || call != w.call {
		w.call, w.lasted = call, 0
		return
	}
	if !l.outside.Blocked() {
		return
	}
	w.lasted += since
	switch {
	case w.lasted >= d.copyTimeout() && !w.gaveUp.Load():
		w.gaveUp.Store(true)
		if there {
			d.kill(l) // if that fails the call continues: see below
		}
		l.qp.lose()
	case w.lasted >= d.opts.PeerTimeout:
		d.endOver(l)
	}
}

// kill kills the process of a peer that holds up a copy.
func (d *Device) kill(l *connection) {
	d.opts.Log.Error("a peer is given up, and its process killed", "peer", l.qp.Attr.Peer, "error",
		d.errNoAnswer(l.outside.Pid))
	_ = sys.Kill(l.outside.Pid)
}

// endOver reports, once for each peer, that this process cannot continue: a copy is held up although the peer
// was killed.
func (d *Device) endOver(l *connection) {
	peer := l.qp.Attr.Peer
	d.live.Lock()
	known := slices.Contains(d.live.fatal, peer)
	if !known {
		d.live.fatal = append(d.live.fatal, peer)
	}
	d.live.Unlock()
	if !known && d.opts.Fatal != nil {
		go d.opts.Fatal(peer, fmt.Errorf("%w; nor after its process was killed",
			d.errNoAnswer(l.outside.Pid)))
	}
}

// copyTimeout is how long one system call may copy memory of a peer, which is at most 4 MiB.
func (d *Device) copyTimeout() time.Duration { return d.opts.PeerTimeout / 2 }

func (d *Device) errNoAnswer(pid int) error {
	return fmt.Errorf("%w: a copy of memory of process %d did not end within %v", transport.ErrPeerLost,
		pid, d.copyTimeout())
}

// tryToRead finds out, during the handshake, whether memory of another process can be read. It uses a
// goroutine of its own, because the system call cannot be cancelled.
func (d *Device) tryToRead(outside sys.Foreign) (reads bool, err error) {
	result := make(chan error, 1)
	go func() {
		err := outside.Prove()
		if err == nil {
			d.copyCall.measure(&outside)
		}
		result <- err
	}()
	timer := time.NewTicker(d.copyTimeout())
	defer timer.Stop()
	for {
		select {
		case err := <-result:
			return err == nil, nil
		case <-timer.C:
		}
		if outside.Blocked() {
			err := d.errNoAnswer(outside.Pid)
			d.opts.Log.Error("a peer is given up as it connects, and its process killed", "error", err)
			_ = sys.Kill(outside.Pid) // so that its end ends the call
			return false, err
		}
	}
}
