package engine

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/transport"
)

// Mailboxes carry the short messages of a communicator's blocking collectives between ranks that can write
// into each other's memory (docs/internals/adr/0035). In every rank's memory each other rank has an area of
// its own, to which only that rank writes: an acknowledgement word and a few slots. One round of a collective
// is one exchange. A rank writes its message to another rank into one slot with one inline Write. The last
// word, the flag, identifies the exchange, the call and its arguments, and the receiver polls it. So there is
// no matching and no queue, and one cache line moves.
//
// Exchanges are numbered alike at all ranks, and exchange n uses slot n mod depth. A sender writes a slot
// only when it knows that the receiver is done with the previous exchange that used it: each message and each
// acknowledgement says with which exchange its sender is done. A receiver is also done with an exchange that
// it has aborted, and never reads messages of that exchange.
//
// The engine's lock guards everything except what the peers write. Run and Prepare read exchange, wait and
// staged without it: the caller serializes Run, Skip and Prepare, and once the mailboxes are ready nothing
// else changes these fields.
type Mailboxes struct {
	e       *Engine
	context uint32
	tag     int
	rank    int
	size    int
	longest int     // length of the longest message
	depth   int     // number of slots, a power of two
	slot    int     // size of a slot
	area    int     // size of a sender's area
	ranks   []int32 // world ranks; nil for the world

	peers    []mailbox // by rank
	memory   transport.MR
	fabric   *fabric // of memory
	exchange uint64  // number of the latest exchange
	done     uint64  // number of the latest exchange whose slots this rank no longer reads
	cleared  uint64  // number of the exchange of the latest clearOldFlagsLocked

	state      mailboxState
	setup      *Collective // under way from mailboxesAgreeing to mailboxesMeasuring
	wait       Request     // of setup; zero if nobody will wait for it
	owing      bool        // listed in MailboxCalls.owing
	released   bool        // Release was called, perhaps before the end of the set-up
	test       transport.MR
	takingOver bool // the set-up samples copies into lines that are taken over
	report     failureReport
	access     Access           // known in mailboxesReady
	skipped    [accesses]uint64 // rounds skipped before access was known, by what it may be

	// of the call under way, if it pulls
	regions   [2]transport.MR    // by coll.Buffer; those of an earlier call too, which may be exposed again
	written   [2]bool            // which of regions others may write to
	pullCalls uint               // number of pulling calls so far; every keptFor-th deregisters everything
	staged    [2][]byte          // the copies that others read instead; nil where they read the buffer itself
	exposed   [exposedBytes]byte // their keys, which each message has for its payload

	// of the current Write; here, so that they are not allocated
	segment [1]transport.Segment
	head    [mailboxHead]byte
	post    transport.SendWR

	fetch    lineFetch
	handover handover
}

// mailboxState is the state of the set-up of mailboxes.
type mailboxState uint8

const (
	mailboxesUnknown mailboxState = iota // initial; left by the first call that may use them
	// the ranks exchange offers: where their memory is; left when this is complete
	mailboxesAgreeing
	// the ranks exchange verdicts: whether they can read all others' memory; left when this is complete
	mailboxesTesting
	// the same: up to which length bytes move faster through mapped memory; not if the mailboxes are small.
	// If such copies take long, this and the state before are repeated.
	mailboxesMeasuring
	mailboxesReady  // left by Release, or at once after it
	mailboxesAbsent // at least one rank has none, the set-up failed, or they were released; final
)

// mailbox is the state between this rank and a peer.
type mailbox struct {
	peer    *peer
	in      []byte        // this rank's memory into which the peer writes
	key     transport.Key // of the peer's memory into which this rank writes
	mine    uint64        // where this rank's area begins there
	acked   uint64        // the peer is done with this exchange, and all before
	ackSent uint64        // the latest exchange of which the peer knows that this rank is done with it
	// the latest exchange that was acknowledged by the acknowledgement word, not with a message
	ackWritten uint64
	// ackSent was sent with a message
	ackByMessage bool
	reported     failureReport    // the latest that was sent to the peer
	testKey      transport.Key    // of the peer's test memory
	keys         [2]transport.Key // of the buffers that the peer exposes in the current call
	elsewhere    bool             // the peer has another processor
	sampled      pieceSamples     // of the set-up
	writes       mailboxWrites
}

