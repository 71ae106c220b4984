package eager_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/transport"
)

// newBatch is an empty batch with memory.
func newBatch() *eager.Batch {
	b := &eager.Batch{}
	b.SetMemory(make([]byte, eager.BatchSize))
	return b
}

// counting has every message its own tag, so that none continues a run.
func counting(seq int) int32 { return int32(seq) }

// entries takes all messages of the BATCH that is next, whose tags must count on from seq, and gives their
// number.
func entries(t testing.TB, c *channel.Channel, seq int, size func(seq int) int) int {
	t.Helper()
	return entriesOf(t, c, seq, size, counting)
}

func entriesOf(t testing.TB, c *channel.Channel, seq int, size func(seq int) int,
	tag func(seq int) int32) int {
	t.Helper()
	kind, rest, ok, err := c.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, channel.Batch, kind)
	n := 0
	for len(rest) > 0 {
		var run eager.Run
		rest, err = eager.ParseRun(rest, &run)
		require.NoError(t, err)
		require.Equal(t, len(run.Payloads), cap(run.Payloads), "one could write into the next run")
		require.Len(t, run.Payloads, run.Count*run.Length)
		for ; run.Count > 0; run.Count-- {
			require.Equal(t, eager.Envelope{Context: 7, Tag: tag(seq + n)}, run.Envelope)
			require.Equal(t, pattern(seq+n, size(seq+n)), run.Payloads[:run.Length])
			run.Payloads = run.Payloads[run.Length:]
			n++
		}
	}
	c.Release()
	return n
}

// The threshold is of single messages: one above it goes into no BATCH, and a BATCH takes the slot as it is.
// Seen to fail where Add does not compare.
func TestBatch_E2_ThresholdIsOfEachMessage(t *testing.T) {
	for _, conf := range []channel.Config{{Threshold: 100}, {ThresholdPercent: 80}} {
		l := open(t, conf)
		sent, err := eager.TrySend(l.a, eager.Envelope{}, make([]byte, eager.MaxPayload(l.a)+1), 0)
		require.NoError(t, err)
		require.False(t, sent, "above the threshold")
		b := newBatch()
		for seq := 0; b.Add(l.a, eager.Envelope{Context: 7, Tag: int32(seq)}, pattern(seq, 8)); seq++ {
		}
		n := b.Count()
		require.Equal(t, conf.Threshold > 0, eager.MaxPayload(l.a) < eager.MaxBatched)
		if conf.Threshold > 0 {
			above := newBatch()
			require.True(t, above.Add(l.a, eager.Envelope{}, make([]byte, eager.MaxPayload(l.a))))
			require.False(t, above.Add(l.a, eager.Envelope{}, make([]byte, eager.MaxPayload(l.a)+1)))
			require.Equal(t, 1, above.Count())
		}
		require.Greater(t, 20*n, eager.MaxPayload(l.a)) // with its envelopes
		sent, err = b.TrySend(l.a, 0)
		require.NoError(t, err)
		require.True(t, sent)
		require.NoError(t, l.Drive())
		require.Equal(t, n, entries(t, l.b, 0, func(int) int { return 8 }))
	}
}

func TestGolden_Batch(t *testing.T) {
	l := open(t, channel.Config{})
	var tr channeltest.Transcript
	tr.Record(l.Pair, l.a.Descriptor(), l.b.Descriptor())
	b := newBatch()
	add := func(env eager.Envelope, payload string) { require.True(t, b.Add(l.a, env, []byte(payload))) }
	send := func(more bool) {
		sent, err := b.TrySend(l.a, sendFlags(more))
		require.NoError(t, err)
		require.True(t, sent)
		require.Zero(t, b.Count())
		require.NoError(t, l.Drive())
		require.NoError(t, drain(l.b))
	}
	tr.Say("three messages in a slot, one of them of no bytes, and one that goes alone")
	add(eager.Envelope{Context: 1, Tag: 2}, "first")
	add(eager.Envelope{Context: 1, Tag: 2}, "")
	add(eager.Envelope{Context: math.MaxUint32, Tag: math.MaxInt32}, "the greatest envelope")
	require.Equal(t, 3, b.Count())
	send(true)
	add(eager.Envelope{}, "alone")
	send(false)
	tr.Say("a batch that was dropped leaves nothing behind")
	add(eager.Envelope{}, "dropped")
	b.Reset()
	add(eager.Envelope{Tag: 1}, "kept")
	send(false)
	tr.Say("what has the same envelope and length is a run; messages of no bytes are none")
	for _, payload := range []string{"one", "two", "six", "four", "", "", "nine"} {
		add(eager.Envelope{Context: 1, Tag: 2}, payload)
	}
	add(eager.Envelope{Context: 1, Tag: 3}, "five")
	add(eager.Envelope{Context: 2, Tag: 3}, "five")
	require.Equal(t, 9, b.Count())
	send(false)
	tr.Golden(t, "batch")
}

