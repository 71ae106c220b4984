package channel

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

var threePhases = []int{640, 16384, 131072}

// next is what B finds.
func (d *testPair) next(t testing.TB) error {
	t.Helper()
	d.drive(t)
	_, _, ok, err := d.b.Next()
	require.False(t, ok)
	return err
}

// TestEnlarge_E6_ImpossibleRequests: a request that makes no sense ends the channel with an error that
// names it.
func TestEnlarge_E6_ImpossibleRequests(t *testing.T) {
	for name, c := range map[string]struct {
		kind Kind
		body func(q resizeRequest) []byte
	}{
		"ENLARGE to the present phase": {enlarge,
			func(q resizeRequest) []byte { q.phase = 1; return q.bytes() }},
		"ENLARGE to a smaller phase": {enlarge,
			func(q resizeRequest) []byte { q.phase = 0; return q.bytes() }},
		"ENLARGE beyond the phases": {enlarge,
			func(q resizeRequest) []byte { q.phase = 3; return q.bytes() }},
		"ENLARGE to phase 2^32-1": {enlarge,
			func(q resizeRequest) []byte { q.phase = math.MaxUint32; return q.bytes() }},
		"ENLARGE without a generation": {enlarge,
			func(q resizeRequest) []byte { q.generation = 0; return q.bytes() }},
		"ENLARGE of no bytes": {enlarge, func(q resizeRequest) []byte { return nil }},
		"ENLARGE of too few bytes": {enlarge,
			func(q resizeRequest) []byte { return q.bytes()[:requestLen-1] }},
		"ENLARGE of too many bytes": {enlarge, func(q resizeRequest) []byte {
			return append(q.bytes(),
				0)
		}},
		"ENLARGE of a slot's bytes": {enlarge, func(q resizeRequest) []byte {
			return append(q.bytes(),
				make([]byte, 500)...)
		}},
		"SHRINK to the present phase": {shrink,
			func(q resizeRequest) []byte { q.phase = 1; return q.bytes() }},
		"SHRINK to a larger phase": {shrink,
			func(q resizeRequest) []byte { q.phase = 2; return q.bytes() }},
		"SHRINK without a generation": {shrink, func(q resizeRequest) []byte {
			q.phase, q.generation = 0,
				0
			return q.bytes()
		}},
		"CREDIT with a body":  {credit, func(q resizeRequest) []byte { return []byte{1} }},
		"a kind that is none": {kinds, func(q resizeRequest) []byte { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestPair(t, Config{Phases: threePhases, Budget: NewBudget(1 << 20)})
			d.sendThrough(t, d.a, d.b, element(1, 1000))
			require.Equal(t, 1, d.a.Phase())
			sendMalformed(t, d.a, c.kind, c.body(validRequest(d.a, 2)))
			requireViolation(t, d.b, d.next(t))
		})
	}
}

// TestEnlarge_E6_InvalidReplySlots: where the reply shall go is checked when it goes there: it ends
// the connection of the one who asked so, and writes nowhere.
func TestEnlarge_E6_InvalidReplySlots(t *testing.T) {
	for name, spoil := range map[string]func(a *Channel, q *resizeRequest){
		"no such key":                   func(_ *Channel, q *resizeRequest) { q.key = 0xdead },
		"the mirror, not to be written": func(a *Channel, q *resizeRequest) { q.key = a.send.mirror.Key() },
		"beyond the region":             func(a *Channel, q *resizeRequest) { q.offset += lineSize + 1 },
		"an offset that goes over": func(a *Channel,
			q *resizeRequest) {
			q.offset = math.MaxUint64 - replyLen + 1
		},
		"an offset that goes over by 63": func(a *Channel, q *resizeRequest) { q.offset = math.MaxUint64 },
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestPair(t, Config{Phases: threePhases})
			q := validRequest(d.a, 1)
			spoil(d.a, &q)
			sendMalformed(t, d.a, enlarge, q.bytes())
			d.drive(t)
			_, _, ok, err := d.b.Next()
			require.False(t, ok)
			require.NoError(t, err)
			require.ErrorIs(t, d.Drive(), transport.ErrAccess)
			require.NoError(t, d.b.Fail(errCut))
			require.Zero(t, d.B.Regions())
		})
	}
}

