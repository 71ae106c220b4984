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
func (d *duo) next(t testing.TB) error {
	t.Helper()
	d.drive(t)
	_, _, ok, err := d.b.Next()
	require.False(t, ok)
	return err
}

// TestEnlarge_E6_QuestionsThatCannotBe: a question that makes no sense ends the channel with an error that names it.
func TestEnlarge_E6_QuestionsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		kind Kind
		body func(q question) []byte
	}{
		"ENLARGE to the present phase": {enlarge, func(q question) []byte { q.phase = 1; return q.bytes() }},
		"ENLARGE to a smaller phase":   {enlarge, func(q question) []byte { q.phase = 0; return q.bytes() }},
		"ENLARGE beyond the phases":    {enlarge, func(q question) []byte { q.phase = 3; return q.bytes() }},
		"ENLARGE to phase 2^32-1":      {enlarge, func(q question) []byte { q.phase = math.MaxUint32; return q.bytes() }},
		"ENLARGE without a generation": {enlarge, func(q question) []byte { q.generation = 0; return q.bytes() }},
		"ENLARGE of no bytes":          {enlarge, func(q question) []byte { return nil }},
		"ENLARGE of too few bytes":     {enlarge, func(q question) []byte { return q.bytes()[:questionLen-1] }},
		"ENLARGE of too many bytes":    {enlarge, func(q question) []byte { return append(q.bytes(), 0) }},
		"ENLARGE of a slot's bytes":    {enlarge, func(q question) []byte { return append(q.bytes(), make([]byte, 500)...) }},
		"SHRINK to the present phase":  {shrink, func(q question) []byte { q.phase = 1; return q.bytes() }},
		"SHRINK to a larger phase":     {shrink, func(q question) []byte { q.phase = 2; return q.bytes() }},
		"SHRINK without a generation":  {shrink, func(q question) []byte { q.phase, q.generation = 0, 0; return q.bytes() }},
		"CREDIT with a body":           {credit, func(q question) []byte { return []byte{1} }},
		"a kind that is none":          {kinds, func(q question) []byte { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			d := pairUp(t, Config{Phases: threePhases, Budget: NewBudget(1 << 20)})
			d.through(t, d.a, d.b, element(1, 1000))
			require.Equal(t, 1, d.a.Phase())
			lie(t, d.a, c.kind, c.body(honest(d.a, 2)))
			violated(t, d.b, d.next(t))
		})
	}
}

