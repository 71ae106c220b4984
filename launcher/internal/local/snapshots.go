package local

import (
	"bufio"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// readSnapshots reports the rank's messages about its state, until the connection ends or the rank violates
// the protocol. The rank goes on without the connection.
func (p *process) readSnapshots() {
	defer func() {
		p.snapshots.Close()
		close(p.silent)
	}()
	in := bufio.NewReader(p.snapshots)
	for {
		kind, body, err := snapshot.ReadFrame(in)
		if err != nil {
			return
		}
		switch kind {
		case snapshot.Quiet:
			p.agent.emit(agent.Quiet{Rank: p.id})
		case snapshot.Moving:
			p.agent.emit(agent.Moving{Rank: p.id})
		case snapshot.Answer:
			p.agent.emit(agent.Answer{Rank: p.id, Snapshot: body})
		case snapshot.Sampled:
			p.agent.emit(agent.Sampled{Rank: p.id, Sample: body})
		case snapshot.ArtifactPart:
			d := agent.Artifact{Rank: p.id, What: snapshot.Artifact(body[0]), Last: body[1] != 0,
				Data: body[2:]}
			p.agent.emit(d)
			if d.Last && d.What != snapshot.Stacks {
				p.ask(snapshot.Taken)
			}
		case snapshot.Measures:
			p.mu.Lock()
			p.leavesArtifacts = true
			p.mu.Unlock()
		case snapshot.HandedOver:
			select {
			case p.handedOver <- struct{}{}:
			default: // unrequested, or nobody waits any more
			}
		}
	}
}

// artifactsWithin is how long a signal waits for a rank's artifacts.
const artifactsWithin = 1500 * time.Millisecond

// mayEnd reports whether a launcher's signal ends a program that does not handle it. SIGQUIT, on which a Go
// program prints its stacks, is sent at once.
func mayEnd(sig syscall.Signal) bool {
	return sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGHUP
}

// signalAfterArtifacts sends a signal once the rank has sent its artifacts, since the signal may end it.
func (p *process) signalAfterArtifacts(sig syscall.Signal) {
	p.ask(snapshot.HandOver)
	select {
	case <-p.handedOver:
	case <-p.silent:
	case <-time.After(artifactsWithin):
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == alive {
		sys.SignalGroup(p.pid, sig)
	}
}

// ask sends the rank a request. It does not wait for a rank that reads none.
func (p *process) ask(question byte) { p.say([]byte{question}) }

// tellFailed tells the rank that another one has failed. A rank always reads this connection, unless it is
// stopped, so there soon is room again. The caller does not wait for it.
func (p *process) tellFailed(rank int) {
	told := snapshot.AppendFailed(nil, rank)
	if !p.say(told) {
		return
	}
	go func() {
		for range 10 {
			time.Sleep(time.Millisecond)
			if !p.say(told) {
				return
			}
		}
	}()
}

// say writes to the rank without waiting, and reports whether there was no room. It does not use a write with
// a deadline: on a busy machine the deadline may pass before the write begins.
func (p *process) say(b []byte) (full bool) {
	conn, err := p.snapshots.SyscallConn()
	if err != nil {
		return false // closed
	}
	conn.Write(func(fd uintptr) bool {
		err := syscall.EINTR
		for err == syscall.EINTR {
			_, failure := syscall.Write(int(fd), b)
			err, _ = failure.(syscall.Errno)
		}
		full = err == syscall.EAGAIN
		return true
	})
	return full
}