// A sender's area of the memory is a cache line and then its slots. The line ends with the sender's failure
// report and its acknowledgement. A slot ends with the flag. A message is stored at the end of its slot, from
// the start of a cache line: its payload, the number of the latest exchange with which the sender is done,
// and, at the slot's end, the flag.
const (
	// Partners of a doubling algorithm of 16 ranks meet in every fourth exchange. Only with more slots than
	// that has a rank heard that its partner is done with a slot before it needs it again.
	mailboxDepth     = 4
	mailboxDepthMany = 8 // of more than mailboxFew ranks
	mailboxFew       = 8
	// FirstMailboxBytes is the length of the longest message in a communicator's first mailboxes.
	FirstMailboxBytes = 432
	// bounds of the longest message in larger mailboxes, by the number of ranks
	mailboxBytesMin  = 8 << 10
	mailboxBytesMax  = copycost.MaxPiece
	mailboxBytesEach = 352 << 10 // divided by the square of the number of ranks
	// MailboxRanks is the size of the largest communicator with mailboxes: a rank polls the memory of that
	// many peers, and a message to all ranks takes one Write to each.
	MailboxRanks = 16

	mailboxHead = 8
	mailboxWord = 8
	mailboxLine = 64
)

// MailboxBytes returns the length of the longest message in the larger mailboxes of a communicator of size
// ranks: 32 KiB for 2 and 3 ranks, 22 KiB for 4, 8 KiB from 7 ranks on. The memory of a rank grows with size:
// 131 KB for 2 ranks, 271 KB for 4, 231 KB for 8, 1 MB for 16.
func MailboxBytes(size int) int {
	return max(mailboxBytesMin, min(mailboxBytesMax, mailboxBytesEach/(size*size)&^(mailboxLine-1)))
}

// Bytes returns the length of the longest message that fits the mailboxes.
func (m *Mailboxes) Bytes() int { return m.longest }

// messageBytes returns the length of a message with a payload of n bytes.
func messageBytes(n int) int {
	return (n + mailboxHead + mailboxWord + mailboxLine - 1) &^ (mailboxLine - 1)
}

// New makes mailboxes of a communicator for messages of up to longest bytes, FirstMailboxBytes or
// MailboxBytes. Their memory is allocated on first use. The messages that set them up have the given context
// and tag.
func (mc *MailboxCalls) New(context uint32, tag int, ranks []int32, rank, size, longest int,
) *Mailboxes {
	e := mc.e
	slot, depth := messageBytes(longest), mailboxDepth
	if size > mailboxFew {
		depth = mailboxDepthMany
	}
	return &Mailboxes{e: e, context: context, tag: tag, ranks: ranks, rank: rank, size: size,
		longest: longest, depth: depth, slot: slot, area: mailboxLine + depth*slot,
		fetch: newLineFetch(size)}
}

func (m *Mailboxes) worldRank(rank int) int {
	if m.ranks == nil {
		return rank
	}
	return int(m.ranks[rank])
}

func wordAt(mem []byte, end int) *uint64 {
	_ = mem[end-mailboxWord : end]
	return (*uint64)(unsafe.Pointer(&mem[end-mailboxWord]))
}

// slotEnd returns where the slot of an exchange ends in a sender's area.
func (m *Mailboxes) slotEnd(exchange uint64) int {
	return mailboxLine + int(exchange&uint64(m.depth-1)+1)*m.slot
}

// mailboxFlag returns the flag of a message.
func mailboxFlag(exchange uint64, tag int) uint64 {
	return uint64(uint32(tag))<<32 | uint64(mailboxNumber(exchange))
}

const mailboxNumberEnd = 1 << 31

// mailboxNumber returns the number of an exchange in a flag: its low 31 bits, and one that a slot which was
// never written does not have.
func mailboxNumber(exchange uint64) uint32 { return uint32(exchange) | mailboxNumberEnd }

