package channel_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/transport"
)

// keeping is a protection domain that remembers the memory it gave out last.
type keeping struct {
	transport.PD
	last []byte
}

func (k *keeping) Alloc(n int, access transport.Access) (transport.MR, error) {
	mr, err := k.PD.Alloc(n, access)
	if err == nil {
		k.last = mr.Bytes()
	}
	return mr, err
}

// victim is a channel whose peer is the test, which writes into its ring what it likes.
type victim struct {
	*channel.Channel
	channeltest.Ring
	*channeltest.Pair
	memory []byte
}

func newVictim(t testing.TB, cfg channel.Config) *victim {
	v := &victim{Pair: channeltest.NewPair()}
	pd := &keeping{PD: v.B.PD()}
	var err error
	v.Channel, err = channel.New(pd, cfg)
	require.NoError(t, err)
	v.Ring = channeltest.ReadRing(v.Descriptor())
	v.memory = pd.last[:64*v.Lines]
	sink, err := channel.New(v.A.PD(), cfg) // somewhere to write to
	require.NoError(t, err)
	require.NoError(t, v.Open(v.B, sink.Descriptor()))
	t.Cleanup(func() {
		require.NoError(t, v.Fail(transport.ErrProtocol))
		require.NoError(t, sink.Close())
		require.Zero(t, v.A.Regions()+v.B.Regions())
	})
	return v
}

// place writes a message at a line.
func (v *victim) place(line int, wrap, header uint64, body []byte) {
	copy(v.memory[64*line:], v.AppendMessage(nil, wrap, header, body))
}

func header(consumed uint32, kind uint8) uint64 { return uint64(consumed) | uint64(kind)<<32 }

// after is what the header of a wrap's first message has for where the wrap before ended.
func after(line int) uint64 { return uint64(line) << 48 }

const (
	credit = 2
	data   = uint8(channel.Eager)
)

// nothing checks that no message is there.
func (v *victim) nothing(t *testing.T, format string, args ...any) {
	t.Helper()
	kind, _, ok, err := v.Next()
	require.NoError(t, err)
	require.False(t, ok, "%s: a %v", fmt.Sprintf(format, args...), kind)
}

// reads checks that the next message is there, and has this body.
func (v *victim) reads(t *testing.T, want []byte) {
	t.Helper()
	_, body, ok, err := v.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, string(want), string(body))
	v.Release()
}

// TestAttack_E12_PayloadFullOfOldFlags sends bodies whose every word is a head or a tail of an earlier wrap,
// for every length that there can be: wherever the next messages begin, nothing is taken for one that is not.
func TestAttack_E12_PayloadFullOfOldFlags(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := open(t, channel.Config{Phases: []int{256}})
		ring := channeltest.ReadRing(l.b.Descriptor())
		var lines, sent uint64
		for lines < 12*uint64(ring.Lines) {
			body := make([]byte, rng.IntN(l.a.MaxBody()+1))
			wrap := lines / uint64(ring.Lines)
			for at := 0; at+8 <= len(body) && wrap > 0; at += 8 {
				old := rng.Uint64N(wrap)
				w := ring.Tail(old)
				// at the start of a line, where a head may be looked for
				if (16+at)%64 == 0 || rng.IntN(2) == 0 {
					w = ring.Head(old, rng.Uint64N(uint64(l.a.MaxBody()+1)))
				}
				binary.LittleEndian.PutUint64(body[at:], w)
			}
			require.True(t, put(t, l.a, channel.Eager, body, false))
			l.drive(t)
			require.Equal(t, [][]byte{body}, take(t, l.b))
			progress(t, l.b)
			l.drive(t)
			require.Empty(t, take(t, l.a))
			sent++
			lines += (24 + uint64(len(body)) + 63) / 64
		}
		require.Equal(t, sent, l.b.Stats().Received)
		require.Zero(t, l.b.Stats().HeadsWithoutTail, "old payload was taken for a head")
	}
}

// wrapOnce takes the victim through a wrap of its ring, in messages of a line.
func (v *victim) wrapOnce(t *testing.T, n uint64) {
	for i := range v.Lines {
		v.place(int(i), n, header(0, data), nil)
		v.reads(t, nil)
		progress(t, v.Channel)
		require.NoError(t, v.Drive())
	}
}