// TestEnlarge_E7_ImpossibleReplies: a reply whose checksum is right and that makes no sense ends the
// channel.
func TestEnlarge_E7_ImpossibleReplies(t *testing.T) {
	put32 := binary.LittleEndian.PutUint32
	put64 := binary.LittleEndian.PutUint64
	for name, spoil := range map[string]func(b []byte){
		"for another phase": func(b []byte) { put32(b[12:], 131072); put32(b[16:], 16384); b[9] = 2 },
		"for the present phase": func(b []byte) {
			s := geometry(threePhases, 0)
			put32(b[12:], uint32(s.slot))
			put32(b[16:], uint32(s.lines))
			b[9] = 0
		},
		"beyond the phases":      func(b []byte) { b[9] = 3 },
		"for phase 255":          func(b []byte) { b[9] = 255 },
		"of another kind":        func(b []byte) { b[8] = 3 },
		"of kind 0":              func(b []byte) { b[8] = 0 },
		"with reserved bytes":    func(b []byte) { b[11] = 1 },
		"with reserved bytes, 2": func(b []byte) { b[55] = 1 },
		"another slot size":      func(b []byte) { put32(b[12:], 16385) },
		"a ring without lines":   func(b []byte) { put32(b[16:], 0) },
		"a ring of 2^32 lines":   func(b []byte) { put32(b[16:], math.MaxUint32) },
		"far away":               func(b []byte) { put64(b[32:], math.MaxUint64) },
		"without a generation":   func(b []byte) { put64(b[40:], 0) },
		"NACK with a ring":       func(b []byte) { b[8] = kindNACK },
		"NACK with a key":        func(b []byte) { b[8] = kindNACK; clear(b[12:20]); clear(b[32:48]) },
		"NACK of another phase": func(b []byte) {
			b[8], b[9] = kindNACK,
				2
			clear(b[12:20])
			clear(b[24:48])
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestPair(t, Config{Phases: threePhases})
			require.NoError(t, d.a.requestPhase(1))
			d.drive(t)
			require.Empty(t, receiveAll(t, d.b))
			d.drive(t)
			line := d.a.pending.replySlot.Bytes()[d.a.pending.replySlot.replyOffset():]
			_, tail := replyFlags(line, d.a.pending.generation)
			require.True(t, tail)
			spoil(line)
			put32(line[20:], checksum(line))
			_, err := d.a.Progress()
			requireViolation(t, d.a, err)
			require.Zero(t, d.A.Regions())
		})
	}
}

// TestEnlarge_E7_RetransmitWithoutRequest: "say it again" where there is nothing to say ends the channel;
// after a reply that has been taken the same reply goes once more, which harms nobody but the one who lies,
// whose memory it was.
func TestEnlarge_E7_RetransmitWithoutRequest(t *testing.T) {
	t.Run("before any question", func(t *testing.T) {
		d := newTestPair(t, Config{})
		requireViolation(t, d.b, d.b.RetransmitReply())
	})
	t.Run("before Open", func(t *testing.T) {
		d := newTestPair(t, Config{})
		c, err := New(d.A.PD(), Config{})
		require.NoError(t, err)
		requireViolation(t, c, c.RetransmitReply())
	})
	t.Run("after Close", func(t *testing.T) {
		d := newTestPair(t, Config{})
		d.sendThrough(t, d.a, d.b, element(1, 1000))
		require.NoError(t, d.b.Close())
		require.ErrorIs(t, d.b.RetransmitReply(), transport.ErrProtocol)
	})
	t.Run("after the answer", func(t *testing.T) {
		d := newTestPair(t, Config{})
		d.sendThrough(t, d.a, d.b, element(1, 1000))
		d.B.Depth = 0 // the send queue is full
		require.NoError(t, d.b.RetransmitReply())
		require.True(t, d.b.reply.unsent)
		require.ErrorIs(t, d.b.RetransmitReply(), transport.ErrProtocol, "asked for twice")
		d.B.Depth = 256
		_, err := d.b.Progress()
		require.NoError(t, err)
		require.False(t, d.b.reply.unsent)
		d.drive(t)
		requireViolation(t, d.a, d.a.ReplyResent())
	})
	t.Run("when the landing place is gone", func(t *testing.T) {
		d := newTestPair(t, Config{})
		d.sendThrough(t, d.a, d.b, element(1, 1000)) // landed after A's small ring
		d.sendThrough(t, d.b, d.a, element(1, 1000)) // which is gone now
		require.NoError(t, d.b.RetransmitReply())
		require.ErrorIs(t, d.Drive(), transport.ErrAccess)
	})
}

