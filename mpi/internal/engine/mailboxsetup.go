package engine

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/transport"
)

// To set up mailboxes, a rank first sends an offer to all others: the key of its mailboxes' memory, or 0 if
// it has none, and the key of test memory, which the others try to read. Then it sends a verdict: whether it
// can read the test memory of all others. If all can, and the mailboxes are for long messages, it sends
// another one: up to which length it has measured that bytes move faster through mapped memory, and how long
// it takes to write what others have read. If that is long, it measures once more, and sends both verdicts
// again. What holds for all ranks decides which messages they exchange, so they must agree on it.
const (
	mailboxOffer   = 24 // bytes
	mailboxVerdict = 1
	testBytes      = 8
)

// Prepare sets up the mailboxes with all other ranks, and reports whether there are any: each rank must be
// able to write into the memory of all others. All ranks call it in the same collective, from one goroutine
// at a time, and again after an error. If the canceller ends it, the set-up goes on.
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
	for {
		err = m.awaitSetup(scope)
		m.e.mu.Lock()
		m.settleLocked()
		ready = m.state == mailboxesReady
		again := err == nil && (m.state == mailboxesTesting || m.state == mailboxesMeasuring)
		m.e.mu.Unlock()
		if !again {
			return ready, err
		}
	}
}

// Access is how ranks that have mailboxes reach each other's memory: a level, and levels times their
// coll.Rewrite.
type Access uint8

const (
	MailboxesOnly Access = iota
	CanPull              // they can read it
	// They can, but messages of up to so many KiB, or all, move faster through mapped memory.
	Quick16
	Quick32
	Quick64
	QuickMapped
	levels
	accesses = levels * Access(coll.RewriteVerySlow+1)
)

// CanPull reports whether the ranks can read each other's memory.
func (a Access) CanPull() bool { return a.level() >= CanPull }

// Quick returns the length up to which messages move faster through mapped memory.
func (a Access) Quick() int {
	switch a = a.level(); {
	case a <= CanPull:
		return 0
	case a >= QuickMapped:
		return coll.QuickAlways
	}
	return 16 << 10 << (a - Quick16)
}

// Rewrite is how long it takes the ranks to write memory that others have read.
func (a Access) Rewrite() coll.Rewrite { return coll.Rewrite(a / levels) }

func (a Access) level() Access { return a % levels }

// with returns what ranks with these accesses have in common.
func (a Access) with(b Access) Access {
	return min(a.level(), b.level()) + levels*Access(max(a.Rewrite(), b.Rewrite()))
}

// accessBy returns the access, by reads or better, between ranks whose copies have these costs, where pieces
// are so long.
func accessBy(costs copycost.Costs, piece int) Access {
	a, quick := CanPull, costs.Pieces(piece)
	for a < QuickMapped && min((a+1).Quick(), copycost.MaxMapped) <= quick {
		a++
	}
	switch {
	case costs.RewritesVerySlowly():
		a += levels * Access(coll.RewriteVerySlow)
	case costs.RewritesSlowly():
		a += levels * Access(coll.RewriteSlow)
	}
	return a
}

// Access returns what all ranks of the mailboxes have in common.
func (m *Mailboxes) Access() Access {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	return m.access
}

// settleLocked ends a step of the set-up that is complete: with all offers it decides whether there are
// mailboxes, and with all verdicts whether the ranks read each other's memory.
func (m *Mailboxes) settleLocked() {
	m.e.mu.assertHeld()
	state := m.state
	if state < mailboxesAgreeing || state > mailboxesMeasuring || !m.setup.over {
		return
	}
	m.state = mailboxesAbsent // if offers are missing, some peer may still write, so the memory is not freed
	var next func() (sent bool)
	switch {
	case m.setup.err != nil:
	case state == mailboxesAgreeing && m.acceptLocked(m.setup.Output):
		next = m.testLocked
	case state != mailboxesAgreeing:
		if next = m.afterVerdictsLocked(state); next == nil {
			m.state = mailboxesReady
			m.countSkippedLocked()
		}
	case m.memory != nil:
		// Nobody writes there: all ranks have the same offers, and find no mailboxes.
		_ = m.e.MailboxCalls.buffers.free(m.memory)
	}
	if next != nil && next() {
		m.settleLocked() // what all others sent may have come before
		return
	}
	if m.test != nil {
		_ = m.test.Deregister()
		m.test = nil
	}
	if m.released {
		m.e.MailboxCalls.endUnfinishedLocked(m)
	}
}

