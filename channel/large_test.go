package channel

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

var keepThree = Config{Phases: threePhases, KeepSmall: true}

// registered says how much of a large ring is registered at both ends, and in how many regions.
func (s transcriptPair) registered(want ...int) {
	s.t.Helper()
	for i, c := range []*Channel{s.a, s.b} {
		bytes := 0
		for _, phase := range append([]int{0, 0}, want...) {
			bytes += geometry(c.phases, phase).region()
		}
		require.Equal(s.t, bytes, c.Stats().Registered, "end %d", i)
		require.Equal(s.t, 2+len(want), s.regions(c))
	}
	s.Say("each end has %d bytes registered in %d regions", s.a.Stats().Registered, s.regions(s.a))
}

// TestKeepSmall_E6_SmallBesideLarge: the first ring stays, in every phase, for what fits its slots; messages
// of both rings come out in the order in which they were sent.
func TestKeepSmall_E6_SmallBesideLarge(t *testing.T) {
	s := newTranscriptPair(t, keepThree)
	s.goes(s.a, s.b, vector(100))
	s.goes(s.a, s.b, vector(1000))
	s.registered(1)
	var all []byte
	for _, n := range []int{50, 3000, 600, 601, 10, 9000} {
		v := vector(n)
		s.Say("%d bytes", n)
		require.Equal(t, Done, s.transfers(s.a, v))
		all = append(all, v.joined(0, 1)...)
	}
	s.receives(s.b, all)
	s.Say("the other direction is as it was")
	s.goes(s.b, s.a, vector(20))
	require.Equal(t, 0, s.b.Phase())
	s.Golden(t, "keep-small")
}

// TestKeepSmall_E9_E11_GrownTwiceAndShrunk: only the large ring is exchanged, and given back.
func TestKeepSmall_E9_E11_GrownTwiceAndShrunk(t *testing.T) {
	s := newTranscriptPair(t, keepThree)
	first := [2]*buffer{s.a.send.mirror, s.b.recv.buffer}
	s.goes(s.a, s.b, vector(1000))
	s.phase(s.a, 1)
	s.registered(1)
	s.goes(s.a, s.b, vector(30))
	s.goes(s.a, s.b, vector(100_000))
	s.phase(s.a, 2)
	s.registered(2)
	s.goes(s.a, s.b, vector(30))
	for i, want := range []int{2, 1, 1, 0, 0} {
		if i < 2 {
			s.goes(s.a, s.b, vector(1000))
		}
		s.Say("tick %d", i+1)
		for range 1 + i%2 {
			require.NoError(t, s.a.ShrinkIfIdle())
		}
		s.drive(t)
		s.receives(s.b, nil)
		s.progresses(s.a)
		s.phase(s.a, want)
	}
	s.registered()
	require.EqualValues(t, 2, s.a.Stats().EnlargesGranted)
	require.EqualValues(t, 2, s.a.Stats().ShrinksGranted)
	s.goes(s.a, s.b, vector(30))
	s.goes(s.a, s.b, vector(1000))
	s.registered(1)
	require.Equal(t, first, [2]*buffer{s.a.send.mirror, s.b.recv.buffer}, "the first ring stays")
	s.Golden(t, "keep-grown-shrunk")
}

// TestKeepSmall_E6_DescriptorBeforeItsMessage: where a descriptor is and its message is not yet, nothing
// comes, not even what is after it; that is counted as a head without a tail.
func TestKeepSmall_E6_DescriptorBeforeItsMessage(t *testing.T) {
	s := newTranscriptPair(t, keepThree)
	s.goes(s.a, s.b, vector(1000))
	v, after := vector(5000), vector(7)
	require.Equal(t, Done, s.transfers(s.a, v))
	require.Equal(t, Done, s.transfers(s.a, after))
	l := s.b.recv.large
	placed := l.ring[l.pos*lineSize:][:linesOf(5016)*lineSize]
	good := bytes.Clone(placed)
	clear(placed)
	s.Say("the message in the large ring is held back")
	before := s.b.Stats().HeadsWithoutTail
	for i, n := range []int{0, 8, 64, len(good) - 8} {
		copy(placed, good[:n])
		s.receives(s.b, nil)
		require.EqualValues(t, i+1, s.b.Stats().HeadsWithoutTail-before)
	}
	copy(placed, good)
	s.Say("it is there")
	s.receives(s.b, append(v.joined(0, 1), after.joined(0, 1)...))
	s.Golden(t, "keep-descriptor-first")
}

