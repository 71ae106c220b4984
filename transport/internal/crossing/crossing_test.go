package crossing

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// crossingWorld is two ranks that may begin connections to each other at any time.
type crossingWorld struct {
	side   [2]Crossing
	flight [2]crossingMessage // of the attempt that the side has begun
	dials  [2]int8            // attempts so far
	making [2]int8            // what the side has accepted and not yet made
	has    [2]int8            // the connection that stands
}

type crossingMessage uint8

const (
	noMessage crossingMessage = iota
	requestOnItsWay
	acceptOnItsWay
	rejectOnItsWay
)

// next are the worlds that one step leads to.
func (w crossingWorld) next(t *testing.T) (list []crossingWorld) {
	const most = 3 // attempts of a side
	for x := range 2 {
		y, n := 1-x, w
		id := int8(10*(x+1)) + n.dials[x]
		switch w.flight[x] {
		case noMessage:
			if n.dials[x] < most && n.side[x].Dial() {
				n.dials[x]++
				n.flight[x] = requestOnItsWay
				list = append(list, n)
			}
		case requestOnItsWay:
			n.flight[x] = rejectOnItsWay
			if n.side[y].Request(uint32(y), uint32(x)) {
				n.flight[x], n.making[y] = acceptOnItsWay, id
			}
			list = append(list, n)
		case acceptOnItsWay:
			require.Equal(t, Dialing, n.side[x].state, "an accepted connection is dropped: %+v", w)
			require.True(t, n.side[x].Dialed(true))
			n.flight[x], n.has[x] = noMessage, id
			list = append(list, n)
		case rejectOnItsWay:
			n.side[x].Dialed(false)
			n.flight[x] = noMessage
			list = append(list, n)
		}
		if n := w; n.making[x] != 0 {
			n.side[x].Made(true)
			n.has[x], n.making[x] = n.making[x], 0
			list = append(list, n)
		}
	}
	return list
}

// In every order of events between two ranks that both connect, a connection that one side accepts is kept by the other, and in the end
// both have the same one.
func TestCrossing_EveryOrderOfEvents(t *testing.T) {
	todo := []crossingWorld{{}}
	seen := map[crossingWorld]bool{todo[0]: true}
	crossed, ends := false, 0
	for len(todo) > 0 {
		w := todo[0]
		todo = todo[1:]
		next := w.next(t)
		crossed = crossed || w.flight == [2]crossingMessage{requestOnItsWay, requestOnItsWay}
		if len(next) == 0 {
			ends++
			require.NotZero(t, w.has[0], "%+v", w)
			require.Equal(t, w.has[0], w.has[1], "%+v", w)
			require.Equal(t, [2]Crossing{{Connected}, {Connected}}, w.side)
		}
		for _, n := range next {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	require.True(t, crossed, "no order in which two connections crossed")
	require.Greater(t, ends, 2)
}

// A connection that has ended makes room for another; an attempt that is under way is not touched by the end of an earlier one.
func TestCrossing_Released(t *testing.T) {
	c := Crossing{}
	c.Released()
	require.Equal(t, None, c.state)
	require.True(t, c.Dial())
	c.Released()
	require.Equal(t, Dialing, c.state, "the end of another connection is none of this attempt's")
	require.True(t, c.Dialed(true))
	require.False(t, c.Dial())
	require.False(t, c.Request(1, 0))
	c.Released()
	require.True(t, c.Request(1, 0))
	require.False(t, c.Request(1, 0), "while one is being made")
	c.Made(false)
	require.True(t, c.Request(1, 0), "when that has failed")
}

// When both are dialing, the lower rank's connection stays.
func TestCrossing_LowerRankStays(t *testing.T) {
	low, high := Crossing{Dialing}, Crossing{Dialing}
	require.False(t, low.Request(2, 7))
	require.Equal(t, Dialing, low.state)
	require.True(t, high.Request(7, 2))
	require.Equal(t, Accepting, high.state)
	require.False(t, high.Dialed(false), "that it was turned down decides nothing: another is being made")
	require.Equal(t, Accepting, high.state)
}
