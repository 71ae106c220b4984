package wireup

import (
	"sync"

	"github.com/weft-mpi/weft/internal/sys"
)

// processKey is the key of a card for the identity of its rank's process.
const processKey = "process"

// processes are the processes of other ranks that were asked for.
type processes struct {
	mu sync.Mutex
	of map[uint32]*sys.Watch // nil during the look-up, and for a rank of another host
}

// Running reports whether a rank's process is on this host and known to run: see fabric.Config. The first
// call for a rank starts the look-up of its card.
func (j *Job) Running(rank uint32) bool {
	p := &j.processes
	p.mu.Lock()
	watch, asked := p.of[rank]
	if !asked {
		if p.of == nil {
			p.of = map[uint32]*sys.Watch{}
		}
		p.of[rank] = nil
		go j.findProcess(rank)
	}
	p.mu.Unlock()
	return watch != nil && watch.Runs()
}

func (j *Job) findProcess(rank uint32) {
	text, err := j.card(rank)
	var card Card
	if err == nil {
		card, err = ParseCard(text)
	}
	p := &j.processes
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		delete(p.of, rank) // the next call tries again
	case card[kernelKey] == kernel() && kernel() != unknownKernel:
		p.of[rank] = sys.NewWatch(card[processKey])
	}
}