// TestBatch_E2_UpToAFullSlot: it takes what fits a slot, or its own memory if that is less, to the last byte
// and not one more.
func TestBatch_E2_UpToAFullSlot(t *testing.T) {
	for _, slot := range []int{100, 128, 640, 2000} {
		l := open(t, channel.Config{Phases: []int{slot}})
		for last := range 40 { // bytes that the last message leaves free or is too large by
			b := newBatch()
			left := l.a.MaxBody()
			for ; left > 12+60; left -= 12 + 20 {
				require.True(t, b.Add(l.a, eager.Envelope{Context: 7, Tag: int32(b.Count())},
					pattern(b.Count(), 20)))
			}
			count, n := b.Count(), left-12-20+last
			require.Equal(t, last <= 20, b.Add(l.a, eager.Envelope{Context: 7, Tag: int32(count)},
				pattern(count, max(n, 0))))
			if last > 20 {
				require.Equal(t, count, b.Count(), "what did not fit is in it")
			}
			if b.Count() == 0 {
				continue
			}
			count = b.Count()
			sent, err := b.TrySend(l.a, 0)
			require.NoError(t, err)
			require.True(t, sent)
			require.NoError(t, l.Drive())
			require.Equal(t, count, entries(t, l.b, 0, func(seq int) int {
				if seq == count-1 && last <= 20 {
					return max(n, 0)
				}
				return 20
			}))
			l.turn(t)
			l.turn(t, l.a)
		}
	}
	l := open(t, channel.Config{Phases: []int{640, 16384}})
	l.grow(t)
	b := newBatch()
	for i := range 15 {
		require.True(t, b.Add(l.a, eager.Envelope{Tag: int32(i)}, pattern(0, 256)))
	}
	left := eager.BatchSize - 15*(12+256)
	require.False(t, b.Add(l.a, eager.Envelope{}, pattern(0, left-11)))
	require.True(t, b.Add(l.a, eager.Envelope{}, pattern(0, left-12)))
	require.False(t, b.Add(l.a, eager.Envelope{}, nil))
	b.Reset()
	for range (eager.BatchSize - 12) / 68 {
		require.True(t, b.Add(l.a, eager.Envelope{}, pattern(0, 68)), "of a run that fits")
	}
	require.False(t, b.Add(l.a, eager.Envelope{}, pattern(0, 68)))
	b.Reset()
	for range 3 {
		require.True(t, b.Add(l.a, eager.Envelope{}, pattern(0, eager.MaxBatchedMapped)), "of a run that fits")
	}
	require.Less(t, b.Room(), eager.MaxBatchedMapped)
	b.Reset()
	for l.a.Due() != channel.DueResize {
		require.NoError(t, l.a.ShrinkIfIdle())
	}
	require.False(t, b.Add(l.a, eager.Envelope{}, pattern(0, 616-11)), "it may not fit the small slots")
	require.True(t, b.Add(l.a, eager.Envelope{}, pattern(0, 616-12)))
	b.Reset()
	require.Len(t, b.TakeMemory()[:1][:eager.BatchSize], eager.BatchSize)
	require.False(t, b.Add(l.a, eager.Envelope{}, nil), "without memory")
	require.Nil(t, b.TakeMemory())
}

// grow takes A's direction to the last phase.
func (l *link) grow(t testing.TB) {
	v := channel.Vector{Elems: [][]byte{make([]byte, 10_000)}}
	_, o, err := v.TrySend(l.a, channel.More, nil, 0)
	require.NoError(t, err)
	require.Equal(t, channel.Waiting, o)
	l.turn(t, l.a, l.b)
	l.turn(t, l.a, l.b)
	require.Equal(t, 1, l.a.Phase())
	require.NotEqual(t, channel.DueResize, l.a.Due())
}

