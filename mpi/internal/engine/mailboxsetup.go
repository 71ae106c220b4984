package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/transport"
)

// mailboxOffer is what a rank tells the others of its mailboxes: the key of their memory; 0 if it has none.
const mailboxOffer = 8

// Prepare has all ranks agree on whether they have mailboxes, and tells it. They do if each can write into
// the memory of all others. It is called by all of them at the same call, by one goroutine at a time, and
// again after an error: if it ends with the canceller, what it has begun goes on.
func (m *Mailboxes) Prepare(scope *Canceller) (ready bool, err error) {
	m.e.mu.Lock()
	state := m.state
	m.e.mu.Unlock()
	switch state {
	case mailboxesAbsent:
		return false, nil
	case mailboxesUnknown:
		if err := m.beginSetup(); err != nil {
			return false, err
		}
	}
	err = m.awaitSetup(scope)
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	m.settle()
	return m.state == mailboxesReady, err
}

// settle decides whether there are mailboxes, once all offers have come.
func (m *Mailboxes) settle() {
	if m.state != mailboxesAgreeing || !m.setup.over {
		return
	}
	m.state = mailboxesAbsent // and where the offers have not come some peer may still come to write
	if m.setup.err != nil {
		return
	}
	if m.accept(m.setup.Output) {
		m.state = mailboxesReady
	} else if m.memory != nil {
		_ = m.memory.Deregister() // nobody writes there: this offer has come to nothing everywhere
	}
}

// SharesMemory tells whether this rank writes into the memory of all others of a communicator by itself,
// once it is connected. All of them find the same: who shares a host is the same for all.
func (e *Engine) SharesMemory(ranks []int32, size int) bool {
	for rank := range size {
		if ranks != nil {
			rank = int(ranks[rank])
		}
		if rank == e.rank {
			continue
		}
		f, _, err := e.connections.selectFabric(rank)
		if err != nil || !f.device.Query().PeerMapped {
			return false
		}
	}
	return true
}

// beginSetup makes the memory and sends its key to all others.
func (m *Mailboxes) beginSetup() error {
	input, output := make([]byte, mailboxOffer), make([]byte, m.size*mailboxOffer)
	m.e.mu.Lock()
	m.e.collectives.freeReleased()
	for _, f := range m.e.fabrics {
		attr := f.device.Query()
		if !attr.PeerMapped || !attr.InlineWrites {
			continue
		}
		mr, err := f.pd.Alloc(m.size*mailboxSize, transport.LocalWrite|transport.RemoteWrite)
		if err == nil {
			m.memory = mr
			binary.LittleEndian.PutUint64(input, uint64(mr.Key()))
		}
		break
	}
	m.e.mu.Unlock()
	c := &Collective{
		Context: m.context, Tag: m.tag, Ranks: m.ranks, Input: input, Output: output, wakesProbes: true,
		Call: coll.Call{
			Operation: coll.OpAllgather, Rank: m.rank, Size: m.size, Count: mailboxOffer, ElemSize: 1,
		},
	}
	coll.ExchangeAll(&c.Schedule, m.rank, m.size, mailboxOffer)
	copy(output[m.rank*mailboxOffer:], input)
	h, err := m.e.StartCollective(c)
	if err != nil {
		return err
	}
	m.e.mu.Lock()
	m.setup, m.wait, m.state = c, h, mailboxesAgreeing
	m.e.mu.Unlock()
	return nil
}

// awaitSetup waits for the others' keys.
func (m *Mailboxes) awaitSetup(scope *Canceller) (err error) {
	if scope == nil && m.wait != (Request{}) {
		h := m.wait
		m.wait = Request{}
		_, err = m.e.waiters.waitFor(m.e.requestOf(h), h)
		return err
	}
	m.e.mu.Lock()
	if m.wait != (Request{}) {
		m.e.requests.detach(m.e.requests.find(m.wait))
		m.wait = Request{}
	}
	m.e.mu.Unlock()
	m.e.waiters.waitUntil(0, nil, func() bool {
		err = scope.Err()
		return m.setup.over || err != nil
	})
	return err
}

// requestOf is the request of a handle that nobody else uses.
func (e *Engine) requestOf(h Request) *request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests.find(h)
}

// accept takes the offers of all ranks; false if one of them has no memory.
func (m *Mailboxes) accept(offers []byte) bool {
	m.peers = make([]mailbox, m.size)
	for rank := range m.size {
		key := transport.Key(binary.LittleEndian.Uint64(offers[rank*mailboxOffer:]))
		if key == 0 {
			return false
		}
		if rank == m.rank {
			continue
		}
		at := rank * mailboxSize
		m.peers[rank] = mailbox{peer: m.e.peer(m.worldRank(rank)), key: key,
			in: m.memory.Bytes()[at : at+mailboxSize : at+mailboxSize]}
	}
	return true
}

// failed is the failure of a rank with mailboxes; nil if none has failed.
func (m *Mailboxes) failed() error {
	for rank := range m.peers {
		if p := m.peers[rank].peer; p != nil && p.state != peerOpen {
			switch {
			case p.state == peerFailed:
				return p.cause
			case p.state == peerClosed:
				return fmt.Errorf("%w: rank %d has closed the connection", transport.ErrClosed, p.rank)
			}
		}
	}
	return nil
}
