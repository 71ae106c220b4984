package channel

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/transport"
)

// story is a run of two growers over a Pair, always the same, into which a test puts a fault at one place.
type story struct {
	*channeltest.Pair
	ranks      [2]*grower
	budgets    [2]*Budget
	posts      int // requests that were posted, or refused
	allocs     int // regions that were asked for after the start
	calls      int // of the channels
	maxRegions int // regions of one rank at one time
}

// faults are where the story is disturbed; 0 for nowhere.
type faults struct {
	fullAt  int // the send queue is full for this post …
	fullFor int // … and as many as this
	poorAt  int // there is no memory for this region …
	poorFor int // … and as many as this
	endAt   int // after this call both channels are ended
	end     func(c *Channel) error
	start   uint32 // of the counts of lines
}

func within(n, at, length int) bool { return at > 0 && n >= at && n < at+length }

// storyQP is a queue pair that refuses some posts.
type storyQP struct {
	transport.QP
	s *story
	f faults
}

func (q storyQP) PostSend(wr *transport.SendWR) error {
	if q.s.posts++; within(q.s.posts, q.f.fullAt, q.f.fullFor) {
		return fmt.Errorf("wrapped: %w", transport.ErrQueueFull)
	}
	return q.QP.PostSend(wr)
}

// storyPD is a protection domain that refuses some regions.
type storyPD struct {
	transport.PD
	s *story
	f faults
}

var errNoMemory = errors.New("no memory")

func (p storyPD) Alloc(n int, access transport.Access) (transport.MR, error) {
	if p.s.ranks[1] == nil || p.s.ranks[1].ch.state == StateNew { // the start
		return p.PD.Alloc(n, access)
	}
	if p.s.allocs++; within(p.s.allocs, p.f.poorAt, p.f.poorFor) {
		return nil, errNoMemory
	}
	mr, err := p.PD.Alloc(n, access)
	p.s.maxRegions = max(p.s.maxRegions, p.s.A.Regions(), p.s.B.Regions())
	return mr, err
}

// storyCQ is an End as a completion queue.
type storyCQ struct {
	transport.CQ
	end *channeltest.End
}

func (c storyCQ) Poll(wc []transport.WC) int { return c.end.Poll(wc) }

var errEnded = errors.New("ended by the test")

// tell runs a story to its end, and to the end of its channels.
func tell(t *testing.T, seed uint64, sc scenario, f faults) (*story, error) {
	s := &story{Pair: channeltest.NewPair()}
	rng := rand.New(rand.NewPCG(seed, 3))
	ends := [2]*channeltest.End{s.A, s.B}
	for i, end := range ends {
		end.Depth = 3
		g := &grower{scenario: sc, rank: i, rng: rng, side: &channeltest.Side{QP: end, CQ: storyCQ{end: end}}}
		s.budgets[i] = NewBudget(sc.budget)
		g.conf.Budget = s.budgets[i]
		var err error
		g.ch, err = New(storyPD{end.PD(), s, f}, g.conf)
		require.NoError(t, err)
		s.ranks[i] = g
	}
	for i, g := range s.ranks {
		require.NoError(t, g.ch.Open(storyQP{ends[i], s, f}, s.ranks[1-i].ch.Descriptor()))
		for range 4 {
			require.NoError(t, ends[i].PostRecv(&transport.RecvWR{}))
		}
		c := g.ch
		countFrom(c, f.start)
	}
	err := s.run(seed, f)
	if err == nil || errors.Is(err, errEnded) {
		end := f.end
		if end == nil {
			end = (*Channel).Close
		}
		for i, g := range s.ranks {
			require.NoError(t, end(g.ch))
			require.Zero(t, g.ch.Stats().Registered)
			require.Zero(t, s.budgets[i].used.Load())
			require.Zero(t, ends[i].Regions())
			afterwards(t, g.ch)
			require.Zero(t, ends[i].Regions())
		}
	}
	return s, err
}