// TestEnlarge_E6_LandingPlacesThatAreNone: where the answer shall go is checked when it goes there: it ends the connection of the one who
// asked so, and writes nowhere.
func TestEnlarge_E6_LandingPlacesThatAreNone(t *testing.T) {
	for name, spoil := range map[string]func(a *Channel, q *question){
		"no such key":                    func(_ *Channel, q *question) { q.key = 0xdead },
		"the mirror, not to be written":  func(a *Channel, q *question) { q.key = a.send.mirror.Key() },
		"behind the region":              func(a *Channel, q *question) { q.offset += lineSize + 1 },
		"an offset that goes over":       func(a *Channel, q *question) { q.offset = math.MaxUint64 - answerLen + 1 },
		"an offset that goes over by 63": func(a *Channel, q *question) { q.offset = math.MaxUint64 },
	} {
		t.Run(name, func(t *testing.T) {
			d := pairUp(t, Config{Phases: threePhases})
			q := honest(d.a, 1)
			spoil(d.a, &q)
			lie(t, d.a, enlarge, q.bytes())
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

// TestEnlarge_E7_AnswersThatCannotBe: an answer whose checksum is right and that makes no sense ends the channel.
func TestEnlarge_E7_AnswersThatCannotBe(t *testing.T) {
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
		"NACK of another phase":  func(b []byte) { b[8], b[9] = kindNACK, 2; clear(b[12:20]); clear(b[24:48]) },
	} {
		t.Run(name, func(t *testing.T) {
			d := pairUp(t, Config{Phases: threePhases})
			require.NoError(t, d.a.want(1))
			d.drive(t)
			require.Empty(t, taken(t, d.b))
			d.drive(t)
			line := d.a.asking.land.Bytes()[d.a.asking.land.landing():]
			_, tail := landed(line, d.a.asking.generation)
			require.True(t, tail)
			spoil(line)
			put32(line[20:], checksum(line))
			_, err := d.a.Progress()
			violated(t, d.a, err)
			require.Zero(t, d.A.Regions())
		})
	}
}

// TestEnlarge_E7_AskedAgainUnasked: "say it again" where there is nothing to say ends the channel; after an answer that has been taken
// the same answer goes once more, which harms nobody but the one who lies, whose memory it was.
func TestEnlarge_E7_AskedAgainUnasked(t *testing.T) {
	t.Run("before any question", func(t *testing.T) {
		d := pairUp(t, Config{})
		violated(t, d.b, d.b.AskedAgain())
	})
	t.Run("before Open", func(t *testing.T) {
		d := pairUp(t, Config{})
		c, err := New(d.A.PD(), Config{})
		require.NoError(t, err)
		violated(t, c, c.AskedAgain())
	})
	t.Run("after Close", func(t *testing.T) {
		d := pairUp(t, Config{})
		d.through(t, d.a, d.b, element(1, 1000))
		require.NoError(t, d.b.Close())
		require.ErrorIs(t, d.b.AskedAgain(), transport.ErrProtocol)
	})
	t.Run("after the answer", func(t *testing.T) {
		d := pairUp(t, Config{})
		d.through(t, d.a, d.b, element(1, 1000))
		for range 300 { // more than the send queue has room for
			require.NoError(t, d.b.AskedAgain())
		}
		require.True(t, d.b.reply.due)
		d.settle(t)
		require.False(t, d.b.reply.due)
		d.through(t, d.a, d.b, element(2, 2000))
	})
	t.Run("when the landing place is gone", func(t *testing.T) {
		d := pairUp(t, Config{})
		d.through(t, d.a, d.b, element(1, 1000)) // landed behind A's small ring
		d.through(t, d.b, d.a, element(1, 1000)) // which is gone now
		require.NoError(t, d.b.AskedAgain())
		require.ErrorIs(t, d.Drive(), transport.ErrAccess)
	})
}

// TestEnlarge_E3_MessageBehindTheQuestion: what a peer writes behind its question into a ring that is granted is never read; into one that is
// gone it cannot write.
func TestEnlarge_E3_MessageBehindTheQuestion(t *testing.T) {
	for _, early := range []bool{true, false} {
		d := pairUp(t, Config{})
		lie(t, d.a, enlarge, honest(d.a, 1).bytes())
		if !early {
			d.drive(t)
			require.Empty(t, taken(t, d.b))
		}
		lie(t, d.a, Eager, []byte("behind"))
		if early {
			d.drive(t)
			require.Empty(t, taken(t, d.b))
			d.drive(t)
			require.Empty(t, taken(t, d.b))
		} else {
			require.ErrorIs(t, d.Drive(), transport.ErrAccess)
		}
		require.Equal(t, 1, d.b.recv.buffer.phase)
	}
}

// TestEnlarge_E7_TwoQuestionsAtOnce: the answer to the first is forgotten for the second; nothing else happens.
func TestEnlarge_E7_TwoQuestionsAtOnce(t *testing.T) {
	d := pairUpUneven(t, Config{Phases: threePhases}, Config{Phases: threePhases, Budget: NewBudget(16 << 10)})
	d.B.Depth = 0 // the refusal cannot go yet
	lie(t, d.a, enlarge, honest(d.a, 1).bytes())
	second := honest(d.a, 2)
	lie(t, d.a, enlarge, second.bytes())
	d.drive(t)
	require.Empty(t, taken(t, d.b))
	require.Equal(t, second, d.b.reply.question)
	require.EqualValues(t, 2, d.b.Stats().Refusals)
	d.B.Depth = 256
	_, err := d.b.Progress()
	require.NoError(t, err)
	d.drive(t)
	require.Zero(t, d.b.recv.buffer.phase)
}

// TestEnlarge_E6_QuestionWhileMuchIsOwed: a peer that asks though it has CREDITs unread breaks the rule by which it would not starve. It is
// answered all the same.
func TestEnlarge_E6_QuestionWhileMuchIsOwed(t *testing.T) {
	d := pairUp(t, Config{})
	for int(d.a.send.sent-d.a.send.freed) < d.a.send.mirror.threshold() {
		lie(t, d.a, Eager, element(1, 500))
	}
	require.NoError(t, d.a.want(1))
	require.Equal(t, askNothing, d.a.asking.state, "an honest one waits")
	lie(t, d.a, enlarge, honest(d.a, 1).bytes())
	d.drive(t)
	taken(t, d.b)
	require.Equal(t, 1, d.b.recv.buffer.phase)
	_, err := d.b.Progress()
	require.NoError(t, err)
}

// TestEnlarge_E7_WritesInTheLandingPlace: nothing that is there before a question counts, nor what comes with another generation.
func TestEnlarge_E7_WritesInTheLandingPlace(t *testing.T) {
	d := pairUp(t, Config{Phases: threePhases})
	line := d.a.recv.buffer.Bytes()[d.a.recv.buffer.landing():]
	forge := func(generation uint64) {
		s := geometry(threePhases, 1)
		answer{ack: true, shape: s, key: 4711, generation: 1}.put(line, generation)
	}
	forge(12345)
	d.settle(t)
	require.NoError(t, d.a.want(1))
	require.Equal(t, askPosted, d.a.asking.state)
	for _, g := range []uint64{0, 12345, d.a.asking.generation + 1} {
		forge(g)
		_, err := d.a.Progress()
		require.NoError(t, err)
		require.Equal(t, askPosted, d.a.asking.state)
	}
	d.settle(t)
	require.Equal(t, 1, d.a.Phase())
	forge(d.b.reply.question.generation)
	d.through(t, d.a, d.b, element(1, 4000))
}

// TestEnlarge_E7_AnswersForEverCorrupt: each is asked for again; nothing grows, and an end finds everything.
func TestEnlarge_E7_AnswersForEverCorrupt(t *testing.T) {
	d := pairUp(t, Config{})
	require.NoError(t, d.a.want(1))
	for i := range 100 {
		d.drive(t)
		d.hear(t)
		require.Empty(t, taken(t, d.b))
		d.drive(t)
		land := d.a.asking.land
		land.Bytes()[land.landing()+30]++
		_, err := d.a.Progress()
		require.NoError(t, err)
		require.EqualValues(t, i+1, d.a.Stats().Corrupt)
		require.Equal(t, 3, d.A.Regions())
		require.Equal(t, 2, d.B.Regions())
	}
}

// TestCredit_E12_Lies: a count that was never sent, or that goes back when none can be late, ends the channel.
func TestCredit_E12_Lies(t *testing.T) {
	for name, step := range map[string]func(d *duo){
		"beyond what was sent":  func(d *duo) { d.a.recv.consumed++ },
		"far beyond":            func(d *duo) { d.a.recv.consumed += 1 << 31 },
		"back":                  func(d *duo) { d.a.recv.consumed-- },
		"back by half of 2^32":  func(d *duo) { d.a.recv.consumed += 1<<31 - 1 },
		"beyond, behind ACK":    func(d *duo) { d.through(t, d.b, d.a, element(1, 1000)); d.a.recv.consumed += 1000 },
		"far beyond behind ACK": func(d *duo) { d.through(t, d.b, d.a, element(1, 1000)); d.a.recv.consumed += 1<<31 - 100 },
	} {
		t.Run(name, func(t *testing.T) {
			d := pairUp(t, Config{})
			for range 3 {
				d.through(t, d.b, d.a, element(1, 100))
				d.through(t, d.a, d.b, element(1, 100))
			}
			step(d)
			lie(t, d.a, Eager, nil)
			violated(t, d.b, d.next(t))
		})
	}
}

// TestCredit_E6_LateCounts: behind an answer come messages whose counts are older than what it told. They are ignored, until the first that
// is not.
func TestCredit_E6_LateCounts(t *testing.T) {
	for _, start := range []uint32{0, math.MaxUint32 - 3, 1<<31 - 3} {
		d := pairUp(t, Config{})
		countFrom(d.a, start)
		countFrom(d.b, start)
		d.through(t, d.a, d.b, element(1, 300)) // several lines, of which B tells nothing yet
		lie(t, d.b, Eager, []byte("early"))     // says that they are consumed; but A reads it last
		d.b.recv.consumed, d.b.recv.told = start, start
		lie(t, d.b, Eager, []byte("older"))
		d.b.recv.consumed, d.b.recv.told = d.a.send.sent, d.a.send.sent
		require.NoError(t, d.a.want(1))
		require.Equal(t, askPosted, d.a.asking.state)
		d.drive(t)
		require.Empty(t, taken(t, d.b))
		d.drive(t)
		_, err := d.a.Progress()
		require.NoError(t, err)
		require.Equal(t, 1, d.a.Phase())
		require.True(t, d.a.send.late)
		require.Equal(t, "earlyolder", string(taken(t, d.a)))
		require.Equal(t, d.a.send.sent, d.a.send.freed, "a late count takes nothing back")
		d.through(t, d.a, d.b, element(2, 4000))
		d.through(t, d.b, d.a, element(2, 10))
		require.False(t, d.a.send.late)
		require.Equal(t, d.a.send.sent, d.a.send.freed)
	}
}

// countFrom has an end of a channel count lines from a number on, in both directions.
func countFrom(c *Channel, start uint32) {
	c.send.sent, c.send.freed, c.send.began, c.recv.consumed, c.recv.told = start, start, start, start, start
}

// TestNext_E6_MessageThatChangesUnderTheReader: a message that Next gave is turned into a question before it is released.
func TestNext_E6_MessageThatChangesUnderTheReader(t *testing.T) {
	d := pairUp(t, Config{Phases: []int{1500, 16384}})
	d.through(t, d.a, d.b, element(1, 9000))
	lie(t, d.a, Eager, make([]byte, 16000))
	d.drive(t)
	_, _, ok, err := d.b.Next()
	require.NoError(t, err)
	require.True(t, ok)
	d.a.send.pos, d.a.send.sent = d.a.send.pos-linesOf(16000), d.a.send.sent-uint32(linesOf(16000))
	lie(t, d.a, shrink, honest(d.a, 0).bytes())
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