// TestEnlarge_E3_MessageAfterTheRequest: what a peer writes after its request into a ring that is granted
// is never read; into one that is gone it cannot write.
func TestEnlarge_E3_MessageAfterTheRequest(t *testing.T) {
	for _, early := range []bool{true, false} {
		d := newTestPair(t, Config{})
		sendMalformed(t, d.a, enlarge, validRequest(d.a, 1).bytes())
		if !early {
			d.drive(t)
			require.Empty(t, receiveAll(t, d.b))
		}
		sendMalformed(t, d.a, Eager, []byte("after"))
		if early {
			d.drive(t)
			require.Empty(t, receiveAll(t, d.b))
			d.drive(t)
			require.Empty(t, receiveAll(t, d.b))
		} else {
			require.ErrorIs(t, d.Drive(), transport.ErrAccess)
		}
		require.Equal(t, 1, d.b.recv.buffer.phase)
	}
}

// TestEnlarge_E7_TwoRequestsAtOnce: the reply to the first is forgotten for the second; nothing else
// happens.
func TestEnlarge_E7_TwoRequestsAtOnce(t *testing.T) {
	d := newUnevenPair(t, Config{Phases: threePhases}, Config{Phases: threePhases,
		Budget: NewBudget(16 << 10)})
	d.B.Depth = 0 // the refusal cannot go yet
	sendMalformed(t, d.a, enlarge, validRequest(d.a, 1).bytes())
	second := validRequest(d.a, 2)
	sendMalformed(t, d.a, enlarge, second.bytes())
	d.drive(t)
	require.Empty(t, receiveAll(t, d.b))
	require.Equal(t, second, d.b.reply.resizeRequest)
	require.EqualValues(t, 2, d.b.Stats().RequestsRefused)
	d.B.Depth = 256
	_, err := d.b.Progress()
	require.NoError(t, err)
	d.drive(t)
	require.Zero(t, d.b.recv.buffer.phase)
}

// TestEnlarge_E6_RequestWhileMuchIsUncredited: a peer that asks though it has CREDITs unread breaks the rule
// by which it would not starve. It is answered all the same.
func TestEnlarge_E6_RequestWhileMuchIsUncredited(t *testing.T) {
	d := newTestPair(t, Config{})
	for int(d.a.send.sent-d.a.send.credited) < d.a.send.mirror.threshold() {
		sendMalformed(t, d.a, Eager, element(1, 500))
	}
	require.NoError(t, d.a.requestPhase(1))
	require.Equal(t, requestNone, d.a.pending.state, "an honest one waits")
	sendMalformed(t, d.a, enlarge, validRequest(d.a, 1).bytes())
	d.drive(t)
	receiveAll(t, d.b)
	require.Equal(t, 1, d.b.recv.buffer.phase)
	_, err := d.b.Progress()
	require.NoError(t, err)
}

// TestEnlarge_E7_WritesIntoTheReplySlot: nothing that is there before a request counts, nor what comes with
// another generation.
func TestEnlarge_E7_WritesIntoTheReplySlot(t *testing.T) {
	d := newTestPair(t, Config{Phases: threePhases})
	line := d.a.recv.buffer.Bytes()[d.a.recv.buffer.replyOffset():]
	forge := func(generation uint64) {
		s := geometry(threePhases, 1)
		resizeReply{ack: true, shape: s, key: 4711, generation: 1}.put(line, generation)
	}
	forge(12345)
	d.driveUntilIdle(t)
	require.NoError(t, d.a.requestPhase(1))
	require.Equal(t, requestPosted, d.a.pending.state)
	for _, g := range []uint64{0, 12345, d.a.pending.generation + 1} {
		forge(g)
		_, err := d.a.Progress()
		require.NoError(t, err)
		require.Equal(t, requestPosted, d.a.pending.state)
	}
	d.driveUntilIdle(t)
	require.Equal(t, 1, d.a.Phase())
	forge(d.b.reply.resizeRequest.generation)
	d.sendThrough(t, d.a, d.b, element(1, 4000))
}

// TestEnlarge_E7_RepliesForEverCorrupt: each is asked for again; nothing grows, and an end finds everything.
func TestEnlarge_E7_RepliesForEverCorrupt(t *testing.T) {
	d := newTestPair(t, Config{})
	require.NoError(t, d.a.requestPhase(1))
	for i := range 100 {
		d.drive(t)
		d.handleRetransmits(t)
		require.Empty(t, receiveAll(t, d.b))
		d.drive(t)
		d.handleRetransmits(t)
		land := d.a.pending.replySlot
		land.Bytes()[land.replyOffset()+30]++
		_, err := d.a.Progress()
		require.NoError(t, err)
		require.EqualValues(t, i+1, d.a.Stats().CorruptReplies)
		require.Equal(t, 3, d.A.Regions())
		require.Equal(t, 2, d.B.Regions())
	}
}