// TestKeepSmall_E6_LargeAlone: a stream of large messages one way runs for ever, though their descriptors
// come to less than a threshold: CREDIT goes for the large ring; and the end of that ring is left out where a
// message does not fit.
func TestKeepSmall_E6_LargeAlone(t *testing.T) {
	for _, n := range []int{16384 - overhead - 16, 9000, 2000, 617} {
		d := newTestPair(t, keepThree)
		d.sendThrough(t, d.a, d.b, element(1, 1000))
		sent, got := 0, 0
		var out, in bytes.Buffer
		for sent < 300 {
			v := &Vector{Elems: [][]byte{element(sent, n)}}
			if _, o := d.transfer(t, d.a, v); o == Done {
				out.Write(v.Elems[0])
				sent++
				continue
			}
			before := got
			d.drive(t)
			in.Write(receiveAll(t, d.b))
			got = int(d.b.Stats().Received)
			require.Greater(t, got, before, "nothing goes any more")
			progress(t, d.b)
			d.drive(t)
			require.Empty(t, receiveAll(t, d.a))
			progress(t, d.a)
		}
		d.drive(t)
		in.Write(receiveAll(t, d.b))
		require.True(t, bytes.Equal(out.Bytes(), in.Bytes()))
		require.NotZero(t, d.b.Stats().Credits)
	}
}

// progress does what is due, which there must be room for.
func progress(t testing.TB, c *Channel) {
	t.Helper()
	owing, err := c.Progress()
	require.NoError(t, err)
	require.False(t, owing)
}

// TestKeepSmall_E6_RequestWaitsForTheLargeRingToo: as long as more than half of it is without credit, a
// CREDIT for it may be on its way.
func TestKeepSmall_E6_RequestWaitsForTheLargeRingToo(t *testing.T) {
	d := newTestPair(t, keepThree)
	d.sendThrough(t, d.a, d.b, element(1, 1000))
	for !d.a.send.large.creditImminent(&d.a.send) {
		_, o := d.transfer(t, d.a, vector(16000))
		require.Equal(t, Done, o)
	}
	require.Less(t, int(d.a.send.sent-d.a.send.credited), d.a.send.mirror.threshold())
	require.NoError(t, d.a.requestPhase(2))
	require.Equal(t, requestNone, d.a.pending.state)
	d.drive(t)
	require.NotEmpty(t, receiveAll(t, d.b))
	progress(t, d.b)
	d.drive(t)
	require.Empty(t, receiveAll(t, d.a))
	_, err := d.a.Progress()
	require.NoError(t, err)
	require.Equal(t, requestPosted, d.a.pending.state)
	d.driveUntilIdle(t)
	require.Equal(t, 2, d.a.Phase())
}

// TestKeepSmall_E6_CreditsHaveRoom: at no time is there no room for a CREDIT, whatever two ranks send in
// either ring, however seldom they look, and the lines that are unadvertised never stop them. A message of
// any size may wait for credit, but never for ever.
func TestKeepSmall_E6_CreditsHaveRoom(t *testing.T) {
	maxUnread := 0
	for _, phases := range [][]int{{100, 1000}, {640, 16384}, {2000, 2001}, {1000, 200_000}} {
		for seed := range uint64(30) {
			rng := rand.New(rand.NewPCG(seed, 77))
			d := newTestPair(t, Config{Phases: phases, KeepSmall: true})
			d.A.Depth, d.B.Depth = 1<<12, 1<<12
			both := []*Channel{d.a, d.b}
			for _, c := range both {
				require.NoError(t, c.requestPhase(1))
			}
			d.driveUntilIdle(t)
			for range 300 {
				i := rng.IntN(2)
				c := both[i]
				switch rng.IntN(4) {
				case 0: // as much as goes
					for n := range 1 + rng.IntN(200) {
						size := []int{0, c.send.maxBody, c.send.maxBody + 1,
							c.send.maxAnyBody}[(n+int(seed))%4]
						if seed%3 == 0 { // hardly anything but descriptors in the first ring
							size = c.send.maxBody + 1
						}
						reserve := c.Reserve
						if rng.IntN(4) == 0 {
							reserve, size = c.ReserveControl, 40
						}
						if reserve(size) != nil {
							require.NoError(t, c.Commit(Eager, false))
						}
					}
				case 1:
					for range rng.IntN(12) {
						_, _, _, err := c.Next()
						require.NoError(t, err)
						c.Release()
					}
				default:
					progress(t, c)
				}
				maxUnread = max(maxUnread, c.send.large.count)
				d.drive(t)
			}
			d.takeAll(t)
			for _, c := range both {
				require.NotEqual(t, DueResize, c.Due())
				require.NotNil(t, c.Reserve(c.send.maxAnyBody), "phases %v, seed %d", phases, seed)
				require.NotNil(t, c.Reserve(c.send.maxBody))
			}
		}
	}
	require.Greater(t, maxUnread, 80, "descriptors without credit")
}