func (s *story) run(seed uint64, f faults) error {
	rng := s.ranks[0].rng
	total := s.ranks[0].total
	for steps := 0; s.ranks[0].got < total || s.ranks[1].got < total || s.ranks[0].ch.paused ||
		s.ranks[1].ch.paused; steps++ {
		if steps > 5000*total {
			return fmt.Errorf("no progress: %+v\n%+v", s.ranks[0].ch, s.ranks[1].ch)
		}
		g := s.ranks[rng.IntN(2)]
		if err := g.poll(); err != nil {
			return err
		}
		if err := g.step(seed); err != nil {
			return err
		}
		if s.calls++; s.calls == f.endAt {
			return errEnded
		}
		if rng.IntN(4) == 0 {
			if err := s.Drive(); err != nil {
				return err
			}
		}
	}
	return nil
}

// afterwards calls everything of a channel that has ended: nothing happens.
func afterwards(t *testing.T, c *Channel) {
	before := c.Stats()
	v := &Vector{Elems: [][]byte{make([]byte, 1<<20)}}
	for _, v := range []*Vector{v, {Elems: [][]byte{{1}}}, {}} {
		n, o, err := v.TrySend(c, Eager, nil, 0)
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, Waiting, o)
	}
	o, err := c.GrowFor(v, 0)
	require.NoError(t, err)
	require.Equal(t, Waiting, o)
	require.NoError(t, c.ShrinkIfIdle())
	owing, err := c.Progress()
	require.NoError(t, err)
	require.False(t, owing)
	ready, err := c.ResizeDone()
	require.NoError(t, err)
	require.False(t, ready)
	require.NotEqual(t, DueResize, c.Due())
	_, _, ok, err := c.Next()
	require.NoError(t, err)
	require.False(t, ok)
	c.Release()
	require.Nil(t, c.Reserve(0))
	require.Nil(t, c.ReserveControl(1))
	require.ErrorIs(t, c.Commit(Eager, false), transport.ErrInvalid)
	require.ErrorIs(t, c.RetransmitReply(), transport.ErrProtocol)
	require.Zero(t, c.MaxBody())
	require.Negative(t, c.MaxElement(1))
	require.NoError(t, c.Close())
	require.NoError(t, c.Fail(errCut))
	require.Equal(t, before, c.Stats())
}

// all is everything that can happen to a channel, in few messages.
var all = scenario{
	conf: Config{Phases: []int{200, 1000, 4000}}, budget: 200 << 10, corrupt: 0.4, tick: 0.1, total: 12,
}

// allBeside is the same with large rings beside the small ones.
var allBeside = scenario{
	conf: Config{Phases: []int{200, 1000, 4000}, KeepSmall: true}, budget: 200 << 10, corrupt: 0.4,
	tick: 0.1, total: 12,
}

// plots are what is told, with faults.
var plots = map[string]scenario{"one ring": all, "beside": allBeside}

// undisturbed tells the stories of a plot as they are, and finds in them all that these tests are about.
func undisturbed(t *testing.T, plot scenario) (told []*story) {
	var both Stats
	for seed := range testlength.Of[uint64](12, 3) {
		s, err := tell(t, seed, plot, faults{})
		require.NoError(t, err)
		sum(&both, [2]Stats{s.ranks[0].ch.stats, s.ranks[1].ch.stats})
		told = append(told, s)
	}
	require.NotZero(t, both.EnlargesGranted)
	require.NotZero(t, both.ShrinksGranted)
	require.NotZero(t, both.CorruptReplies)
	require.Zero(t, both.ResizesRefused)
	return told
}

// TestEnlarge_E10_MemoryFailsAnywhere: whichever region cannot be had, and however many after it, all
// messages arrive.
func TestEnlarge_E10_MemoryFailsAnywhere(t *testing.T) {
	for name, plot := range plots {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed, whole := range undisturbed(t, plot) {
				for _, length := range []int{1, 3, math.MaxInt32} {
					for at := 1; at <= whole.allocs; at++ {
						s, err := tell(t, uint64(seed), plot, faults{poorAt: at, poorFor: length})
						require.NoError(t, err, "seed %d: region %d", seed, at)
						refused := s.ranks[0].ch.stats.ResizesRefused + s.ranks[1].ch.stats.ResizesRefused
						require.NotZero(t, refused, "seed %d: region %d: the fault did not strike", seed, at)
					}
				}
			}
		})
	}
}