// TestAttack_E12_HeadInParts places some of the bytes of a new head over an old one, in every way, with every
// tail of the present wrap in place that messages after could have. Nothing may follow from it before all
// bytes are there.
func TestAttack_E12_HeadInParts(t *testing.T) {
	v := newVictim(t, channel.Config{Phases: []int{2000}})
	v.wrapOnce(t, 0)
	for line := range v.Lines {
		binary.LittleEndian.PutUint64(v.memory[64*line+56:], v.Tail(1))
	}
	var lengths []uint64 // many that have a byte in common
	for n := uint64(0); n <= uint64(v.MaxBody()); n += 128 {
		lengths = append(lengths, n, n+1, n+100)
	}
	for _, before := range lengths {
		for _, now := range lengths {
			var a, b [8]byte
			binary.LittleEndian.PutUint64(a[:], v.Head(0, before))
			binary.LittleEndian.PutUint64(b[:], v.Head(1, now))
			for parts := range 255 {
				mixed := a
				for i := range mixed {
					if parts>>i&1 != 0 {
						mixed[i] = b[i]
					}
				}
				if mixed == b {
					continue // what is missing is the same
				}
				copy(v.memory, mixed[:])
				_, _, ok, err := v.Next()
				if ok || err != nil || v.Stats().HeadsWithoutTail > 0 {
					t.Fatalf("lengths %d and %d, bytes %08b of the new head: it is taken for one (%v, %v)",
						before, now, parts, ok, err)
				}
			}
		}
	}
	v.place(0, 1, header(2, data)|after(int(v.Lines)), []byte("whole"))
	_, body, ok, err := v.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "whole", string(body))
}

// TestAttack_E12_HeadWithoutTail has a message arrive in every order of its lines, tail last.
func TestAttack_E12_HeadWithoutTail(t *testing.T) {
	v := newVictim(t, channel.Config{})
	v.nothing(t, "an empty ring")
	require.Zero(t, v.Stats().HeadsWithoutTail)
	m := v.AppendMessage(nil, 0, header(0, data), letters(600))
	rng := rand.New(rand.NewPCG(5, 6))
	last, head := len(m)-8, false
	for _, word := range rng.Perm(last / 8) {
		copy(v.memory[8*word:], m[8*word:8*word+8])
		head = head || word == 0
		before := v.Stats().HeadsWithoutTail
		v.nothing(t, "word %d is there, the tail is not", word)
		require.Equal(t, head, v.Stats().HeadsWithoutTail > before)
	}
	copy(v.memory[last:], m[last:])
	_, body, ok, err := v.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, letters(600), body)
}

// TestAttack_E12_HeadOfAnImpossibleLength is a head that would be right if there were such lengths: it is
// counted and nothing follows.
func TestAttack_E12_HeadOfAnImpossibleLength(t *testing.T) {
	v := newVictim(t, channel.Config{})
	for line := range v.Lines {
		binary.LittleEndian.PutUint64(v.memory[64*line+56:], v.Tail(0))
	}
	for i, n := range []uint64{617, 640, 5096, 5120, 1 << 20, 1<<24 - 1} {
		binary.LittleEndian.PutUint64(v.memory, v.Head(0, n))
		v.nothing(t, "a length of %d", n)
		require.Equal(t, uint64(i+1), v.Stats().HeadsWithoutTail)
	}
}

// TestAttack_E12_HeadThatWouldGoOverTheEnd of the ring, from each line where it would: it is counted and
// nothing outside is read.
func TestAttack_E12_HeadThatWouldGoOverTheEnd(t *testing.T) {
	v := newVictim(t, channel.Config{Phases: []int{192}})
	heads := uint64(0)
	for line := range int(v.Lines) {
		for lines := 1; lines <= 3; lines++ {
			if line+lines > int(v.Lines) {
				binary.LittleEndian.PutUint64(v.memory[64*line:], v.Head(0, uint64(64*lines-24)))
				v.nothing(t, "%d lines at line %d", lines, line)
				heads++
				require.Equal(t, heads, v.Stats().HeadsWithoutTail)
			}
		}
		v.place(line, 0, header(0, credit), nil)
		v.nothing(t, "a CREDIT")
	}
	require.Equal(t, uint64(3), heads)
}

