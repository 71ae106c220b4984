package shm

import (
	"fmt"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// copyWatch is what the watcher of peers knows of a system call that copies memory of one, or to it. Such a
// call waits for pages of the peer, which need not come: their faults may be handed to a program
// (userfaultfd), or they are those of a file whose file system does not answer. Nothing but the end of a
// process ends the wait.
type copyWatch struct {
	call   uint64        // that was under way at the last look; of sys.Foreign
	lasted time.Duration // between looks that found it held up
	fatal  bool          // Options.Fatal was called
	gaveUp uatomic.Bool  // the peer was given up over it
}

// watchCopy looks at a copy of a peer's memory, or to it, some time after the last look, and knows whether
// the peer's process is there: its number may be another one's if it is not. What counts is the time in which
// the copy waits for pages: the thread that copies may wait for a processor too. After half of the peer
// timeout the peer is given up and its process killed, whose end ends the call, in time for this rank to tell
// its own peers that it lives. If the call goes on, because pages are due from yet another process, this one
// cannot go on.
func (d *Device) watchCopy(l *connection, there bool, since time.Duration) {
	w := &l.copying
	call := l.own.Call()
	if call&1 == 0 || call != w.call {
		w.call, w.lasted = call, 0
		return
	}
	if !l.own.Blocked() {
		return
	}
	w.lasted += since
	switch {
	case w.lasted >= d.copyTimeout() && !w.gaveUp.Load():
		w.gaveUp.Store(true)
		if there {
			d.kill(l) // one that cannot be killed keeps the call going: see below
		}
		l.qp.lose()
	case w.lasted >= d.opts.PeerTimeout && !w.fatal:
		w.fatal = true
		d.endOver(l)
	}
}

// kill ends the process of a peer that holds up a copy.
func (d *Device) kill(l *connection) {
	d.opts.Log.Error("a peer is given up, and its process killed", "peer", l.qp.Attr.Peer, "error",
		d.errNoAnswer(l.own.Pid))
	_ = sys.Kill(l.own.Pid)
}

// endOver says that this process cannot go on: a copy is held up although the peer was killed.
func (d *Device) endOver(l *connection) {
	if d.opts.Fatal != nil {
		go d.opts.Fatal(l.qp.Attr.Peer, fmt.Errorf("%w; nor after its process was killed",
			d.errNoAnswer(l.own.Pid)))
	}
}

// copyTimeout is how long one system call may copy memory of a peer, 4 MiB at most.
func (d *Device) copyTimeout() time.Duration { return d.opts.PeerTimeout / 2 }

func (d *Device) errNoAnswer(pid int) error {
	return fmt.Errorf("%w: a copy of memory of process %d did not end within %v", transport.ErrPeerLost,
		pid, d.copyTimeout())
}

// tryToRead finds out, during start-up, whether memory of another process may be read. It has a goroutine of
// its own for that: whoever waits in the system call cannot give it up.
func (d *Device) tryToRead(own sys.Foreign) (reads bool, err error) {
	result := make(chan error, 1)
	go func() {
		err := own.Prove()
		if err == nil {
			d.copyCall.measure(&own)
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
		if own.Blocked() {
			_ = sys.Kill(own.Pid) // so that its end ends the call
			return false, d.errNoAnswer(own.Pid)
		}
	}
}
