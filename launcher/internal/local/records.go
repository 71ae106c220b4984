package local

import (
	"github.com/weft-mpi/weft/internal/inherited"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// connectRecorder gives a rank the memory of its flight recorder, which holds its last communication events
// (package recorder). The agent keeps the memory when the rank has ended. Without it, the rank records
// nothing.
func (s *spawner) connectRecorder(p *process, d *descriptors) error {
	ring, fd, err := recorder.NewRing()
	if err != nil {
		return nil
	}
	p.recorder = ring
	return d.share(inherited.Recorder, fd)
}

// sendRecords reports the contents of ranks' flight recorders. A rank that was not started, or has no
// recorder, is reported without contents, because the launcher waits for an answer from each.
func (a *Agent) sendRecords(ranks []int) {
	a.sending.Lock()
	defer a.sending.Unlock()
	for _, id := range ranks {
		e := agent.Recorded{Rank: id}
		a.mu.Lock()
		if p := a.ranks[id]; p != nil && p.recorder != nil {
			e.Events = p.recorder.Copy()
		}
		a.mu.Unlock()
		a.emit(e)
	}
}

// closeRecorders releases the recorder memory of all ranks.
func (a *Agent) closeRecorders() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.ranks {
		if p.recorder != nil {
			p.recorder.Close()
			p.recorder = nil
		}
	}
}
