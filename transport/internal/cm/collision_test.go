package cm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// collisionWorld is two ranks that may begin connections to each other at any time.
type collisionWorld struct {
	side   [2]Collision
	flight [2]collisionMessage // of the attempt that the side has begun
	dials  [2]int8             // attempts so far
	making [2]int8             // what the side has accepted and not yet made
	has    [2]int8             // the connection that stands
}

type collisionMessage uint8

const (
	noMessage collisionMessage = iota
	requestOnItsWay
	acceptOnItsWay
	readyOnItsWay
	rejectOnItsWay
)

// next are the worlds that one step leads to.
func (w collisionWorld) next(t *testing.T) (list []collisionWorld) {
	const maxDials = 3 // attempts of a side
	for x := range 2 {
		y, n := 1-x, w
		id := int8(10*(x+1)) + n.dials[x]
		switch w.flight[x] {
		case noMessage:
			if n.dials[x] < maxDials && n.side[x].Dial() {
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
			require.True(t, n.side[x].Commit(), "an accepted connection is dropped: %+v", w)
			n.flight[x] = readyOnItsWay
			list = append(list, n)
		case readyOnItsWay:
			require.True(t, n.side[x].Dialed(true))
			n.flight[x], n.has[x] = noMessage, id
			list = append(list, n)
		case rejectOnItsWay:
			n.side[x].Dialed(false)
			n.flight[x] = noMessage
			list = append(list, n)
		}
		if n := w; n.making[x] != 0 {
			n.side[x].Accepted(true)
			n.has[x], n.making[x] = n.making[x], 0
			list = append(list, n)
		}
	}
	return list
}

// In every order of events between two ranks that both connect, a connection that one side accepts is kept by
// the other, and in the end both have the same one.
func TestCollision_EveryOrderOfEvents(t *testing.T) {
	todo := []collisionWorld{{}}
	seen := map[collisionWorld]bool{todo[0]: true}
	collided, ends := false, 0
	for len(todo) > 0 {
		w := todo[0]
		todo = todo[1:]
		next := w.next(t)
		collided = collided || w.flight == [2]collisionMessage{requestOnItsWay, requestOnItsWay}
		if len(next) == 0 {
			ends++
			require.NotZero(t, w.has[0], "%+v", w)
			require.Equal(t, w.has[0], w.has[1], "%+v", w)
			require.Equal(t, [2]Collision{{Connected}, {Connected}}, w.side)
		}
		for _, n := range next {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	require.True(t, collided, "no order in which two connections collided")
	require.Greater(t, ends, 2)
}

// A connection that has ended makes room for another; an attempt that is under way is not touched by the end
// of an earlier one.
func TestCollision_Released(t *testing.T) {
	c := Collision{}
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
	c.Accepted(false)
	require.True(t, c.Request(1, 0), "when that has failed")
}

// When both are dialing, the lower rank's connection stays.
func TestCollision_LowerRankStays(t *testing.T) {
	low, high := Collision{Dialing}, Collision{Dialing}
	require.False(t, low.Request(2, 7))
	require.Equal(t, Dialing, low.state)
	require.True(t, high.Request(7, 2))
	require.Equal(t, Accepting, high.state)
	require.False(t, high.Dialed(false), "that it was turned down decides nothing: another is being made")
	require.Equal(t, Accepting, high.state)
}

// A connection that the peer has accepted is not displaced by one that the peer began earlier.
func TestCollision_CommittedStays(t *testing.T) {
	high := Collision{Dialing}
	require.True(t, high.Commit())
	require.False(t, high.Request(7, 2))
	require.True(t, high.Dialed(true))

	high = Collision{Dialing}
	require.True(t, high.Request(7, 2))
	require.False(t, high.Commit(), "the peer's was accepted before")
	require.False(t, high.Dialed(false))
}