// mailboxFlagsKept is the distance between exchanges, a quarter of that at which the numbers in flags repeat,
// after which a rank clears old flags: a slot may not be written for long.
const mailboxFlagsKept = mailboxNumberEnd / 4

// clearOldFlagsLocked clears the flags of exchanges long ago, unless it has done so recently. A peer may be
// writing its next message into such a slot.
func (m *Mailboxes) clearOldFlagsLocked() {
	m.e.mu.assertHeld()
	if m.exchange-m.cleared <= mailboxFlagsKept {
		return
	}
	m.cleared = m.exchange
	for rank := range m.peers {
		b := &m.peers[rank]
		if b.in == nil {
			continue
		}
		for slot := range uint64(m.depth) {
			word := wordAt(b.in, m.slotEnd(slot))
			flag := atomic.LoadUint64(word)
			// The messages of the next exchanges may have arrived, and those of the current call are in use.
			age := uint32(m.exchange) - uint32(flag)
			if (age+mailboxFlagsKept)%mailboxNumberEnd > 2*mailboxFlagsKept {
				atomic.CompareAndSwapUint64(word, flag, 0)
			}
		}
	}
}

// The tag of a message in a mailbox has fewer bits of the call's number, since the flag has the exchange's,
// and more of its signature, since there is no length to tell calls with other arguments apart.
const mailboxNumberBits = 7

func mailboxTag(c *Collective) int {
	const low = 1<<(callBits+mailboxNumberBits) - 1
	return c.Tag&low | int(c.Signature>>signatureBits<<(callBits+mailboxNumberBits))
}

// mailboxSignatureBits is the number of signature bits in the tag of a message in a mailbox.
const mailboxSignatureBits = 32 - operationBits - mailboxNumberBits

// mailboxSignature returns the signature bits in the tag of a message in a mailbox.
func mailboxSignature(tag int) uint32 {
	const high = callBits + mailboxNumberBits
	return uint32(tag)&(1<<signatureBits-1) | uint32(tag)>>high<<signatureBits
}

// sameMailboxCall reports whether a message in a mailbox may belong to the collective's call.
func (c *Collective) sameMailboxCall(tag int) bool {
	return (tag^c.Tag)>>callBits&(1<<mailboxNumberBits-1) == 0
}

// Rounds is a number of rounds for each access that ranks may have.
type Rounds [accesses]int

// Skip counts the rounds through mailboxes of a call that this rank does not execute. It may not be known yet
// which access the ranks have.
func (m *Mailboxes) Skip(rounds Rounds) {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	for access, n := range rounds {
		m.skipped[access] += uint64(n)
	}
	m.countSkippedLocked()
	m.e.MailboxCalls.oweLocked(m)
}

// countSkippedLocked counts the skipped rounds as exchanges, once the mailboxes are set up.
func (m *Mailboxes) countSkippedLocked() {
	m.e.mu.assertHeld()
	if m.state != mailboxesReady {
		return
	}
	m.exchange += m.skipped[m.access]
	m.done = m.exchange
	m.skipped = [accesses]uint64{}
	m.clearOldFlagsLocked()
}

// putLocked writes a message of the current exchange into its slot at a rank, if that is free and the
// connection has room.
func (m *Mailboxes) putLocked(b *mailbox, tag int, payload []byte) bool {
	m.e.mu.assertHeld()
	if b.acked+uint64(m.depth) < m.exchange && !m.lookAckedLocked(b) || b.peer.state != peerOpen {
		return false
	}
	head, began := m.done, int64(0)
	long := len(payload) >= takenOverMin
	if long {
		head |= b.writes.asks()
		if b.peer.copies.sampled {
			began = b.writes.begin()
		}
	}
	binary.LittleEndian.PutUint64(m.head[:], head)
	n := messageBytes(len(payload))
	if !m.writeLocked(b, m.slotEnd(m.exchange)-n, n, payload, m.head[:], mailboxFlag(m.exchange, tag)) {
		return false
	}
	if long {
		m.wroteLongLocked(b, began, len(payload))
	}
	b.ackSent, b.ackByMessage = m.done, true
	return true
}

