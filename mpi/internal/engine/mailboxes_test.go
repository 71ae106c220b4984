package engine

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/transport"
)

// TestMailboxes_AnyInterleaving: random collectives on several communicators at once, whose ranks come early
// or late, of lengths that go through mailboxes, by messages and by pulling. The numbers of the exchanges of two
// communicators pass 31 and 32 bits.
func TestMailboxes_AnyInterleaving(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			devices := make([]transport.Device, n)
			for i := range devices {
				d, err := sharedMemory()
				require.NoError(t, err)
				devices[i] = d
			}
			calls := often(400)
			if n > 5 {
				calls /= n
			}
			ranks(t, world(t, devices), func(e *Engine) error {
				var wg sync.WaitGroup
				errs := make([]error, 3)
				for k := range errs {
					wg.Go(func() { errs[k] = randomCollectives(e, n, k, calls) })
				}
				wg.Wait()
				return errors.Join(errs...)
			})
		})
	}
}

// randomCollectives has one rank carry out the collectives of a communicator, which all ranks draw alike.
func randomCollectives(e *Engine, n, communicator, calls int) error {
	context := uint32(100 + 2*communicator)
	m := e.MailboxCalls.New(context, CollectiveTag(false, 0, OperationMailboxes, 0), nil, e.rank, n,
		MailboxBytes(n))
	if ready, err := m.Prepare(nil); err != nil || !ready {
		return fmt.Errorf("no mailboxes: %v", err)
	}
	if communicator < 2 {
		m.passNumbers(1<<(31+communicator) - 4) // fewer than slots, so that one was never written
	}
	alike, own := rand.New(rand.NewPCG(1, uint64(context))), rand.New(rand.NewPCG(2, uint64(e.rank)))
	for call := range calls {
		if err := randomCollective(e, m, alike, call); err != nil {
			return fmt.Errorf("communicator %d, call %d: %w", communicator, call, err)
		}
		switch own.IntN(20) {
		case 0:
			time.Sleep(time.Duration(own.IntN(200)) * time.Microsecond)
		case 1, 2, 3:
			runtime.Gosched()
		}
	}
	if end := uint64(1) << (31 + communicator); communicator < 2 && m.exchange <= end {
		return fmt.Errorf("communicator %d: the numbers end at %d", communicator, m.exchange)
	}
	e.MailboxCalls.Release(m)
	return nil
}

// passNumbers goes on as if so many calls had been made. All ranks do that.
func (m *Mailboxes) passNumbers(calls uint64) {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	m.exchange, m.done = calls, calls
	for i := range m.peers {
		b := &m.peers[i]
		b.acked, b.ackSent, b.ackWritten = calls, calls, calls
	}
}

// TestMailboxes_OldMessagesAreNotTaken: a slot that was last written when the numbers in flags were the same
// has no message, whether this rank has executed, skipped or given up the calls since. Messages of the next
// exchanges and of the latest stay.
func TestMailboxes_OldMessagesAreNotTaken(t *testing.T) {
	const pass = 1 << 28 // exchanges
	for name, goOn := range map[string]func(m *Mailboxes) error{
		"executed": func(m *Mailboxes) error {
			m.exchange += pass - 1
			return m.e.MailboxCalls.exchange(&Collective{}, m)
		},
		"skipped": func(m *Mailboxes) error {
			var rounds Rounds
			rounds[m.access] = pass
			m.Skip(rounds)
			return nil
		},
		"given up": func(m *Mailboxes) error {
			m.e.MailboxCalls.passOver(&Collective{round: -pass}, m)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			withMailboxes(t, func(e *Engine, m *Mailboxes) error {
				b := &m.peers[1-e.rank]
				arrives := func(exchange uint64) {
					atomic.StoreUint64(wordAt(b.in, m.slotEnd(exchange)), mailboxFlag(exchange, 0))
				}
				for i := range uint64(m.depth) {
					arrives(m.exchange + 1 + i)
				}
				for range mailboxNumberEnd / pass {
					if err := goOn(m); err != nil {
						return err
					}
				}
				e.mu.Lock()
				defer e.mu.Unlock()
				now := m.exchange
				taken := func(exchange uint64) bool {
					m.exchange = exchange
					_, _, ok := m.getLocked(b, 0)
					return ok
				}
				for i := range uint64(m.depth) {
					if taken(now + 1 + i) {
						return fmt.Errorf("a message of exchange %d is taken in exchange %d", 1+i, now+1+i)
					}
				}
				for i := range uint64(m.depth) {
					arrives(now - 1 + i)
				}
				m.exchange, m.cleared = now, 0
				m.clearOldFlagsLocked()
				for i := range uint64(m.depth) {
					if !taken(now - 1 + i) {
						return fmt.Errorf("the message of exchange %d is cleared in exchange %d", now-1+i, now)
					}
				}
				return nil
			})
		})
	}
}