// TestBatch_E11_MadeForLargeSlots goes through the small ones that the channel has gone back to, in as many
// as it takes; what finds no credits stays for later.
func TestBatch_E11_MadeForLargeSlots(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{100, 16384}})
	l.grow(t)
	b, size := newBatch(), func(seq int) int { return seq % 65 }
	for b.Add(l.a, eager.Envelope{Context: 7, Tag: int32(b.Count())}, pattern(b.Count(), size(b.Count()))) {
	}
	require.Greater(t, b.Count(), 80)
	l.sendsShrunk(t, b, size, counting)
}

// sendsShrunk sends a batch that was made for large slots when the channel has gone back to small ones: it
// goes in as many as it takes, whole and in order, and what finds no credits stays for later.
func (l *link) sendsShrunk(t testing.TB, b *eager.Batch, size func(seq int) int, tag func(seq int) int32) {
	t.Helper()
	count := b.Count()
	for range 3 {
		require.NoError(t, l.a.ShrinkIfIdle())
	}
	sent, err := b.TrySend(l.a, 0)
	require.NoError(t, err)
	require.False(t, sent, "while the slots change")
	l.turn(t, l.a, l.b)
	l.turn(t, l.a, l.b)
	require.Zero(t, l.a.Phase())
	got, waited := 0, 0
	for !sent {
		sent, err = b.TrySend(l.a, 0)
		require.NoError(t, err)
		waited++
		require.NoError(t, l.Drive())
		for got+b.Count() < count {
			got += entriesOf(t, l.b, got, size, tag)
		}
		l.turn(t, l.b)
		l.turn(t, l.a)
	}
	require.Equal(t, count, got)
	require.Greater(t, waited, 1)
}

// TestBatch_E11_RunsMadeForLargeSlots: a run that does not fit a small slot goes in several, whatever they
// are, and stays whole while there is no room.
func TestBatch_E11_RunsMadeForLargeSlots(t *testing.T) {
	for _, length := range []int{1, 2, 8, 11, 12, 13, 40, 64} {
		l := open(t, channel.Config{Phases: []int{100, 16384}})
		l.grow(t)
		size, tag := func(int) int { return length }, func(seq int) int32 { return int32(seq / 70) }
		b := newBatch()
		for b.Add(l.a, eager.Envelope{Context: 7, Tag: tag(b.Count())}, pattern(b.Count(), length)) {
		}
		got := b.Count()
		l.sendsShrunk(t, b, size, tag)
		require.True(t, b.Add(l.a, eager.Envelope{Context: 7, Tag: tag(got)}, pattern(got, length)),
			"what comes next is not of a run that has gone")
		sent, err := b.TrySend(l.a, 0)
		require.NoError(t, err)
		require.True(t, sent)
		require.NoError(t, l.Drive())
		require.Equal(t, 1, entriesOf(t, l.b, got, size, tag))
	}
}

// TestBatch_E11_SlotsThatAreTooSmallGrow: bursts that are cut by the end of a slot again and again have the
// channel ask for larger ones.
func TestBatch_E11_SlotsThatAreTooSmallGrow(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{640, 16384}})
	b := newBatch()
	for burst := 0; l.a.Phase() == 0; burst++ {
		require.Less(t, burst, 80)
		require.Equal(t, burst >= 64, l.a.Stats().EnlargesSent > 0, "after %d bursts", burst)
		for b.Add(l.a, eager.Envelope{}, pattern(burst, 100)) {
		}
		sent, err := b.TrySend(l.a, 0)
		require.NoError(t, err)
		if !sent { // the answer is under way
			require.Equal(t, channel.DueResize, l.a.Due())
		}
		for range 3 {
			require.NoError(t, l.Drive())
			require.NoError(t, drain(l.b))
			require.NoError(t, drain(l.a))
			l.turn(t)
		}
	}
	require.EqualValues(t, 1, l.a.Stats().EnlargesGranted)
}