// TestKeepSmall_E6_DescriptorsAreReclaimedInEveryWrap, though no large message goes any more: or the count of
// lines would go round.
func TestKeepSmall_E6_DescriptorsAreReclaimedInEveryWrap(t *testing.T) {
	d := newTestPair(t, keepThree)
	d.sendThrough(t, d.a, d.b, element(1, 1000))
	l := d.a.send.large
	require.Equal(t, 17, l.inUse)
	for range 2 * d.a.send.lines {
		sendMalformed(t, d.a, Eager, nil)
		d.oneWay(t)
	}
	require.Zero(t, l.inUse)
	require.Zero(t, l.count)
}

// fill has an end send control messages until only the lines for CREDIT are left.
func fill(t testing.TB, c *Channel) {
	t.Helper()
	for c.ReserveControl(1) != nil {
		require.NoError(t, c.Commit(RTS, false))
	}
}

// readOneByOne has B read all that came, and tell as soon as something is to be told, for which there must be
// room.
func (d *testPair) readOneByOne(t testing.TB) {
	t.Helper()
	d.drive(t)
	for {
		_, _, ok, err := d.b.Next()
		require.NoError(t, err)
		if !ok {
			return
		}
		d.b.Release()
		progress(t, d.b)
	}
}

// TestKeepSmall_E6_MaxCreditsUnread: A fills both its rings and reads nothing, and B has no lines but those
// for CREDIT.
func TestKeepSmall_E6_MaxCreditsUnread(t *testing.T) {
	for _, phases := range [][]int{{100, 1000}, {640, 16384}, {1000, 2000}, {2000, 200_000}} {
		for _, largeFirst := range []bool{true, false} {
			d := newTestPair(t, Config{Phases: phases, KeepSmall: true})
			d.A.Depth, d.B.Depth = 1<<12, 1<<12
			require.NoError(t, d.a.requestPhase(1))
			d.driveUntilIdle(t)
			fill(t, d.b)
			for i := range 2 {
				n := 0
				if (i == 0) == largeFirst {
					n = d.a.send.maxAnyBody
				}
				for d.a.Reserve(n) != nil {
					require.NoError(t, d.a.Commit(Eager, false))
					if n == 0 && !largeFirst &&
						d.a.send.lines-int(d.a.send.sent-d.a.send.credited) < 8+controlLines+creditLines+1 {
						break // the descriptors to come
					}
				}
			}
			d.readOneByOne(t)
			require.NotZero(t, d.b.Stats().Credits)
			require.LessOrEqual(t, int(d.b.Stats().Credits), creditLines)
			d.takeAll(t)
		}
	}
}

// TestKeepSmall_E11_ManyPhases: as often as the large ring changes while A reads nothing, B has room for
// CREDIT.
func TestKeepSmall_E11_ManyPhases(t *testing.T) {
	d := newTestPair(t, Config{Phases: []int{1000, 2000, 4000}, KeepSmall: true})
	d.A.Depth, d.B.Depth = 1<<12, 1<<12
	require.NoError(t, d.a.requestPhase(1))
	d.driveUntilIdle(t)
	for range 8 {
		fill(t, d.b)
		for { // until A has to read before it can ask
			for !(d.a.send.large.inUse > d.a.send.large.lines/2) && d.a.Reserve(d.a.send.maxAnyBody) != nil {
				require.NoError(t, d.a.Commit(Eager, false))
			}
			if d.a.paused || int(d.a.send.sent-d.a.send.credited) >= d.a.send.mirror.threshold() {
				break
			}
			require.NoError(t, d.a.requestPhase(3-d.a.Phase()))
			d.readOneByOne(t)
			d.drive(t)
			_, err := d.a.Progress()
			require.NoError(t, err)
			if d.a.paused {
				break
			}
		}
		d.readOneByOne(t)
		for d.a.Reserve(0) != nil {
			require.NoError(t, d.a.Commit(Eager, false))
		}
		d.readOneByOne(t)
		d.takeWhatComes(t)
		for d.a.Reserve(0) != nil {
			require.NoError(t, d.a.Commit(Eager, false))
		}
		d.readOneByOne(t)
		d.takeWhatComes(t)
	}
	require.GreaterOrEqual(t, int(d.a.Stats().EnlargesGranted+d.a.Stats().ShrinksGranted), 8)
}