// endUnfinishedLocked ends the set-up of mailboxes that were released during it.
func (mc *MailboxCalls) endUnfinishedLocked(m *Mailboxes) {
	mc.e.mu.assertHeld()
	if m.state == mailboxesReady {
		mc.retireLocked(m)
	}
	mc.unfinished = remove(mc.unfinished, m)
	mc.e.unexpected.discardFreed(m.context)
}

// settingUpLocked reports whether released mailboxes are being set up in a context.
func (mc *MailboxCalls) settingUpLocked(context uint32) bool {
	mc.e.mu.assertHeld()
	return slices.ContainsFunc(mc.unfinished, func(m *Mailboxes) bool { return m.context == context })
}

// afterVerdictsLocked notes the verdicts of all ranks, and returns the next step of the set-up; nil if there
// is none.
func (m *Mailboxes) afterVerdictsLocked(step mailboxState) (next func() (sent bool)) {
	m.e.mu.assertHeld()
	m.access = QuickMapped
	for _, v := range m.setup.Output {
		m.access = m.access.with(min(Access(v), accesses-1))
	}
	switch {
	case step == mailboxesTesting && m.access.CanPull() && m.takesPieces():
		return m.measureLocked
	case step == mailboxesMeasuring && m.access.Rewrite() > coll.RewriteQuick && !m.takingOver:
		m.takingOver = true
		return m.testLocked
	}
	return nil
}

// testLocked tests whether this rank can read the memory of all others, and sends its verdict.
func (m *Mailboxes) testLocked() (sent bool) {
	m.e.mu.assertHeld()
	access := CanPull
	for rank := range m.peers {
		if rank != m.rank && !m.canReadLocked(rank) {
			access = MailboxesOnly
		}
	}
	if access == CanPull && m.samplesCopies() {
		for rank := range m.peers {
			if rank != m.rank {
				m.sampleReadsLocked(&m.peers[rank])
			}
		}
	}
	return m.sendVerdictLocked(mailboxesTesting, byte(access))
}

// sendVerdictLocked begins a step of the set-up in which the ranks exchange verdicts. If it cannot, there are
// no mailboxes.
func (m *Mailboxes) sendVerdictLocked(step mailboxState, verdict byte) (sent bool) {
	m.e.mu.assertHeld()
	m.state = step
	h, err := m.exchangeSetupLocked([]byte{verdict})
	if err != nil {
		m.state = mailboxesAbsent
		return false
	}
	m.e.Requests.detach(m.e.Requests.find(h))
	return true
}

// testTries is how often a rank tries to read a peer's test memory: the peer may have earlier Writes to
// finish.
const testTries = 100

// canReadLocked reports whether this rank can read the memory of a rank.
func (m *Mailboxes) canReadLocked(rank int) bool {
	m.e.mu.assertHeld()
	b := &m.peers[rank]
	if !m.fabric.Device.Query().DirectCopies || b.testKey == 0 || b.peer.state != peerOpen {
		return false
	}
	got := make([]byte, testBytes)
	m.segment[0] = transport.Segment{Key: b.testKey, Length: testBytes}
	for try := range testTries {
		if b.peer.ch.QP().Get(got, &m.segment[0]) == nil {
			return true
		}
		m.e.waiting.yieldCore(try)
	}
	return false
}

func (m *Mailboxes) takesPieces() bool { return m.longest >= coll.PieceMin }

// SharesMemory reports whether this rank can store into the memory of all others of a communicator, once
// connected. The result is the same at all of them.
func (mc *MailboxCalls) SharesMemory(ranks []int32, size int) bool {
	e := mc.e
	for rank := range size {
		if ranks != nil {
			rank = int(ranks[rank])
		}
		if rank == e.rank {
			continue
		}
		f, _, err := e.connections.selectFabric(rank)
		if err != nil || !f.Device.Query().PeerMapped {
			return false
		}
	}
	return true
}

