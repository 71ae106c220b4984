package contextid

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// quietContexts is traffic of contexts of which some are busy.
type quietContexts map[uint32]bool

func (q quietContexts) ContextInUse(context uint32) bool { return q[context] }
func (q quietContexts) FreeContext(uint32)               {}
func (q quietContexts) ReleaseContext(uint32)            {}
func (q quietContexts) ReuseContext(uint32)              {}
func (q quietContexts) HasEndpoint(int) bool             { return true }

// Random groups agree on ids in random interleavings, give up at random moments, and free. At no time do two
// communicators with a common member have the same id.
func TestClaims_NeverCollide(t *testing.T) {
	const size, steps = 5, 20_000
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 7))
		ids := make([]*Claims, size)
		busy := make([]quietContexts, size)
		for rank := range ids {
			busy[rank] = quietContexts{}
			ids[rank] = NewClaims(rank, size, 1+int(seed%3), new(sync.Mutex), busy[rank])
			ids[rank].Limit(4)
		}
		// A vote under way, or a communicator: ranks[0] leads.
		type vote struct {
			id      uint32
			ranks   []int
			voted   int // members that have voted so far
			settled bool
		}
		var all []*vote
		used, agreed := map[uint32]int{}, 0
		for range steps {
			if len(all) < 12 {
				ranks := random.Perm(size)[:1+random.IntN(size)]
				if id, ok := ids[ranks[0]].Propose(AnyEndpoint); ok {
					all = append(all, &vote{id: id, ranks: ranks, voted: 1})
				}
			}
			if len(all) == 0 {
				continue
			}
			at := random.IntN(len(all))
			v := all[at]
			switch {
			case v.voted < len(v.ranks): // the next member votes
				if random.IntN(30) == 0 { // or the leader gives up: its vote never arrives
					ids[v.ranks[0]].Refuse(v.id)
					all = slices.Delete(all, at, at+1)
					for _, r := range v.ranks[1:v.voted] {
						ids[r].Refuse(v.id) // as if they learned of it, so that ids do not run out here
					}
					continue
				}
				r := v.ranks[v.voted]
				if !ids[r].Accept(v.id) {
					for _, r := range v.ranks[:v.voted] {
						ids[r].Refuse(v.id)
					}
					all = slices.Delete(all, at, at+1)
					continue
				}
				v.voted++
			case !v.settled:
				v.settled = true
				agreed++
				used[v.id]++
				for _, other := range all {
					if other == v || !other.settled || other.id != v.id {
						continue
					}
					for _, r := range other.ranks {
						require.NotContains(t, v.ranks, r, "id %d twice at rank %d, seed %d", v.id, r, seed)
					}
				}
			default:
				for _, r := range v.ranks {
					ids[r].Free(v.id)
				}
				all = slices.Delete(all, at, at+1)
			}
		}
		require.Greater(t, agreed, 1000)
		reused := 0
		for _, n := range used {
			reused = max(reused, n)
		}
		require.Greater(t, reused, 10, "ids are used again")
	}
}

// An id with traffic is not proposed and not accepted; without traffic it is.
func TestClaims_WaitForTraffic(t *testing.T) {
	busy := quietContexts{}
	ids := NewClaims(0, 2, 1, new(sync.Mutex), busy)
	ids.Limit(2)
	var all []uint32
	for {
		id, ok := ids.Propose(AnyEndpoint)
		if !ok {
			break
		}
		all = append(all, id)
	}
	require.Equal(t, []uint32{Numbered(1), Numbered(2)}, all) // 0 is the world's, and the last of four is left out
	busy[Collective.In(all[0])] = true
	ids.Free(all[0])
	_, ok := ids.Propose(AnyEndpoint)
	require.False(t, ok)
	require.False(t, ids.Accept(all[0]))
	busy[Collective.In(all[0])] = false
	id, ok := ids.Propose(AnyEndpoint)
	require.True(t, ok)
	require.Equal(t, all[0], id)
}

// Ids of different leaders differ, and no context is the largest uint32, in jobs of any size.
func TestClaims_OfAnySize(t *testing.T) {
	for _, size := range []int{1, 2, 3, 1000, 1 << 16, 1 << 20} {
		last := NewClaims(size-1, size, 1, new(sync.Mutex), quietContexts{})
		last.next[0] = 1<<last.counterBits - 2
		id, ok := last.Propose(AnyEndpoint)
		require.True(t, ok)
		require.Less(t, uint64(id)+Kinds-1, uint64(1)<<32-1)
		require.Equal(t, uint32(size-1), Number(id)>>last.counterBits)
	}
}