// TestKeepSmall_E6_WhatIsUnadvertisedEndsWithItsRing: nothing of it is held against the ring that takes its
// place, which may have fewer lines.
func TestKeepSmall_E6_WhatIsUnadvertisedEndsWithItsRing(t *testing.T) {
	d := newTestPair(t, keepThree)
	for range 4 {
		d.sendThrough(t, d.a, d.b, element(1, 120_000))
	}
	require.Greater(t, d.b.recv.largeUnadvertised, geometry(threePhases, 1).lines)
	require.NoError(t, d.a.requestPhase(1))
	d.drive(t)
	require.Empty(t, receiveAll(t, d.b)) // and B does nothing else
	d.drive(t)
	_, err := d.a.Progress()
	require.NoError(t, err)
	require.Equal(t, 1, d.a.Phase())
	require.Zero(t, d.a.send.large.inUse)
	d.sendThrough(t, d.a, d.b, element(2, 16000))
}

// takeWhatComes is takeAll where a request may be open.
func (d *testPair) takeWhatComes(t testing.TB) {
	t.Helper()
	for range 8 {
		for _, c := range []*Channel{d.a, d.b} {
			receiveAll(t, c)
			_, err := c.Progress()
			require.NoError(t, err)
		}
		d.drive(t)
	}
}

// oneWay takes what has come to B, and tells.
func (d *testPair) oneWay(t testing.TB) {
	t.Helper()
	d.drive(t)
	receiveAll(t, d.b)
	progress(t, d.b)
	d.drive(t)
	receiveAll(t, d.a)
}

// takeAll takes and tells until nothing more comes.
func (d *testPair) takeAll(t testing.TB) {
	t.Helper()
	for range 8 {
		for _, c := range []*Channel{d.a, d.b} {
			receiveAll(t, c)
			progress(t, c)
		}
		d.drive(t)
	}
}

// TestKeepSmall_E5_DescriptorFindsTheQueueFull: the message counts as sent; nothing else goes before its
// descriptor, by whichever call that goes.
func TestKeepSmall_E5_DescriptorFindsTheQueueFull(t *testing.T) {
	for name, goOn := range map[string]func(d *testPair){
		"Progress": func(d *testPair) { progress(t, d.a) },
		"Settled": func(d *testPair) {
			ready, err := d.a.ResizeDone()
			require.NoError(t, err)
			require.True(t, ready)
		},
		"Transfer": func(d *testPair) {
			_, o := d.transfer(t, d.a, vector(0))
			require.Equal(t, Done, o)
		},
		"Close": func(d *testPair) {},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestPair(t, keepThree)
			d.sendThrough(t, d.a, d.b, element(1, 1000))
			d.driveUntilIdle(t)
			d.A.Depth = 1
			v := vector(5000)
			_, o := d.transfer(t, d.a, v)
			require.Equal(t, Done, o)
			require.Equal(t, DueResize, d.a.Due())
			require.Nil(t, d.a.Reserve(1))
			require.Nil(t, d.a.ReserveControl(1))
			require.Nil(t, d.a.Reserve(5000))
			require.ErrorIs(t, d.a.Commit(Eager, false), transport.ErrInvalid)
			require.NoError(t, d.a.ShrinkIfIdle())
			owing, err := d.a.Progress()
			require.NoError(t, err)
			require.True(t, owing)
			_, o = d.transfer(t, d.a, vector(3))
			require.Equal(t, Waiting, o)
			d.drive(t)
			require.Empty(t, receiveAll(t, d.b), "without a descriptor it is not there")
			d.A.Depth = 256
			if goOn(d); name == "Close" {
				return
			}
			require.NotEqual(t, DueResize, d.a.Due())
			d.drive(t)
			require.Equal(t, v.joined(0, 1), receiveAll(t, d.b))
		})
	}
}