func randomCollective(e *Engine, m *Mailboxes, alike *rand.Rand, number int) error {
	operations := []coll.Operation{coll.OpBarrier, coll.OpBcast, coll.OpReduce, coll.OpAllreduce,
		coll.OpAllgather, coll.OpAlltoall}
	lengths := []int{1, 2, 5, 6, 7, 8, 9, 100, 255, 256, 257, MailboxBytes(m.size) / wordBytes,
		MailboxBytes(m.size)/wordBytes + 1, 3000, 5*MailboxBytes(m.size)/wordBytes + 3}
	operation := operations[alike.IntN(len(operations))]
	count := lengths[alike.IntN(len(lengths))]
	root := alike.IntN(m.size)
	switch operation {
	case coll.OpBarrier:
		count = 0
	case coll.OpBcast, coll.OpReduce:
	default:
		root = 0
	}
	return checkedCall(e, m, operation, count, root, number, alike.IntN(2) == 0)
}

// checkedCall carries out a collective of so many words, with quick as where bytes move quickly through mapped
// memory, and checks its result.
func checkedCall(e *Engine, m *Mailboxes, operation coll.Operation, count, root, number int, quick bool) error {
	call := coll.Call{Operation: operation, Rank: m.rank, Size: m.size, Root: root, Count: count,
		ElemSize: wordBytes, Commutative: true, Mailbox: MailboxBytes(m.size), Pull: m.Access() >= CanPull}
	if quick { // in pieces, for two ranks if each has a processor, for more if they share some
		if call.Pull {
			call.Quick = coll.QuickAlways
		}
		if m.size > 2 {
			call.Processors = 2
		}
	}
	value := func(rank, i int) int64 { return int64(number)*1_000_003 + int64(rank)*1009 + int64(i) }
	in, out := make([]int64, m.size*call.Count), make([]int64, m.size*call.Count)
	for i := range in {
		in[i] = value(m.rank, i)
	}
	if call.Operation == coll.OpBcast && m.rank == root {
		copy(out, in)
	}
	c := &Collective{Call: call, Context: m.context, Input: bytesOf(in), Output: bytesOf(out), Op: sumOfWords,
		Tag:       CollectiveTag(false, uint32(number+1), call.Operation, call.Signature()),
		Signature: call.Signature(), WatchedMailboxes: m}
	c.Call.Build(&c.Schedule)
	run := e.Collectives.Run
	if c.Schedule.Mailboxes {
		c.WatchedMailboxes, run = nil, func(c *Collective) error { return e.MailboxCalls.Run(c, m) }
	}
	if err := run(c); err != nil {
		return err
	}
	for i := range out {
		want, block := out[i], i/max(call.Count, 1)
		switch at := i - block*call.Count; {
		case call.Operation == coll.OpAllgather:
			want = value(block, at)
		case call.Operation == coll.OpAlltoall:
			want = value(block, m.rank*call.Count+at)
		case block > 0: // not used
		case call.Operation == coll.OpBcast:
			want = value(root, at)
		case call.Operation == coll.OpAllreduce || call.Operation == coll.OpReduce && m.rank == root:
			want = 0
			for rank := range m.size {
				want += value(rank, at)
			}
		}
		if out[i] != want {
			return fmt.Errorf("%v of %d, root %d: element %d is %d, want %d", call.Operation, call.Count, root,
				i, out[i], want)
		}
	}
	return nil
}

func bytesOf(words []int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), wordBytes*len(words))
}

