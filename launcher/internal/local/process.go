package local

import (
	"os"
	"sync"
	"syscall"

	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// maxPMILine is one more than the longest line that PMI allows. Longer lines are cut there, and the server
// refuses them.
const maxPMILine = 2048

// processState is the state of a rank's process.
type processState uint8

const (
	// the kernel is executing the program; left for alive, or for ended if it fails
	starting processState = iota
	alive                 // left for ended when the process has been reaped
	ended                 // the process id may be reused
)

// A process is a rank.
type process struct {
	agent *Agent
	id    int

	mu      sync.Mutex
	state   processState
	pid     int
	pending []syscall.Signal // received while it was starting
	pmi     int              // this end of the PMI connection; -1 when it is closed
	// the rank sends its artifacts (profile, call sites, trace) before a signal that may end it
	leavesArtifacts bool

	line    []byte // the beginning of a PMI line; used by readPMI
	streams []*stream
	feeder  *feeder // nil unless the rank's input is fed

	recorder  *recorder.Ring // nil without one; under the agent's lock
	snapshots *os.File       // this end of the connection for snapshots
	// signaled when the rank has sent its artifacts; with room for several signals in a row
	handedOver chan struct{}
	silent     chan struct{} // closed when nothing more comes over the connection for snapshots
}

// signal sends a signal to the rank's process group.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.state {
	case starting:
		p.pending = append(p.pending, sig)
	case alive:
		if p.leavesArtifacts && mayEnd(sig) {
			go p.signalAfterArtifacts(sig)
		} else {
			sys.SignalGroup(p.pid, sig)
		}
	}
}

// begun records that the process has been started, emits Started, and sends it the pending signals.
func (p *process) begun(pid int) {
	p.agent.emit(agent.Started{Rank: p.id, PID: pid}) // before any other event of the process
	p.mu.Lock()
	p.pid, p.state = pid, alive
	for _, sig := range p.pending {
		sys.SignalGroup(pid, sig)
	}
	p.pending = nil
	p.mu.Unlock()
	// If the process has already stopped, the kernel reported that before the process was known, and will not
	// report it again.
	p.reportChange()
}

// exited kills the remaining processes of an ended rank's group, and only then frees the rank's process id,
// which cannot be reused until then.
func (p *process) exited() {
	p.readPMI() // report its last messages before its end
	p.mu.Lock()
	sys.SignalGroup(p.pid, syscall.SIGKILL)
	p.agent.watchdog.forget(p.pid)
	status, _ := sys.Reap(p.pid)
	p.state = ended
	p.mu.Unlock()
	p.endIO()
	p.agent.emit(agent.Exited{Rank: p.id, Status: status, State: p.agent.pmi.state(p.id)})
	p.gone()
	p.agent.tasks.Done()
}

// endIO ends the forwarding of output and input.
func (p *process) endIO() {
	for _, s := range p.streams {
		s.end()
	}
	if p.feeder != nil {
		p.feeder.close()
	}
	p.snapshots.Close()
}

// reply writes a line to the rank. A rank has one request at a time, so there is room, unless it violates the
// protocol: then its connection is closed.
func (p *process) reply(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pmi < 0 {
		return
	}
	if n, err := syscall.Write(p.pmi, []byte(line)); n < len(line) && err != syscall.EPIPE {
		p.shutdown()
	}
}

func (p *process) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shutdown()
}

// shutdown makes readPMI find the end of the connection. The lock is held.
func (p *process) shutdown() {
	if p.pmi >= 0 {
		syscall.Shutdown(p.pmi, syscall.SHUT_RDWR)
	}
}

// watchPMI has the connection watched, unless it is closed: once the process is watched, its end may be
// handled at any time.
func (p *process) watchPMI() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pmi < 0 {
		return nil
	}
	return p.agent.watcher.WatchReader(p.pmi, p.id)
}

// readPMI reports what the rank has sent. It runs on watch's goroutine, or for a process that cannot be
// watched on the goroutine that starts ranks. Only it closes the connection.
func (p *process) readPMI() {
	if p.pmi < 0 {
		return
	}
	var buf [maxPMILine]byte
	for {
		n, err := syscall.Read(p.pmi, buf[:])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return
		case err != nil || n == 0:
			p.closePMI()
			return
		}
		for _, b := range buf[:n] {
			if b != '\n' && len(p.line) < maxPMILine {
				p.line = append(p.line, b)
				continue
			}
			p.agent.servePMI(p.id, string(p.line))
			p.line = p.line[:0]
			if b != '\n' {
				p.closePMI()
				return
			}
		}
	}
}

func (p *process) closePMI() {
	p.mu.Lock()
	p.agent.watcher.Forget(p.pmi)
	syscall.Close(p.pmi)
	p.pmi = -1
	p.mu.Unlock()
	p.agent.emit(agent.PMIClosed{Rank: p.id, State: p.agent.pmi.state(p.id)})
	p.gone()
}

// gone notifies the PMI service when both the process and its connection have ended: only then is it known
// how far the rank had come.
func (p *process) gone() {
	p.mu.Lock()
	gone := p.state == ended && p.pmi < 0
	p.mu.Unlock()
	if gone {
		p.agent.gonePMI(p.id)
	}
}

// A feeder writes a rank's standard input.
type feeder struct {
	pipe  *os.File
	parts chan []byte // holds at most one
	once  sync.Once
}

func (p *process) feed(data []byte) {
	if p.feeder != nil {
		select {
		case p.feeder.parts <- data:
		default: // the contract forbids more than one part at a time
		}
	}
}

// run writes the parts until the end of the input, or of the rank.
func (f *feeder) run(p *process) {
	for {
		select {
		case data := <-f.parts:
			if len(data) == 0 {
				f.close()
				p.agent.emit(agent.InputTaken{Rank: p.id, Closed: true})
				return
			}
			_, err := f.pipe.Write(data)
			p.agent.emit(agent.InputTaken{Rank: p.id, Closed: err != nil})
			if err != nil {
				f.close()
				return
			}
		case <-p.agent.closing:
			f.close()
			return
		}
	}
}

// close ends the input, and a write in progress.
func (f *feeder) close() { f.once.Do(func() { f.pipe.Close() }) }
