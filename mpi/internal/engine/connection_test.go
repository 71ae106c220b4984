package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// So many connects run at once, and no more; one that has no end keeps nobody waiting for long.
func TestConnects_TakeTurns(t *testing.T) {
	d := connections{connects: make(chan struct{}, connectsAtOnce)}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	d.acquire(over)() // it returns, with a place or without
	require.Empty(t, d.connects)

	var leave []func()
	for range connectsAtOnce {
		d.connects <- struct{}{}
		leave = append(leave, func() { <-d.connects })
	}
	d.acquire(over)()
	require.Len(t, d.connects, connectsAtOnce, "a turn that never came has ended another")
	for _, f := range leave {
		f()
	}

	for range 2 * connectsAtOnce { // nobody leaves: each turn ends by itself
		d.acquire(t.Context())
	}
}

// A peer that connects while a connect to it waits for its turn is not looked up.
func TestConnects_LookUpNobodyWhoHasConnected(t *testing.T) {
	e := &Engine{hub: &Hub{connects: make(chan struct{}, connectsAtOnce)}}
	e.waiting.life = t.Context()
	e.connections.init(e, Config{ConnectTimeout: time.Minute, Lookup: func(uint32, string) (string, error) {
		t.Error("it was looked up")
		return "", errors.New("nobody is there")
	}})
	for range connectsAtOnce {
		e.connections.connects <- struct{}{}
	}
	p := &peer{rank: 1}
	e.mu.Lock()
	e.connections.connectLocked(p)
	p.state = peerOpen
	e.connections.settledLocked(p)
	e.mu.Unlock()
	for range connectsAtOnce {
		<-e.connections.connects
	}
	e.connections.connecting.Wait()
	require.Zero(t, e.connections.underWay.Load())
}

// beginner is an endpoint that begins connections, and notes in which order it does what.
type beginner struct {
	transport.Endpoint
	done string
}

func (*beginner) Reaches(string) bool { return true }

func (b *beginner) Begin(peer uint32, _ string, _ func()) bool {
	b.done += fmt.Sprint("begin ", peer, " ")
	return true
}

func (b *beginner) Ask() { b.done += "ask " }

// A rank that shares its core wakes its peers when it has begun all connects, another one each at once. Neither
// keeps them waiting for its launcher, or for a turn.
func TestConnects_WakePeersTogether(t *testing.T) {
	for spin, want := range map[time.Duration]string{
		0:           "begin 1 begin 2 begin 3 ask ",
		time.Second: "begin 1 ask begin 2 ask begin 3 ask ",
	} {
		b := &beginner{}
		e := &Engine{hub: &Hub{connects: make(chan struct{}, connectsAtOnce)}}
		e.mu.Init()
		e.waiting.life, e.waiting.spinTime = t.Context(), spin
		e.fabrics = []*fabric{{device: &device{name: "memory", listener: b}}}
		e.connections.init(e, Config{ConnectTimeout: time.Minute, SpinTime: spin,
			Lookup:      func(uint32, string) (string, error) { return "there", nil },
			LookupAhead: func([]uint32) { require.Empty(t, b.done) }})
		e.mu.Lock()
		for rank := range 3 {
			e.connections.connectLocked(&peer{rank: rank + 1})
		}
		e.mu.Unlock()
		e.connections.connecting.Wait()
		require.Equal(t, want, b.done)

		for range connectsAtOnce {
			e.connections.connects <- struct{}{}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		e.connections.begun, b.done = 1, ""
		e.connections.acquire(over)()
		require.Equal(t, "ask ", b.done)
	}
}

// A rank that shares its core with many others, all of which it knows, sleeps sooner than one that polls a few
// peers.
func TestWaiting_SleepsSoonerWithManyPeers(t *testing.T) {
	for _, many := range []bool{false, true} {
		e := &Engine{hub: &Hub{}}
		e.waiting.began, e.waiting.maxYields = time.Now(), yieldsPolling
		e.waiting.manyPeers.Store(many)
		var p spinBudget
		yields := 1
		for p.remaining(e) {
			yields++
		}
		require.Equal(t, map[bool]int{false: yieldsPolling, true: yieldsManyPeers}[many], yields)
	}
}

// If the ranks are goroutines of a process, a yield runs others.
func TestWaiting_YieldsToRanksOfTheProcess(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e := &Engine{hub: &Hub{}}
	e.waiting.init(e, Config{Together: true})
	var runs atomic.Int64
	over := make(chan struct{})
	go func() {
		for ; ; runtime.Gosched() {
			select {
			case <-over:
				return
			default:
				runs.Add(1)
			}
		}
	}()
	const passes = 10
	for pass := range passes {
		e.waiting.yieldCore(pass)
	}
	ran := runs.Load()
	close(over)
	require.GreaterOrEqual(t, ran, int64(passes/2))
}

// A rank that shares its core sleeps while it connects, rather than take turns for nothing.
func TestWaiting_SleepsDuringConnects(t *testing.T) {
	e := &Engine{hub: &Hub{}}
	e.waiting.maxYields = 10
	var p spinBudget
	require.True(t, p.remaining(e))
	e.connections.underWay.Add(1)
	require.False(t, p.remaining(e))
	e.connections.underWay.Add(-1)
	require.True(t, p.remaining(e))
}

// A rank that is asked for what it waits for sleeps at once, and so says it: on a busy host its yields take
// longer than it is asked.
func TestWaiting_SleepsToDescribe(t *testing.T) {
	e := &Engine{hub: &Hub{}}
	e.waiting.e, e.waiting.maxYields = e, 10
	var p spinBudget
	require.True(t, p.remaining(e))
	e.waiting.ask()
	require.False(t, p.remaining(e))
	e.describe(&State{})
	require.True(t, p.remaining(e))
}