func wordsOf(b []byte) []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/wordBytes)
}

var sumOfWords = &Operator{Commutative: true, Predefined: true, Associative: true, Label: "Sum",
	Apply: func(inout, in []byte) {
		addend := wordsOf(in)
		for i := range wordsOf(inout) {
			wordsOf(inout)[i] += addend[i]
		}
	}}

// withMailboxes runs a body at each of two ranks that have larger mailboxes over shared memory.
func withMailboxes(t *testing.T, body func(e *Engine, m *Mailboxes) error) {
	t.Helper()
	devices := make([]transport.Device, 2)
	for i := range devices {
		d, err := sharedMemory()
		require.NoError(t, err)
		devices[i] = d
	}
	ranks(t, world(t, devices), func(e *Engine) error {
		m := e.MailboxCalls.New(100, CollectiveTag(false, 0, OperationMailboxes, 0), nil, e.rank, 2,
			MailboxBytes(2))
		if ready, err := m.Prepare(nil); err != nil || !ready {
			return fmt.Errorf("no mailboxes: %v", err)
		}
		return body(e, m)
	})
}

// A rank that yields in a collective says what it waits for when it is asked, although it would yield for ever.
func TestMailboxes_SleepToDescribe(t *testing.T) {
	yields := make(chan *Engine, 1)
	withMailboxes(t, func(e *Engine, m *Mailboxes) error {
		if e.rank == 0 {
			e.mu.Lock()
			e.waiting.maxYields = math.MaxInt
			e.mu.Unlock()
			yields <- e
			return checkedCall(e, m, coll.OpBarrier, 0, 0, 1, false)
		}
		other, late := <-yields, time.Now().Add(time.Minute)
		for len(other.hub.Describe().Waits) == 0 {
			if time.Now().After(late) {
				other.mu.Lock()
				other.waiting.maxYields = 1
				other.mu.Unlock()
				return errors.Join(errors.New("it does not say that it waits"),
					checkedCall(e, m, coll.OpBarrier, 0, 0, 1, false))
			}
		}
		return checkedCall(e, m, coll.OpBarrier, 0, 0, 1, false)
	})
}

// TestMailboxes_WhoAnswersAcknowledgesByThat: a rank that receives and sends in turn writes no acknowledgement
// beside its messages; one that only receives does, before its sender has to wait.
func TestMailboxes_WhoAnswersAcknowledgesByThat(t *testing.T) {
	withMailboxes(t, func(e *Engine, m *Mailboxes) error {
		number := 0
		call := func(o coll.Operation) error {
			number++
			c := &Collective{Context: m.context, Output: make([]byte, 8), Call: coll.Call{Operation: o,
				Rank: e.rank, Size: 2, ElemSize: 8, Mailbox: m.Bytes()}}
			if o == coll.OpBcast {
				c.Call.Count = 1
			}
			c.Signature = c.Call.Signature()
			c.Tag = CollectiveTag(false, uint32(number), o, c.Signature)
			c.Call.Build(&c.Schedule)
			return e.MailboxCalls.Run(c, m)
		}
		b := &m.peers[1-e.rank]
		var wrong []error // which keep no rank from the calls to come, that the other waits in
		// A call that is left to passes acknowledges what it has read beforehand: here none is.
		e.mu.Lock()
		e.waiting.maxYields = math.MaxInt
		e.mu.Unlock()
		for range 400 {
			if err := errors.Join(call(coll.OpBcast), call(coll.OpBarrier)); err != nil {
				return err
			}
		}
		if b.ackWritten > 2 { // the first calls have no message of this rank before them
			wrong = append(wrong, fmt.Errorf("an acknowledgement by itself tells of call %d", b.ackWritten))
		}
		for range 21 {
			if err := call(coll.OpBcast); err != nil {
				return err
			}
			if late := m.done - b.ackSent; e.rank == 1 && late >= uint64(m.depth-1) {
				wrong = append(wrong, fmt.Errorf("the sender does not know of the latest %d calls", late))
			}
		}
		if e.rank == 1 && b.ackWritten+uint64(m.depth/2) <= m.done {
			wrong = append(wrong, fmt.Errorf("after call %d, the acknowledgement tells of %d", m.done, b.ackWritten))
		}
		return errors.Join(wrong...)
	})
}

