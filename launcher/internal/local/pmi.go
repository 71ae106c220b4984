package local

import (
	"sync"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// A pmiService serves PMI to the ranks. Lines and ends of ranks come from readPMI's goroutine, in the
// kernel's order, and so do the resulting events; commands come from another goroutine.
type pmiService struct {
	mu     sync.Mutex
	served *agent.PMI // nil before Start
}

// begin is called before any rank is started.
func (s *pmiService) begin(c agent.Start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = agent.NewPMI(c)
}

func (s *pmiService) state(rank int) pmi.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served.State(rank)
}

// servePMI answers a line of a rank. It runs where readPMI does.
func (a *Agent) servePMI(rank int, line string) {
	a.pmi.mu.Lock()
	replies, events := a.pmi.served.Line(rank, line)
	a.pmi.mu.Unlock()
	a.sendPMI(replies)
	for _, e := range events {
		a.emit(e)
	}
}

// gonePMI handles the end of a rank. It runs where readPMI does.
func (a *Agent) gonePMI(rank int) {
	a.pmi.mu.Lock()
	replies, events := a.pmi.served.Gone(rank)
	a.pmi.mu.Unlock()
	a.sendPMI(replies)
	for _, e := range events {
		a.emit(e)
	}
}

// commandPMI carries out a command, without waiting.
func (a *Agent) commandPMI(c agent.Command) {
	a.pmi.mu.Lock()
	if a.pmi.served == nil {
		a.pmi.mu.Unlock()
		return
	}
	replies, events := a.pmi.served.Do(c)
	a.pmi.mu.Unlock()
	a.sendPMI(replies)
	if len(events) > 0 {
		// These name their barrier, so their order does not matter.
		go func() {
			for _, e := range events {
				a.emit(e)
			}
		}()
	}
}

func (a *Agent) sendPMI(replies []pmi.Reply) {
	for _, r := range replies {
		if p := a.rank(r.Rank); p != nil {
			p.reply(r.Line)
		}
	}
}