// TestCredit_E12_Violations: a count that was never sent, or that goes back when none can be late, ends the
// channel.
func TestCredit_E12_Violations(t *testing.T) {
	for name, step := range map[string]func(d *testPair){
		"beyond what was sent": func(d *testPair) { d.a.recv.consumed++ },
		"far beyond":           func(d *testPair) { d.a.recv.consumed += 1 << 31 },
		"back":                 func(d *testPair) { d.a.recv.consumed-- },
		"back by half of 2^32": func(d *testPair) { d.a.recv.consumed += 1<<31 - 1 },
		"beyond, after ACK": func(d *testPair) {
			d.sendThrough(t, d.b, d.a,
				element(1, 1000))
			d.a.recv.consumed += 1000
		},
		"far beyond, after ACK": func(d *testPair) {
			d.sendThrough(t, d.b, d.a,
				element(1, 1000))
			d.a.recv.consumed += 1<<31 - 100
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestPair(t, Config{})
			for range 3 {
				d.sendThrough(t, d.b, d.a, element(1, 100))
				d.sendThrough(t, d.a, d.b, element(1, 100))
			}
			step(d)
			sendMalformed(t, d.a, Eager, nil)
			requireViolation(t, d.b, d.next(t))
		})
	}
}

// TestCredit_E6_StaleCounts: after a reply come messages whose counts are older than what it told. They are
// ignored, until the first that is not.
func TestCredit_E6_StaleCounts(t *testing.T) {
	for _, start := range []uint32{0, math.MaxUint32 - 3, 1<<31 - 3} {
		d := newTestPair(t, Config{})
		countFrom(d.a, start)
		countFrom(d.b, start)
		d.sendThrough(t, d.a, d.b, element(1, 300))   // several lines, of which B tells nothing yet
		sendMalformed(t, d.b, Eager, []byte("early")) // says that they are consumed; but A reads it last
		d.b.recv.consumed, d.b.recv.advertised = start, start
		sendMalformed(t, d.b, Eager, []byte("older"))
		d.b.recv.consumed, d.b.recv.advertised = d.a.send.sent, d.a.send.sent
		require.NoError(t, d.a.requestPhase(1))
		require.Equal(t, requestPosted, d.a.pending.state)
		d.drive(t)
		require.Empty(t, receiveAll(t, d.b))
		d.drive(t)
		_, err := d.a.Progress()
		require.NoError(t, err)
		require.Equal(t, 1, d.a.Phase())
		require.True(t, d.a.send.staleCreditOK)
		require.Equal(t, "earlyolder", string(receiveAll(t, d.a)))
		require.Equal(t, d.a.send.sent, d.a.send.credited, "a late count takes nothing back")
		d.sendThrough(t, d.a, d.b, element(2, 4000))
		d.sendThrough(t, d.b, d.a, element(2, 10))
		require.False(t, d.a.send.staleCreditOK)
		require.Equal(t, d.a.send.sent, d.a.send.credited)
	}
}

// countFrom has an end of a channel count lines from a number on, in both directions.
func countFrom(c *Channel, start uint32) {
	c.send.sent, c.send.credited, c.send.wrapStart, c.recv.consumed, c.recv.advertised = start, start,
		start, start, start
}

// TestNext_E6_MessageThatChangesUnderTheReader: a message that Next gave is turned into a request before it
// is released.
func TestNext_E6_MessageThatChangesUnderTheReader(t *testing.T) {
	d := newTestPair(t, Config{Phases: []int{1500, 16384}})
	d.sendThrough(t, d.a, d.b, element(1, 9000))
	sendMalformed(t, d.a, Eager, make([]byte, 16000))
	d.drive(t)
	_, _, ok, err := d.b.Next()
	require.NoError(t, err)
	require.True(t, ok)
	d.a.send.pos, d.a.send.sent = d.a.send.pos-linesOf(16000), d.a.send.sent-uint32(linesOf(16000))
	sendMalformed(t, d.a, shrink, validRequest(d.a, 0).bytes())
	d.drive(t)
	_, _, ok, err = d.b.Next()
	require.NoError(t, err)
	require.False(t, ok)
	d.b.Release() // of what is no more
	require.Zero(t, d.b.recv.pos)
	_, _, ok, err = d.b.Next()
	require.NoError(t, err)
	require.False(t, ok)
}