// TestEnlarge_E5_QueueFullAnywhere: whichever post finds the send queue full, and some more after it, all
// messages arrive.
func TestEnlarge_E5_QueueFullAnywhere(t *testing.T) {
	for name, plot := range plots {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed, whole := range undisturbed(t, plot) {
				for _, length := range []int{1, 7} {
					for at := 1; at <= whole.posts; at++ {
						s, err := tell(t, uint64(seed), plot, faults{fullAt: at, fullFor: length})
						require.NoError(t, err, "seed %d: post %d", seed, at)
						require.GreaterOrEqual(t, s.posts, at, "the fault did not strike")
					}
				}
			}
		})
	}
}

// TestEnlarge_E13_EndAnywhere: after whichever call a channel is closed or failed, nothing of it is left, and
// nothing can be done with it. Its counters stay what they were, but for the registered bytes, which are none:
// seen to fail where the end of a channel clears its counters, and where it does not count the bytes down.
func TestEnlarge_E13_EndAnywhere(t *testing.T) {
	for name, plot := range plots {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, all := map[string]int{}, Stats{}
			step := testlength.Of(1, 3) // odd, for ends of both kinds
			for seed, whole := range undisturbed(t, plot) {
				for at := 1 + seed%step; at < whole.calls; at += step {
					full := 1 + at*whole.posts/whole.calls // near that call
					_, err := tell(t, uint64(seed), plot, faults{fullAt: full, fullFor: 3, endAt: at,
						end: func(c *Channel) error {
							note(states, c)
							before, err := c.Stats(), error(nil)
							if at%2 == 0 {
								err = c.Close()
							} else {
								err = c.Fail(errCut)
							}
							all.EnlargesSent += before.EnlargesSent
							before.Registered = 0
							require.Equal(t, before, c.Stats())
							return err
						}})
					if err != nil { // some runs are shorter with the fault
						require.ErrorIs(t, err, errEnded)
					}
				}
			}
			want := []string{"open", "wanted", "asked", "corrupt", "answer due", "asked, ring gone"}
			if plot.conf.KeepSmall { // there no ring goes whose reply slot is in use
				want[len(want)-1] = "marker due"
			}
			for _, state := range want {
				require.NotZero(t, states[state], state)
			}
			require.NotZero(t, all.EnlargesSent)
		})
	}
}

// note counts the states in which channels end.
func note(states map[string]int, c *Channel) {
	switch a := c.pending; {
	case a.state == requestRetransmitDue:
		states["corrupt"]++
	case a.state == requestPosted && a.replySlot != c.recv.buffer:
		states["asked, ring gone"]++
	case a.state == requestPosted:
		states["asked"]++
	case c.wantedPhase >= 0:
		states["wanted"]++
	default:
		states["open"]++
	}
	if c.reply.unsent {
		states["answer due"]++
	}
	if c.send.descriptorUnsent() {
		states["marker due"]++
	}
}

// TestEnlarge_E8_CountsGoOver: everything happens while the counts of lines go over 2^32, and over 2^31.
func TestEnlarge_E8_CountsGoOver(t *testing.T) {
	for name, plot := range plots {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plot.total += 4
			for seed := range uint64(20) {
				for _, start := range []uint32{math.MaxUint32, math.MaxUint32 - 7, math.MaxUint32 - 20,
					1<<31 - 1, 1<<31 - 20} {
					s, err := tell(t, seed, plot, faults{start: start})
					require.NoError(t, err, "seed %d", seed)
					for _, g := range s.ranks {
						require.Greater(t, g.ch.send.sent-start, uint32(20), "the counts went over")
					}
				}
			}
		})
	}
}