// TestPullStage_GrowsAndIsLentToOneCall: long calls have others read copies in mapped memory, as far as there
// is room; a call that finds the memory lent has its buffers read themselves.
func TestPullStage_GrowsAndIsLentToOneCall(t *testing.T) {
	devices := make([]transport.Device, 3)
	for i := range devices {
		d, err := sharedMemory()
		require.NoError(t, err)
		devices[i] = d
	}
	ranks(t, world(t, devices), func(e *Engine) error {
		m := e.MailboxCalls.New(100, CollectiveTag(false, 0, OperationMailboxes, 0), nil, e.rank, len(devices),
			MailboxBytes(len(devices)))
		if ready, err := m.Prepare(nil); err != nil || !ready || m.Access() == MailboxesOnly {
			return fmt.Errorf("no mailboxes that pull: %v", err)
		}
		stage := &e.MailboxCalls.stage
		number := 0
		for _, x := range []struct {
			o           coll.Operation
			words, want int // bytes of the stage afterwards
			taken       bool
		}{
			// Both buffers have room for a block of each rank.
			{coll.OpAllreduce, 4 << 10, 0, true},
			{coll.OpAllreduce, 4 << 10, 256 << 10, false},
			{coll.OpBcast, 8 << 10, 256 << 10, false}, // longer than pays
			{coll.OpAllreduce, 16 << 10, 1 << 20, false},
			{coll.OpAlltoall, 8 << 10, 1 << 20, false},
			{coll.OpAllgather, 2 << 10, 1 << 20, false},
			{coll.OpAllreduce, 256 << 10, 1 << 20, false}, // there is no room for that
			{coll.OpBcast, 64<<10 + 5, 1 << 20, false},    // in pieces, through the root's stage
		} {
			number++
			other := &Mailboxes{}
			if x.taken {
				stage.lent = other
			}
			if err := checkedCall(e, m, x.o, x.words, 0, number, false); err != nil {
				return err
			}
			if x.taken {
				if stage.lent != other || stage.memory != nil {
					return errors.New("a stage that is another call's is used")
				}
				stage.lent = nil
				continue
			}
			if x.words == 64<<10+5 && e.rank == 0 {
				x.want = 2 << 20
			}
			if got := len(stage.memory.Bytes()); got != x.want || stage.lent != nil ||
				m.staged[0] != nil || m.staged[1] != nil {
				return fmt.Errorf("%v of %d words: %d bytes of stage, want %d", x.o, x.words, got, x.want)
			}
		}
		return nil
	})
}

// TestMailboxes_MessagesLieApart: every length has its place in a slot, from a cache line on, and no two slots
// or senders share a line.
func TestMailboxes_MessagesLieApart(t *testing.T) {
	for size := 2; size <= MailboxRanks; size++ {
		m := (&Engine{}).MailboxCalls.New(0, 0, nil, size-1, size, MailboxBytes(size))
		require.GreaterOrEqual(t, MailboxBytes(size), 4<<10)
		require.Zero(t, m.area%mailboxLine)
		for owner := range size {
			next := 0
			for sender := range size {
				if sender != owner {
					require.Equal(t, next, m.areaOf(owner, sender))
					next += m.area
				}
			}
			require.Equal(t, next+mailboxLine, m.bytes())
		}
		for exchange := range uint64(m.depth) {
			end := m.slotEnd(exchange)
			require.Zero(t, end%mailboxLine)
			for n := range MailboxBytes(size) + 1 {
				bytes := messageBytes(n)
				if bytes%mailboxLine != 0 || bytes < n+mailboxHead+mailboxWord || bytes > m.slot {
					t.Fatalf("a payload of %d bytes takes %d of %d", n, bytes, m.slot)
				}
			}
			if exchange > 0 {
				require.Equal(t, m.slotEnd(exchange-1), end-m.slot)
			} else {
				require.Equal(t, mailboxLine, end-m.slot)
			}
			require.LessOrEqual(t, end, m.area)
		}
	}
}