// writeLocked makes an inline Write to a rank: first and second at the beginning, and a word at the end.
// WriteInline reaches only the region that this queue pair wrote last. If that is another one, a posted Write
// that repeats the last acknowledgement selects this one first.
func (m *Mailboxes) writeLocked(b *mailbox, offset, n int, first, second []byte, tail uint64) bool {
	m.e.mu.assertHeld()
	qp := b.peer.ch.QP()
	to := &m.segment[0]
	to.Key, to.Offset, to.Length = b.key, b.mine+uint64(offset), uint64(n)
	if qp.WriteInline(to, first, second, tail) {
		return true
	}
	source := m.areaAt(m.size - 1)
	binary.LittleEndian.PutUint64(m.memory.Bytes()[source:], b.ackSent)
	to.Offset, to.Length = b.mine+mailboxLine-mailboxWord, mailboxWord
	if m.post.Op = transport.OpWrite; m.post.Local == nil {
		m.post.Local = []transport.SGE{{MR: m.memory, Offset: source, Length: mailboxWord}}
	}
	m.post.Flags, m.post.Remote = transport.FlagInline, m.segment[:]
	if qp.PostSend(&m.post) != nil {
		return false
	}
	to.Offset, to.Length = b.mine+uint64(offset), uint64(n)
	return qp.WriteInline(to, first, second, tail)
}

// lookAckedLocked looks for an acknowledgement of the exchange that last used the current exchange's slot.
func (m *Mailboxes) lookAckedLocked(b *mailbox) bool {
	m.e.mu.assertHeld()
	b.acked = max(b.acked, atomic.LoadUint64(wordAt(b.in, mailboxLine)))
	return b.acked+uint64(m.depth) >= m.exchange
}

// A rank's memory has an area for each other rank, in rank order, and a cache line that is the source of
// posted acknowledgements.
func (m *Mailboxes) bytes() int { return m.areaAt(m.size-1) + mailboxLine }

func (m *Mailboxes) areaAt(index int) int { return index * m.area }

// areaOf returns where the area of a sender begins in the memory of owner.
func (m *Mailboxes) areaOf(owner, sender int) int {
	if sender > owner {
		sender--
	}
	return m.areaAt(sender)
}

// flagOf returns the flag of the message of the current exchange from a rank.
func (m *Mailboxes) flagOf(rank int) *uint64 { return wordAt(m.peers[rank].in, m.slotEnd(m.exchange)) }

// getLocked returns the flag of the message of the current exchange from a rank, and its payload if that has
// n bytes; false if it has not arrived.
func (m *Mailboxes) getLocked(b *mailbox, n int) (flag uint64, payload []byte, ok bool) {
	m.e.mu.assertHeld()
	end := m.slotEnd(m.exchange)
	flag = atomic.LoadUint64(wordAt(b.in, end))
	if uint32(flag) != mailboxNumber(m.exchange) {
		return 0, nil, false
	}
	at := end - messageBytes(n)
	return flag, b.in[at : at+n : at+n], true
}

// receivedLocked takes the acknowledgement that follows a message's payload of n bytes, and reports whether
// this rank is to take over the lines of the payload.
func (m *Mailboxes) receivedLocked(b *mailbox, n int) (takeover bool) {
	m.e.mu.assertHeld()
	head := binary.LittleEndian.Uint64(b.in[m.slotEnd(m.exchange)-messageBytes(n)+n:])
	b.acked = max(b.acked, head&^mailboxTakeover)
	return head&mailboxTakeover != 0
}

// acknowledgeLocked writes an acknowledgement to a rank when half of the slots are unacknowledged there, so
// that the rank rarely has to wait for one. If a message carried the last acknowledgement, it does so one
// exchange later: the next message, which acknowledges too, usually follows soon.
func (m *Mailboxes) acknowledgeLocked(b *mailbox) {
	m.e.mu.assertHeld()
	untold, late := m.done-b.ackSent, uint64(m.depth/2)
	if untold < late || untold == late && b.ackByMessage {
		return
	}
	if !m.tellLocked(b, m.done) {
		m.e.MailboxCalls.oweLocked(m)
	}
}