// TestKeepSmall_E6_OnlyOneRankKeeps is refused at Open, by both.
func TestKeepSmall_E6_OnlyOneRankKeeps(t *testing.T) {
	d := newTestPair(t, Config{})
	for _, keep := range []bool{false, true} {
		c, err := New(d.A.PD(), Config{KeepSmall: keep})
		require.NoError(t, err)
		peer := Descriptor{Phases: DefaultPhases, KeepSmall: !keep, Key: 1, Generation: 1}
		err = c.Open(d.A, peer.Append(nil))
		require.ErrorIs(t, err, transport.ErrInvalid)
		require.ErrorContains(t, err, "all ranks of a job need the same")
		require.Equal(t, StateNew, c.State())
		require.NoError(t, c.Close())
	}
}

// TestKeepSmall_E6_Violations: what a peer says of the large ring that cannot be ends the channel.
func TestKeepSmall_E6_Violations(t *testing.T) {
	at := func(line uint32) []byte { return binary.LittleEndian.AppendUint32(nil, line) }
	// big writes into A's mirror of the large ring as an honest end would, and no descriptor.
	big := func(t *testing.T, d *testPair, header uint64, n int) {
		l := d.a.send.large
		if linesOf(n) > l.lines-l.pos {
			l.advanceCircular(l.lines - l.pos)
		}
		require.NoError(t, l.write(d.A, header, n, linesOf(n), false))
		l.advanceCircular(linesOf(n))
		d.drive(t)
	}
	eager := headerWord(0, Eager, false, 0)
	for name, crime := range map[string]func(t *testing.T, d *testPair){
		"a marker of no bytes": func(t *testing.T, d *testPair) { sendMalformed(t, d.a, large, nil) },
		"a marker of too many bytes": func(t *testing.T, d *testPair) {
			sendMalformed(t, d.a, large,
				append(at(0), 0))
		},
		"a marker of many bytes": func(t *testing.T, d *testPair) {
			sendMalformed(t, d.a, large,
				make([]byte, 500))
		},
		"a line further on": func(t *testing.T, d *testPair) {
			sendMalformed(t, d.a, large,
				at(uint32(d.a.send.large.pos)+1))
		},
		"a line that was read":   func(t *testing.T, d *testPair) { sendMalformed(t, d.a, large, at(1)) },
		"a line beyond the ring": func(t *testing.T, d *testPair) { sendMalformed(t, d.a, large, at(2048)) },
		"line 2^32-1": func(t *testing.T, d *testPair) {
			sendMalformed(t, d.a, large,
				at(1<<32-1))
		},
		"a credit in the large ring": func(t *testing.T, d *testPair) {
			big(t, d, eager|1, 700)
			sendMalformed(t, d.a,
				large, at(17))
		},
		"a wish in the large ring": func(t *testing.T, d *testPair) {
			big(t, d, headerWord(0, Eager, true, 0), 700)
			sendMalformed(t, d.a, large, at(17))
		},
		"a reserved bit in the large ring": func(t *testing.T,
			d *testPair) {
			big(t, d, eager|1<<63, 700)
			sendMalformed(t, d.a, large, at(17))
		},
		"a question in the large ring": func(t *testing.T, d *testPair) {
			big(t, d, headerWord(0, enlarge, false, 0), requestLen)
			sendMalformed(t, d.a, large, at(17))
		},
		"a CREDIT in the large ring": func(t *testing.T, d *testPair) {
			big(t, d,
				headerWord(0, credit, false, 0), 0)
			sendMalformed(t, d.a, large, at(17))
		},
		"a wrap in the large ring": func(t *testing.T, d *testPair) {
			big(t, d, headerWord(0, Eager, false, 0)|17<<prevEndBit, 700)
			sendMalformed(t, d.a, large, at(17))
		},
		"a marker in the large ring": func(t *testing.T, d *testPair) {
			big(t, d, headerWord(0, large, false, 0), indirectLen)
			sendMalformed(t, d.a, large, at(17))
		},
		"no kind in the large ring": func(t *testing.T, d *testPair) {
			big(t, d, headerWord(0, 200, false, 0),
				700)
			sendMalformed(t, d.a, large, at(17))
		},
		"more than the ring without a credit": func(t *testing.T, d *testPair) {
			for i := range 9 {
				line := d.a.send.large.pos
				if linesOf(16000) > d.a.send.large.lines-line {
					line = 0
				}
				big(t, d, eager, 16000)
				sendMalformed(t, d.a, large, at(uint32(line)))
				if i < 7 {
					d.drive(t)
					require.Len(t, receiveAll(t, d.b), 16000)
				}
			}
			d.drive(t)
			_, _, ok, err := d.b.Next() // the eighth may be all there is room for
			if ok && err == nil {
				d.b.Release()
			}
		},
		"SHRINK to phase 0 in phase 0": func(t *testing.T, d *testPair) {
			require.NoError(t, d.a.requestPhase(0))
			d.driveUntilIdle(t)
			require.Zero(t, d.a.Phase())
			sendMalformed(t, d.a, shrink, validRequest(d.a, 0).bytes())
		},
		"a marker without a large ring": func(t *testing.T, d *testPair) {
			require.NoError(t, d.a.requestPhase(0))
			d.driveUntilIdle(t)
			sendMalformed(t, d.a, large, at(0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestPair(t, keepThree)
			d.sendThrough(t, d.a, d.b, element(1, 1000)) // 17 lines of the large ring
			crime(t, d)
			requireViolation(t, d.b, d.next(t))
		})
	}
	t.Run("a marker where no small ring is kept", func(t *testing.T) {
		d := newTestPair(t, Config{Phases: threePhases})
		d.sendThrough(t, d.a, d.b, element(1, 1000))
		sendMalformed(t, d.a, large, at(17))
		requireViolation(t, d.b, d.next(t))
	})
	t.Run("a message without a marker is never read", func(t *testing.T) {
		d := newTestPair(t, keepThree)
		d.sendThrough(t, d.a, d.b, element(1, 1000))
		big(t, d, eager, 16000)
		d.driveUntilIdle(t)
		require.EqualValues(t, 1, d.b.Stats().Received)
		require.Zero(t, d.b.Stats().HeadsWithoutTail)
	})
	t.Run("a length that cannot be", func(t *testing.T) {
		d := newTestPair(t, keepThree)
		d.sendThrough(t, d.a, d.b, element(1, 1000))
		l := d.b.recv.large
		for line := range l.lines {
			binary.LittleEndian.PutUint64(l.ring[line*lineSize+56:], l.generation)
		}
		sendMalformed(t, d.a, large, at(17))
		for _, n := range []int{16361, 16384, 1 << 20, lengthMask} {
			binary.LittleEndian.PutUint64(l.ring[l.pos*lineSize:], headWord(l.generation, n))
			require.NoError(t, d.next(t))
		}
		require.EqualValues(t, 4, d.b.Stats().HeadsWithoutTail)
	})
	for name, spoil := range map[string]func(d *testPair, b []byte){
		"ACK of phase 0 with a ring": func(d *testPair, b []byte) {
			resizeReply{ack: true, shape: geometry(threePhases, 0), key: 1, generation: 2}.put(b,
				d.a.pending.generation)
		},
		"ACK of phase 1 without a ring": func(d *testPair, b []byte) {
			resizeReply{ack: true, shape: geometry(threePhases, 1)}.put(b, d.a.pending.generation)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestPair(t, keepThree)
			d.sendThrough(t, d.a, d.b, element(1, 100_000))
			phase := 0
			if name[len("ACK of phase ")] == '1' {
				phase = 1
			}
			require.NoError(t, d.a.requestPhase(phase))
			d.drive(t)
			require.Empty(t, receiveAll(t, d.b))
			d.drive(t)
			spoil(d, replyInSlot(d.a))
			_, err := d.a.Progress()
			requireViolation(t, d.a, err)
		})
	}
}