// What the ranks' access to each other's memory is, is what all have in common. Rounds that were skipped before
// it was known count by it.
func TestMailboxes_AccessOfAllRanks(t *testing.T) {
	const slow = byte(levels)
	for _, x := range []struct {
		verdicts []byte
		want     Access
		call     uint64
	}{
		{[]byte{5, 5}, QuickMapped, 61},
		{[]byte{5, 1}, CanPull, 21},
		{[]byte{3, 4}, Quick32, 41},
		{[]byte{0, 5}, MailboxesOnly, 11},
		{[]byte{3 + slow, 4}, Quick32 + levels, 101},
		{[]byte{5, 3 + 2*slow, 4 + slow}, Quick32 + 2*levels, 161},
		{[]byte{200, 5}, QuickMapped + 2*levels, 181},
	} {
		m := &Mailboxes{e: &Engine{}, state: mailboxesMeasuring, peers: make([]mailbox, len(x.verdicts)),
			takingOver: true, setup: &Collective{over: true, Output: x.verdicts}}
		m.e.MailboxCalls.e = m.e
		var ten, one Rounds
		for i := range accesses {
			ten[i], one[i] = 10*int(i+1), 1
		}
		m.Skip(ten)
		m.Skip(one)
		m.e.mu.Lock()
		m.settleLocked()
		m.e.mu.Unlock()
		require.Equal(t, x.want, m.access)
		require.Equal(t, x.call, m.exchange)
	}
}

// TestMailboxes_MeasuresTwice: where copies into lines that a peer has read take long, all ranks measure again
// what they take if the peers take over the lines, and then no more.
func TestMailboxes_MeasuresTwice(t *testing.T) {
	for _, verdicts := range [][]byte{{5, 5}, {5, 1 + byte(levels)}} {
		m := &Mailboxes{e: &Engine{}, longest: MailboxBytes(2), setup: &Collective{Output: verdicts}}
		m.e.mu.Lock()
		again := verdicts[1] >= byte(levels)
		require.Equal(t, again, m.afterVerdictsLocked(mailboxesMeasuring) != nil)
		require.Equal(t, again, m.takingOver)
		require.NotNil(t, m.afterVerdictsLocked(mailboxesTesting))
		require.Nil(t, m.afterVerdictsLocked(mailboxesMeasuring))
		m.e.mu.Unlock()
	}
}

// TestMailboxes_AsksForTakeover: a sender whose copies into a mailbox take long asks, with its long messages
// alone, that the receiver takes over their lines, and knows when those of a slot have been.
func TestMailboxes_AsksForTakeover(t *testing.T) {
	const slow = 1 << 40 // ticks
	for _, n := range []int{takenOverMin - 1, takenOverMin, 3 * takenOverMin} {
		withMailboxes(t, func(e *Engine, m *Mailboxes) error {
			e.mu.Lock()
			defer e.mu.Unlock()
			b := &m.peers[1-e.rank]
			if sys.Ticks() == 0 {
				return nil // no copy is sampled
			}
			b.writes = mailboxWrites{}
			m.exchange++
			m.wroteLongLocked(b, 0, takenOverMin)
			for i := 0; b.writes.asks() == 0; i++ {
				if i > 100 {
					return errors.New("it never asks")
				}
				m.wroteLongLocked(b, sys.Ticks()-slow, takenOverMin)
			}
			if !m.putLocked(b, 1, make([]byte, n)) {
				return errors.New("no room")
			}
			if asked := m.head[7]&0x80 != 0; asked != (n >= takenOverMin) {
				return fmt.Errorf("a message of %d bytes asks: %v", n, asked)
			}
			if taken := b.writes.taken[m.exchange&uint64(m.depth-1)]; n > takenOverMin && taken != n {
				return fmt.Errorf("%d bytes are taken over", taken)
			}
			return nil
		})
	}
}

