package engine

import "github.com/weft-mpi/weft/eager"

// Small messages of one burst share a slot (eager.Batch). A message that goes into a batch is copied, and its send complete; the batch goes out with
// the next pass, when it is full, or before anything else goes to the same peer.

// batchOfWatched is how many messages a batch has for a peer who shares our memory: there a Write costs little, and he takes the first while the next
// are gathered.
const batchOfWatched = 16

// batched puts a message of a burst into its peer's batch, and has sent it then; false if it has to go by itself.
func (e *Engine) batched(p *peer, env envelope, payload []byte) bool {
	if len(payload) > min(eager.BatchedMost, p.most) || p.state != peerOpen || p.queued() || p.holdsBack(len(payload)) {
		return false
	}
	if p.batch.Count() == 0 {
		e.openBatch(p)
	}
	if !p.batch.Add(p.ch, env, payload) {
		if sent, err := e.sendBatch(p, true); !sent || err != nil {
			return false // it is tried again with the message that waits behind it
		}
		e.openBatch(p)
		if !p.batch.Add(p.ch, env, payload) {
			return false
		}
	}
	p.stats.eager(len(payload))
	if p.watched && p.batch.Count() >= batchOfWatched {
		e.sendBatch(p, true) // what does not go now goes later, and what is wrong is found then
	}
	return true
}

// openBatch gives a peer's batch its memory.
func (e *Engine) openBatch(p *peer) {
	e.reclaimBatch(p)
	var m []byte
	if n := len(e.batchMemory); n > 0 {
		m, e.batchMemory = e.batchMemory[n-1], e.batchMemory[:n-1]
	} else {
		m = make([]byte, eager.BatchSize)
	}
	p.batch.Use(m)
}

// sendBatch sends what a peer's batch has gathered. An error is of the peer, who has to be failed.
func (e *Engine) sendBatch(p *peer, more bool) (bool, error) {
	if p.batch.Count() == 0 {
		return true, nil
	}
	sent, err := p.batch.Send(p.ch, more)
	if !sent && err == nil && p.ch.Widen() {
		sent, err = p.batch.Send(p.ch, more)
	}
	if sent {
		e.reclaimBatch(p)
	}
	return sent, err
}

func (e *Engine) reclaimBatch(p *peer) {
	if m := p.batch.Memory(); m != nil {
		e.batchMemory = append(e.batchMemory, m)
	}
}