// TestBatch_E5_NoRoomKeepsIt, whether credits or the send queue are used up: all arrive, once and in order.
func TestBatch_E5_NoRoomKeepsIt(t *testing.T) {
	size := func(seq int) int { return seq * 7 % 100 }
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		l := open(t, channel.Config{Phases: []int{192}})
		l.A.Depth = 1 + rng.IntN(40)
		b := newBatch()
		refused, got := 0, 0
		for seq := 0; seq < 300; {
			if rng.IntN(8) > 0 && b.Add(l.a, eager.Envelope{Context: 7, Tag: int32(seq)},
				pattern(seq, size(seq))) {
				seq++
				continue
			}
			count := b.Count()
			if count == 0 {
				continue
			}
			sent, err := b.TrySend(l.a, 0)
			require.NoError(t, err)
			if sent {
				require.Zero(t, b.Count())
				continue
			}
			require.Equal(t, count, b.Count())
			refused++
			require.NoError(t, l.Drive())
			for got+count < seq {
				got += entries(t, l.b, got, size)
			}
			l.turn(t, l.b)
			l.turn(t, l.a)
		}
		require.Positive(t, refused)
		require.NoError(t, l.Drive())
		for got+b.Count() < 300 {
			got += entries(t, l.b, got, size)
		}
	}
}

// TestBatch_ABrokenQueuePairIsAnError, and the batch stays as it is.
func TestBatch_ABrokenQueuePairIsAnError(t *testing.T) {
	l := open(t, channel.Config{})
	b := newBatch()
	require.True(t, b.Add(l.a, eager.Envelope{}, []byte("lost")))
	l.A.Abort(transport.ErrPeerLost)
	sent, err := b.TrySend(l.a, 0)
	require.ErrorIs(t, err, transport.ErrState)
	require.False(t, sent)
	require.Equal(t, 1, b.Count())
}

func TestBatch_NoAllocationInSteadyState(t *testing.T) {
	l := open(t, channel.Config{})
	memory, payload := make([]byte, eager.BatchSize), pattern(0, 8)
	var b eager.Batch
	var run eager.Run
	round := func() {
		b.SetMemory(memory)
		for b.Add(l.a, eager.Envelope{Tag: 1}, payload) {
		}
		count := b.Count()
		sent, err := b.TrySend(l.a, 0)
		if err = errors.Join(err, l.Drive()); !sent || err != nil || &b.TakeMemory()[:1][0] != &memory[0] {
			t.Fatal(sent, err)
		}
		_, rest, _, err := l.b.Next()
		for len(rest) > 0 && err == nil {
			rest, err = eager.ParseRun(rest, &run)
			count -= run.Count
		}
		if count != 0 || err != nil {
			t.Fatal(count, err)
		}
		l.b.Release()
		_, err = l.b.Progress()
		if err = errors.Join(err, l.Drive(), drain(l.a)); err != nil {
			t.Fatal(err)
		}
	}
	require.Zero(t, testing.AllocsPerRun(300, round))
}

// FuzzRun takes any body apart as a BATCH: what is accepted is what Add writes, and it comes to an end.
func FuzzRun(f *testing.F) {
	run := func(b []byte, length, count uint16, context, tag uint32, payloads string) []byte {
		b = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(b, length), count-1)
		b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, context), tag)
		return append(b, payloads...)
	}
	f.Add([]byte{})
	f.Add(run(nil, 0, 1, 1, 2, ""))
	f.Add(run(nil, 0, 2, 1, 2, ""))
	f.Add(run(run(nil, 3, 1, 1, 2, "abc"), 1, 4, 3, math.MaxInt32, "defg"))
	f.Add(run(run(nil, 3, 1, 1, 2, "abc"), 2, 1, 3, 4, "d"))
	f.Add(run(nil, 3, 1, 1, 1<<31, "abc"))
	f.Add(run(nil, math.MaxUint16, 0, 1, 2, "abc"))
	f.Add(run(nil, 0, 1, 1, 2, "")[:11])
	length := func(b []byte) int { return int(binary.LittleEndian.Uint16(b)) }
	count := func(b []byte) int { return int(binary.LittleEndian.Uint16(b[2:])) + 1 }
	f.Fuzz(func(t *testing.T, body []byte) {
		var again []byte
		for rest := body; len(rest) > 0; {
			var r eager.Run
			left, err := eager.ParseRun(rest, &r)
			if len(rest) < 12 || rest[11] >= 0x80 || length(rest) == 0 && count(rest) > 1 ||
				length(rest)*count(rest) > len(rest)-12 {
				require.ErrorIs(t, err, transport.ErrProtocol)
				return
			}
			require.NoError(t, err)
			require.Equal(t, count(rest), r.Count)
			again = run(again, uint16(r.Length), uint16(r.Count), r.Context, uint32(r.Tag),
				string(r.Payloads))
			require.Less(t, len(left), len(rest))
			rest = left
		}
		require.Equal(t, string(body), string(again))
	})
}