// TestAttack_E12_PeerBreaksARule: each is named, and ends the channel.
func TestAttack_E12_PeerBreaksARule(t *testing.T) {
	type crime struct {
		name string
		do   func(t *testing.T, v *victim)
	}
	crimes := []crime{
		{"credit for what was never sent", func(t *testing.T,
			v *victim) {
			v.place(0, 0, header(1, data), nil)
		}},
		{"credit for more than was sent", func(t *testing.T, v *victim) {
			put(t, v.Channel, channel.Eager, letters(100), false)
			v.place(0, 0, header(3, credit), nil)
		}},
		{"credit that is taken back", func(t *testing.T, v *victim) {
			put(t, v.Channel, channel.Eager, letters(100), false)
			v.place(0, 0, header(2, credit), nil)
			v.place(1, 0, header(1, credit), nil)
		}},
		{"more than the ring without a credit", func(t *testing.T, v *victim) {
			for wrap := range uint64(2) {
				for line := range int(v.Lines) {
					h := header(0, credit)
					if line == 0 && wrap > 0 {
						h |= after(int(v.Lines))
					}
					v.place(line, wrap, h, nil)
				}
				_, _, ok, err := v.Next() // reads all of them and tells nothing
				if wrap == 0 && (ok || err != nil) {
					t.Fatal(ok, err)
				}
			}
		}},
		{"more than the ring without a credit, in short wraps", func(t *testing.T, v *victim) {
			for i := range 80 {
				v.place(i%5, uint64(i/5), header(0, credit)|after(5*max(0, min(1, i)-min(1, i%5))), nil)
				v.nothing(t, "%d of 80 lines", i+1)
			}
			v.place(0, 16, header(0, credit)|after(5), nil)
		}},
		{"a wrap before the first", func(t *testing.T, v *victim) {
			v.place(0, 0, header(0, data)|after(1),
				nil)
		}},
		{"a wrap that began in its middle", func(t *testing.T, v *victim) {
			v.place(0, 0, header(0, credit), nil)
			v.place(1, 0, header(0, data)|after(1), nil)
		}},
		{"a wrap that does not say where the one before ended", func(t *testing.T, v *victim) {
			v.place(0, 0, header(0, credit), nil)
			v.nothing(t, "a CREDIT")
			v.place(0, 1, header(0, data), nil)
		}},
		{"a wrap that ended before what it had", func(t *testing.T, v *victim) {
			v.place(0, 0, header(0, credit), nil)
			v.place(1, 0, header(0, credit), nil)
			v.nothing(t, "two CREDITs")
			v.place(0, 1, header(0, data)|after(1), nil)
		}},
		{"a wrap that ended after the ring", func(t *testing.T, v *victim) {
			v.place(0, 0, header(0, credit), nil)
			v.nothing(t, "a CREDIT")
			v.place(0, 1, header(0, data)|after(int(v.Lines)+1), nil)
		}},
		{"CREDIT with a body", func(t *testing.T, v *victim) {
			v.place(0, 0, header(0, credit),
				letters(100))
		}},
	}
	for bit := 42; bit < 48; bit++ {
		crimes = append(crimes, crime{fmt.Sprintf("reserved bit %d", bit),
			func(t *testing.T, v *victim) { v.place(0, 0, header(0, data)|1<<bit, nil) }})
	}
	for kind := range 256 {
		if k := channel.Kind(kind); kind != credit && (k < channel.Eager || k > channel.Part ||
			k == channel.Batch+1) {
			crimes = append(crimes, crime{k.String() + " without a body",
				func(t *testing.T, v *victim) { v.place(0, 0, header(0, uint8(kind)), nil) }})
		}
	}
	for _, c := range crimes {
		t.Run(c.name, func(t *testing.T) {
			v := newVictim(t, channel.Config{})
			c.do(t, v)
			_, _, ok, err := v.Next()
			require.ErrorIs(t, err, transport.ErrProtocol)
			require.False(t, ok)
			_, _, _, again := v.Next()
			require.Equal(t, err, again, "the channel goes on")
			require.NoError(t, v.Fail(err))
			require.Equal(t, channel.StateFailed, v.State())
			_, _, ok, err = v.Next()
			require.NoError(t, err)
			require.False(t, ok)
			require.Nil(t, v.Reserve(0))
		})
	}
}

// TestAttack_E12_MessageThatChangesAfterItWasGiven is a peer that overwrites a message at the end of the
// ring, on which the channel was already standing, with one of another length or kind.
func TestAttack_E12_MessageThatChangesAfterItWasGiven(t *testing.T) {
	for _, kind := range []uint8{credit, data} {
		v := newVictim(t, channel.Config{Phases: []int{192}})
		last := int(v.Lines) - 2
		for line := range last {
			v.place(line, 0, header(0, data), nil)
			v.reads(t, nil)
			progress(t, v.Channel)
		}
		v.place(last, 0, header(0, data), letters(100))
		_, body, ok, err := v.Next()
		require.NoError(t, err)
		require.True(t, ok)
		require.Len(t, body, 100)
		v.place(last, 0, header(0, kind), nil)
		_, _, _, err = v.Next()
		require.NoError(t, err)
		v.Release()
		for range 4 { // whatever it is now, it stays in the ring
			_, _, _, err = v.Next()
			require.NoError(t, err)
			v.Release()
		}
	}
}
