package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// So many connects run at once, and no more; one that has no end keeps nobody waiting for long.
func TestConnects_TakeTurns(t *testing.T) {
	d := connections{places: make(chan struct{}, connectsAtOnce)}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	d.turn(over)() // it returns, with a place or without
	require.Empty(t, d.places)

	var leave []func()
	for range connectsAtOnce {
		d.places <- struct{}{}
		leave = append(leave, func() { <-d.places })
	}
	d.turn(over)()
	require.Len(t, d.places, connectsAtOnce, "a turn that never came has ended another")
	for _, f := range leave {
		f()
	}

	for range 2 * connectsAtOnce { // nobody leaves: each turn ends by itself
		d.turn(t.Context())
	}
}

// A rank that shares its core sleeps while it connects, rather than take turns for nothing.
func TestWaiting_SleepsDuringConnects(t *testing.T) {
	e := &Engine{}
	e.waiters.maxYields = 10
	var p spinBudget
	require.True(t, p.remaining(e))
	e.connections.underWay.Add(1)
	require.False(t, p.remaining(e))
	e.connections.underWay.Add(-1)
	require.True(t, p.remaining(e))
}