// tellLocked writes an acknowledgement.
func (m *Mailboxes) tellLocked(b *mailbox, done uint64) bool {
	m.e.mu.assertHeld()
	if b.peer.state != peerOpen {
		return true // nobody waits for it
	}
	if !m.writeLocked(b, mailboxLine-mailboxWord, mailboxWord, nil, nil, done) {
		return false
	}
	b.ackSent, b.ackWritten, b.ackByMessage = done, done, false
	return true
}

// oweLocked lets passes send the acknowledgements to all ranks, as this rank may make no further exchange.
func (mc *MailboxCalls) oweLocked(m *Mailboxes) {
	mc.e.mu.assertHeld()
	if !m.owing {
		m.owing = true
		mc.owing = append(mc.owing, m)
	}
}

// acknowledgeOwedLocked sends the owed acknowledgements and failure reports, as far as possible.
func (mc *MailboxCalls) acknowledgeOwedLocked() {
	mc.e.mu.assertHeld()
	list := mc.owing
	mc.owing = nil // a collective that ends in settleLocked calls this too
	kept := list[:0]
	for _, m := range list {
		m.settleLocked()
		m.owing = m.state < mailboxesReady || m.state == mailboxesReady && !m.tellAllLocked()
		if m.owing {
			kept = append(kept, m)
		}
	}
	clear(list[len(kept):])
	mc.owing = append(kept, mc.owing...)
}

func (m *Mailboxes) tellAllLocked() bool {
	m.e.mu.assertHeld()
	all := true
	for rank := range m.peers {
		b := &m.peers[rank]
		if rank == m.rank {
			continue
		}
		if b.ackSent < m.done {
			all = m.tellLocked(b, m.done) && all
		}
		all = m.sendReportLocked(b) && all
	}
	return all
}

// mailboxesFreed is the last acknowledgement of a rank, which writes nothing after it: the rank is done with
// every exchange. It is far from the largest number, so that a depth can be added to it.
const mailboxesFreed = 1 << 63

// Release ends the use of mailboxes by this rank. Their memory is freed when their set-up is complete and the
// other ranks have released them too. If the set-up fails, the memory stays until the engine ends.
func (mc *MailboxCalls) Release(m *Mailboxes) {
	e := mc.e
	e.mu.Lock()
	defer e.mu.Unlock()
	for buf := range m.regions {
		m.concealLocked(buf)
	}
	switch m.released = true; m.state {
	case mailboxesAgreeing, mailboxesTesting, mailboxesMeasuring:
		mc.unfinished = append(mc.unfinished, m)
		mc.oweLocked(m) // passes complete the set-up
	case mailboxesReady:
		mc.retireLocked(m)
	}
	mc.freeReleasedLocked()
}

// retireLocked leaves released mailboxes to passes, which free them.
func (mc *MailboxCalls) retireLocked(m *Mailboxes) {
	mc.e.mu.assertHeld()
	m.state = mailboxesAbsent
	mc.released = append(mc.released, m)
}

// freeReleasedLocked frees the memory of released mailboxes that no rank writes any more.
func (mc *MailboxCalls) freeReleasedLocked() {
	mc.e.mu.assertHeld()
	kept := mc.released[:0]
	for _, m := range mc.released {
		if !m.sayFreedLocked() {
			kept = append(kept, m)
		} else if err := mc.buffers.free(m.memory); err != nil {
			mc.e.failLocked(err)
		}
	}
	clear(mc.released[len(kept):])
	mc.released = kept
}

// sayFreedLocked tells the remaining ranks that this one has released the mailboxes, and reports whether all
// ranks have.
func (m *Mailboxes) sayFreedLocked() bool {
	m.e.mu.assertHeld()
	all := true
	for rank := range m.peers {
		b := &m.peers[rank]
		if rank == m.rank || b.peer.state != peerOpen {
			continue
		}
		if b.ackSent != mailboxesFreed {
			m.tellLocked(b, mailboxesFreed)
		}
		all = all && b.ackSent == mailboxesFreed &&
			atomic.LoadUint64(wordAt(b.in, mailboxLine)) == mailboxesFreed
	}
	return all
}