// TestMailboxes_Takeover: long messages arrive unchanged although their receiver takes over the lines.
func TestMailboxes_Takeover(t *testing.T) {
	withMailboxes(t, func(e *Engine, m *Mailboxes) error {
		e.mu.Lock()
		m.peers[1-e.rank].writes.takeover.Measured(time.Second, 1)
		e.mu.Unlock()
		for i := range often(100) {
			n := 1 + 1<<(i%12)
			c := &Collective{Context: m.context, Output: make([]byte, 8*n), Call: coll.Call{
				Operation: coll.OpBcast, Rank: e.rank, Size: 2, Root: i % 2, Count: n, ElemSize: 8,
				Mailbox: m.Bytes()}}
			if e.rank == c.Call.Root {
				pattern(c.Output, c.Call.Root, i)
			}
			c.Signature = c.Call.Signature()
			c.Tag = CollectiveTag(false, uint32(i+1), coll.OpBcast, c.Signature)
			c.Call.Build(&c.Schedule)
			if err := e.MailboxCalls.Run(c, m); err != nil {
				return err
			}
			if err := checkPattern(c.Output, c.Call.Root, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// The length up to which messages move quickly is one of few, as those of all ranks need be the same.
func TestAccess_Quick(t *testing.T) {
	costs := func(mappedKiB time.Duration) copycost.Costs {
		return copycost.Costs{Call: 950, CallKiB: 65, MappedKiB: mappedKiB}
	}
	for mapped, want := range map[time.Duration]int{35: coll.QuickAlways, 60: 64 << 10, 100: 32 << 10,
		140: 16 << 10, 200: 0} {
		require.Equal(t, want, accessBy(costs(mapped), MailboxBytes(2)).Quick(), mapped)
	}
	require.Zero(t, MailboxesOnly.Quick())
}

// Mailboxes for long messages sample how fast bytes move through mapped memory, for messages too.
func TestMailboxes_SampleMappedMemory(t *testing.T) {
	withMailboxes(t, func(e *Engine, m *Mailboxes) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		b := &m.peers[1-e.rank]
		c := &b.peer.copies
		*c = peerCopies{mapped: time.Second, awaited: c.awaited}
		m.sampleReadsLocked(b)
		m.measureLocked()
		if e.hub.clock.ticks != 0 && m.access >= CanPull && (c.mapped <= 0 || c.mapped >= time.Second) {
			return fmt.Errorf("1 KiB takes %v", c.mapped)
		}
		if c.mapped < time.Second && (c.in.KiB() == 0 || c.out.KiB() == 0) {
			return fmt.Errorf("of copies in %d, and of copies out %d ticks", c.in.KiB(), c.out.KiB())
		}
		return nil
	})
}

// A rank that gets no memory for its mailboxes has none, whatever the others offer.
func TestMailboxes_RankWithoutMemory(t *testing.T) {
	offers := make([]byte, 2*mailboxOffer)
	offers[0] = 1
	require.False(t, (&Mailboxes{rank: 1, size: 2, area: mailboxLine}).acceptLocked(offers))
}

// A rank that cannot begin to exchange verdicts gives back the memory that the others were to read for them.
func TestMailboxes_NoVerdictsAfterARevoke(t *testing.T) {
	w, all := settingUp(t, MailboxBytes(2))
	m := all[0]
	require.NotNil(t, m.test)
	require.NoError(t, w[0].Recovery.Revoke(contextid.Communicator(m.context)))
	w[0].mu.Lock()
	defer w[0].mu.Unlock()
	m.settleLocked()
	require.Equal(t, mailboxesAbsent, m.state)
	require.Nil(t, m.test, "its test memory is left")
}

// settingUp is two ranks that have exchanged their offers, and do not know it yet.
func settingUp(t *testing.T, longest int) (w []*Engine, all []*Mailboxes) {
	t.Helper()
	var devices []transport.Device
	for range 2 {
		d, err := sharedMemory()
		require.NoError(t, err)
		devices = append(devices, d)
	}
	w = world(t, devices)
	connected(t, w)
	for _, e := range w {
		m := e.MailboxCalls.New(100, CollectiveTag(false, 0, OperationMailboxes, 0), nil, e.rank, len(w),
			longest)
		require.NoError(t, m.beginSetup())
		all = append(all, m)
	}
	drive(t, w, func() bool { return all[0].setup.over && all[1].setup.over })
	return w, all
}

// A rank that has all verdicts when it sends its own, as it settles what it owes, has mailboxes at once.
func TestMailboxes_VerdictsOfAllOthersFirst(t *testing.T) {
	w, all := settingUp(t, FirstMailboxBytes)
	w[1].mu.Lock()
	all[1].settleLocked()
	w[1].mu.Unlock()
	drive(t, w, func() bool { return unexpected(w[0]) == 1 })
	all[0].Skip(Rounds{})
	w[0].mu.Lock()
	defer w[0].mu.Unlock()
	w[0].MailboxCalls.acknowledgeOwedLocked()
	require.Equal(t, mailboxesReady, all[0].state)
	w[0].MailboxCalls.acknowledgeOwedLocked()
	require.Empty(t, w[0].MailboxCalls.owing)
}

// Mailboxes that are released during their set-up are freed after it.
func TestMailboxes_ReleaseDuringTheSetUp(t *testing.T) {
	for _, state := range []mailboxState{mailboxesAgreeing, mailboxesTesting, mailboxesMeasuring} {
		w, all := settingUp(t, MailboxBytes(2))
		for i, m := range all {
			w[i].mu.Lock()
			if state != mailboxesAgreeing {
				m.settleLocked()
			}
			w[i].mu.Unlock()
		}
		if state == mailboxesMeasuring {
			drive(t, w, func() bool { return all[0].setup.over && all[1].setup.over })
		}
		for i, m := range all {
			w[i].mu.Lock()
			if state == mailboxesMeasuring {
				m.settleLocked()
			}
			if i == 0 {
				require.Equal(t, state, m.state)
			}
			w[i].mu.Unlock()
			w[i].MailboxCalls.Release(m)
		}
		drive(t, w, func() bool { return w[0].Stats().Collective == 0 && w[1].Stats().Collective == 0 })
		for _, m := range all {
			require.Equal(t, mailboxesAbsent, m.state)
			require.Nil(t, m.test, "its test memory is left")
		}
	}
}

// A rank that has released the mailboxes is done with every exchange.
func TestMailboxes_ReleasedSlotsAreFree(t *testing.T) {
	m := &Mailboxes{e: &Engine{}, depth: mailboxDepthMany, exchange: 1000}
	b := &mailbox{in: make([]byte, mailboxLine)}
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	require.False(t, m.lookAckedLocked(b))
	*wordAt(b.in, mailboxLine) = mailboxesFreed
	require.True(t, m.lookAckedLocked(b))
}

// TestMailboxes_E10_WithinTheBudget: mailboxes count against a rank's budget for buffers until all ranks have
// released them. One rank whose budget is spent leaves all ranks without.
func TestMailboxes_E10_WithinTheBudget(t *testing.T) {
	const n = 2
	for _, spent := range []bool{false, true} {
		t.Run(fmt.Sprintf("spent=%t", spent), func(t *testing.T) {
			devices := make([]transport.Device, n)
			for i := range devices {
				d, err := sharedMemory()
				require.NoError(t, err)
				devices[i] = d
			}
			engines := world(t, devices)
			bytes := (&Engine{}).MailboxCalls.New(0, 0, nil, 0, n, MailboxBytes(n)).bytes()
			for i, e := range engines {
				e.MailboxCalls.buffers.budget = channel.NewBudget(bytes)
				if spent && i == 0 {
					require.True(t, e.MailboxCalls.buffers.budget.Reserve(1))
				}
			}
			ranks(t, engines, func(e *Engine) error {
				m := e.MailboxCalls.New(100, CollectiveTag(false, 0, OperationMailboxes, 0), nil, e.rank, n,
					MailboxBytes(n))
				ready, err := m.Prepare(nil)
				if err != nil || ready == spent {
					return fmt.Errorf("ready: %t, %v", ready, err)
				}
				if got := e.Stats().Collective; ready && got != bytes || !ready && got != 0 {
					return fmt.Errorf("%d bytes are counted, of %d", got, bytes)
				}
				e.MailboxCalls.Release(m)
				e.waiting.waitUntil(0, nil, func() bool {
					e.MailboxCalls.freeReleasedLocked()
					return e.MailboxCalls.buffers.bytes == 0
				})
				if spent && e.rank == 0 {
					return nil
				}
				if !e.MailboxCalls.buffers.budget.Reserve(bytes) {
					return errors.New("the budget is still spent")
				}
				return nil
			})
		})
	}
}