// TestKeepSmall_E6_MessageThatChangesUnderTheReader: a descriptor whose message was given is overwritten
// before it is released.
func TestKeepSmall_E6_MessageThatChangesUnderTheReader(t *testing.T) {
	d := newTestPair(t, keepThree)
	d.sendThrough(t, d.a, d.b, element(1, 1000))
	_, o := d.transfer(t, d.a, vector(5000))
	require.Equal(t, Done, o)
	d.drive(t)
	_, _, ok, err := d.b.Next()
	require.NoError(t, err)
	require.True(t, ok)
	before := d.b.recv.large.pos
	d.a.send.pos, d.a.send.sent = d.a.send.pos-1, d.a.send.sent-1
	sendMalformed(t, d.a, Eager, []byte("small"))
	d.drive(t)
	_, body, ok, err := d.b.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "small", string(body))
	d.b.Release()
	require.Equal(t, before, d.b.recv.large.pos)
	require.Empty(t, receiveAll(t, d.b))
}

// TestKeepSmall_E1_E13_Memory: what is registered is two small rings on each rank, and with them the large
// rings of the present phases; at one time there are six regions at most, the old and the new large ring
// being two of them.
func TestKeepSmall_E1_E13_Memory(t *testing.T) {
	maxRegions := 0
	for seed := range uint64(200) {
		s, err := tell(t, seed, allBeside, faults{})
		require.NoError(t, err)
		maxRegions = max(maxRegions, s.maxRegions)
	}
	require.Equal(t, 6, maxRegions)
	for _, slot := range []int{minSmall, 640, maxSmall} {
		phases := []int{slot, 4000, 16384}
		d := newTestPair(t, Config{Phases: phases, KeepSmall: true})
		require.LessOrEqual(t, d.A.Pages(), maxSmallMemory)
		small := 2 * geometry(phases, 0).region()
		for _, n := range []int{3000, 9000} {
			d.sendThrough(t, d.a, d.b, element(1, n))
			d.sendThrough(t, d.b, d.a, element(1, n))
			require.Equal(t, small+2*geometry(phases, d.a.Phase()).region(), d.a.Stats().Registered)
			require.Equal(t, 4, d.A.Regions())
		}
		for range 4 {
			require.NoError(t, d.a.ShrinkIfIdle())
			require.NoError(t, d.b.ShrinkIfIdle())
			d.driveUntilIdle(t)
		}
		require.Zero(t, d.a.Phase())
		require.Equal(t, small, d.a.Stats().Registered)
		require.LessOrEqual(t, d.A.Pages(), maxSmallMemory)
		require.Equal(t, 2, d.A.Regions())
	}
}