// beginSetup allocates the memory and sends the offer.
func (m *Mailboxes) beginSetup() error {
	input := make([]byte, mailboxOffer)
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	m.e.MailboxCalls.freeReleasedLocked()
	for _, f := range m.e.fabrics {
		attr := f.Device.Query()
		if !attr.PeerMapped || !attr.InlineWrites {
			continue
		}
		mr, err := m.e.MailboxCalls.buffers.alloc(f, m.bytes(),
			transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead)
		if err == nil {
			if m.takesPieces() {
				clearLong(mr.Bytes()) // see mailboxsample.go
			}
			m.memory, m.fabric = mr, f
			binary.LittleEndian.PutUint64(input, uint64(mr.Key()))
			m.test, err = f.pd.Register(make([]byte, testBytes), transport.RemoteRead)
		}
		if err == nil {
			binary.LittleEndian.PutUint64(input[8:], uint64(m.test.Key()))
		}
		break
	}
	binary.LittleEndian.PutUint64(input[16:], m.e.processor())
	m.connectAllLocked()
	h, err := m.exchangeSetupLocked(input)
	if err != nil {
		return err
	}
	m.wait, m.state = h, mailboxesAgreeing
	return nil
}

// connectAllLocked connects all ranks: the offers themselves may need no connections.
func (m *Mailboxes) connectAllLocked() {
	for rank := range m.size {
		if p := m.e.peerLocked(m.worldRank(rank)); rank != m.rank && p.state == peerIdle {
			m.e.connections.connectLocked(p)
		}
	}
}

// exchangeSetupLocked starts an Allgather of input among the ranks.
func (m *Mailboxes) exchangeSetupLocked(input []byte) (Request, error) {
	m.e.mu.assertHeld()
	n := len(input)
	c := &Collective{
		Context: m.context, Tag: m.tag, Ranks: m.ranks, Input: input, Output: make([]byte, m.size*n),
		wakesConditions: true,
		Call: coll.Call{
			Operation: coll.OpAllgather, Rank: m.rank, Size: m.size, Count: n, ElemSize: 1,
		},
	}
	coll.ExchangeAll(&c.Schedule, m.rank, m.size, n)
	copy(c.Output[m.rank*n:], input)
	c.prepare()
	m.setup = c // before it begins: it may end at once, and whoever looks then settles it
	r, err := m.e.Collectives.beginLocked(c)
	if err != nil {
		return Request{}, err
	}
	return r.handle(), nil
}

// awaitSetup waits for the end of the current step of the set-up.
func (m *Mailboxes) awaitSetup(scope *Canceller) (err error) {
	if scope == nil && m.wait != (Request{}) {
		h := m.wait
		m.wait = Request{}
		_, err = m.e.waiting.waitFor(m.e.Requests.requestOf(h), h)
		return err
	}
	m.e.mu.Lock()
	if m.wait != (Request{}) {
		m.e.Requests.detach(m.e.Requests.find(m.wait))
		m.wait = Request{}
	}
	m.e.mu.Unlock()
	m.e.waiting.waitUntil(0, nil, func() bool {
		err = scope.Err()
		return m.setup.over || err != nil
	})
	return err
}

// requestOf returns the request of a handle that nobody else uses. It takes the lock.
func (t *Requests) requestOf(h Request) *request {
	e := t.e
	e.mu.Lock()
	defer e.mu.Unlock()
	return t.find(h)
}

// acceptLocked stores the offers of all ranks; false if one of them has no memory.
func (m *Mailboxes) acceptLocked(offers []byte) bool {
	if m.memory == nil {
		return false
	}
	m.peers = make([]mailbox, m.size)
	own := binary.LittleEndian.Uint64(offers[m.rank*mailboxOffer+16:])
	m.handover.on = own != 0
	for rank := range m.size {
		key := transport.Key(binary.LittleEndian.Uint64(offers[rank*mailboxOffer:]))
		if key == 0 {
			return false
		}
		if rank == m.rank {
			continue
		}
		at := m.areaOf(m.rank, rank)
		m.peers[rank] = mailbox{peer: m.e.peerLocked(m.worldRank(rank)), key: key,
			mine:    uint64(m.areaOf(rank, m.rank)),
			testKey: transport.Key(binary.LittleEndian.Uint64(offers[rank*mailboxOffer+8:])),
			in:      m.memory.Bytes()[at : at+m.area : at+m.area]}
		theirs := binary.LittleEndian.Uint64(offers[rank*mailboxOffer+16:])
		m.peers[rank].elsewhere = own != 0 && theirs != 0 && own != theirs
	}
	return true
}

// failedLocked returns the failure of a rank of the mailboxes, or nil.
func (m *Mailboxes) failedLocked() error {
	m.e.mu.assertHeld()
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
