package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// door is an admission machine with a clock, and who stands where.
type door struct {
	Control
	now time.Time
}

func newDoor(places int) *door {
	return &door{Control: Control{Places: places, Grace: time.Second}, now: time.Unix(1000, 0)}
}

func (d *door) comes(address string) (s, out *Conn) {
	s = &Conn{Address: address}
	return s, d.Enter(s, d.now)
}

func TestAdmission_WhoGoesForANewcomer(t *testing.T) {
	d := newDoor(4)
	first, out := d.comes("a")
	require.Nil(t, out)
	d.now = d.now.Add(d.Grace / 2)
	greeted, _ := d.comes("b")
	greeted.Greeted = true
	lonely, _ := d.comes("c")
	crowd, _ := d.comes("b")
	require.Equal(t, d.Grace/2, d.Wait(d.now), "everybody is in his grace: the newcomer waits for the oldest")

	d.now = d.now.Add(d.Grace / 2)
	require.Zero(t, d.Wait(d.now))
	last, out := d.comes("d")
	require.Same(t, first, out, "nobody else's grace is over")
	require.True(t, out.Evicted)

	d.now = d.now.Add(d.Grace)
	_, out = d.comes("e")
	require.Same(t, crowd, out, "its address has two places, and it has said nothing")
	d.Leave(last)
	d.Leave(last)
	require.Zero(t, d.Wait(d.now))
	_, out = d.comes("f")
	require.Nil(t, out, "there was a place")
	_, out = d.comes("g")
	require.Same(t, lonely, out, "it has said nothing, the other has sent a Hello")
	d.now = d.now.Add(d.Grace)
	for range 3 {
		_, out = d.comes("h")
		require.NotSame(t, greeted, out)
	}
	_, out = d.comes("i")
	require.Same(t, greeted, out, "all others are in their grace")
}

// With several listeners a newcomer may be accepted although all places are taken by others in their grace:
// it goes itself.
func TestAdmission_AcceptedNewcomerGoesIfAllOthersAreInTheirGrace(t *testing.T) {
	d := newDoor(2)
	first, _ := d.comes("a")
	second, _ := d.comes("a")
	require.Equal(t, d.Grace, d.Wait(d.now))
	third, out := d.comes("b")
	require.Same(t, third, out)
	require.True(t, third.Evicted)
	require.Equal(t, []*Conn{first, second}, d.Pending)
	d.Leave(third)
	require.Equal(t, []*Conn{first, second}, d.Pending)
}

// Whatever unauthenticated callers do, a rank that proves itself within its grace gets in: it is taken in when the grace of
// those inside is over at the latest, and it does not go before its own is. There are never more inside than
// places, and each goes at most once.
func TestAdmission_NobodyKeepsARankOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDoor(rapid.IntRange(1, 8).Draw(t, "places"))
		inside := map[*Conn]bool{}
		waiting := time.Duration(0) // how long the newcomer at the door has waited
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0: // somebody greets, or leaves
				for _, s := range d.Pending {
					if s.Greeted = true; rapid.Bool().Draw(t, "leaves") {
						d.Leave(s)
						delete(inside, s)
						break
					}
				}
			case 1:
				step := time.Duration(rapid.IntRange(1, 700).Draw(t, "ms")) * time.Millisecond
				if wait := d.Wait(d.now); wait > 0 {
					step = min(step, wait)
					waiting += step
				}
				d.now = d.now.Add(step)
			default:
				if d.Wait(d.now) > 0 {
					continue
				}
				if waiting > d.Grace {
					t.Fatalf("a newcomer waited %v", waiting)
				}
				waiting = 0
				s, out := d.comes(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "address"))
				if out != nil {
					if !inside[out] || !out.Evicted || d.now.Sub(out.since) < d.Grace {
						t.Fatalf("%+v goes at %v", out, d.now)
					}
					for s := range inside {
						if out.Greeted && !s.Greeted && d.now.Sub(s.since) >= d.Grace {
							t.Fatalf("%+v goes before %+v, who has said nothing", out, s)
						}
					}
					delete(inside, out)
				}
				inside[s] = true
			}
			if len(d.Pending) != len(inside) || len(inside) > d.Places {
				t.Fatalf("%d inside, %d of them known, %d places", len(d.Pending), len(inside), d.Places)
			}
		}
	})
}