// TestKeepSmall_E11_Starving: what starves in the small ring asks for nothing, as a large ring would not help
// it; what starves in the large ring asks for the next phase.
func TestKeepSmall_E11_Starving(t *testing.T) {
	for _, n := range []int{100, 9000} {
		d := newTestPair(t, keepThree)
		d.A.Depth = 1 << 12
		d.sendThrough(t, d.a, d.b, element(1, 1000))
		for range stallLimit + 8 {
			for o := Done; o == Done; {
				_, o = d.transfer(t, d.a, vector(n))
			}
			d.drive(t)
			receiveAll(t, d.b)
			progress(t, d.b)
			d.drive(t)
			receiveAll(t, d.a)
			_, err := d.a.Progress()
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, d.a.Stats().Stalls, uint64(stallLimit))
		d.drive(t)
		receiveAll(t, d.b)
		d.driveUntilIdle(t)
		require.Equal(t, map[int]int{100: 1, 9000: 2}[n], d.a.Phase())
		asked := d.a.Stats().EnlargesSent
		for range 2 * stallLimit {
			d.a.BatchOverflowed()
		}
		d.driveUntilIdle(t)
		require.Equal(t, asked, d.a.Stats().EnlargesSent, "nor do bursts of small messages")
	}
}

// TestKeepSmall_E5_Allocations: in no phase does a message of either ring cost one.
func TestKeepSmall_E5_Allocations(t *testing.T) {
	d := newTestPair(t, keepThree)
	d.sendThrough(t, d.a, d.b, element(1, 1000))
	round := func(n int) func() {
		return func() {
			if d.a.Reserve(n) == nil || d.a.Commit(Eager, false) != nil || d.Drive() != nil {
				t.Fatal("no room")
			}
			if _, body, ok, err := d.b.Next(); !ok || err != nil || len(body) != n {
				t.Fatal(ok, err)
			}
			d.b.Release()
			if _, err := d.b.Progress(); err != nil || d.Drive() != nil {
				t.Fatal(err)
			}
			if _, _, ok, err := d.a.Next(); ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	}
	for _, n := range []int{8, 616, 617, 16360} {
		for range 200 {
			round(n)()
		}
		require.Zero(t, testing.AllocsPerRun(200, round(n)), "%d bytes", n)
	}
}
