package mpitest

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
)

// Kill ends a rank at the beginning of its call-th call, as when its process is killed: it does nothing more,
// and its connections are cut. Calls that move messages or wait are counted, from 1: a composite call, such
// as Sendrecv, counts as several. The job survives failed ranks (WEFT_SURVIVE), and the test does not fail
// because of the rank.
func Kill(rank, call int) Option {
	return func(o *options) {
		if o.kills == nil {
			o.kills = map[int]int{}
		}
		o.kills[rank] = call
	}
}

// Slow makes a rank go on only when no other rank can.
func Slow(rank int) Option {
	return func(o *options) {
		if o.slow == nil {
			o.slow = map[int]bool{}
		}
		o.slow[rank] = true
	}
}

// SlowLink delivers messages between two ranks, in both directions, after all others: they take a second of
// the ranks' time.
func SlowLink(a, b int) Option {
	return func(o *options) { o.slowLinks = append(o.slowLinks, [2]int{a, b}) }
}

// KillEach runs body once for each call of a rank, and kills the rank at that call, in subtests call=1,
// call=2, …. A first run without a kill, in the subtest call=none, counts the calls. All runs have the same
// seed, so a rank reaches the call at which it is killed as in the first run.
func KillEach(t *testing.T, n, rank int, body Body, opts ...Option) {
	t.Helper()
	if rank < 0 || rank >= n {
		t.Fatalf("mpitest: KillEach of rank %d of %d", rank, n)
	}
	calls := 0
	run := func(name string, call int) bool {
		return t.Run(name, func(t *testing.T) {
			t.Helper()
			with := append(opts[:len(opts):len(opts)], Kill(rank, call))
			o, err := chosen(t, "KillEach", n, body, with)
			if err != nil {
				t.Fatal(err)
			}
			j := newJob(t, n, body, o.seed, o)
			if err := runOnce(j); err != nil {
				t.Fatal(err)
			}
			calls = max(calls, int(j.ranks[rank].calls.Load()))
		})
	}
	if !run("call=none", 0) {
		return
	}
	for call := 1; call <= calls; call++ {
		run(fmt.Sprintf("call=%d", call), call)
	}
}

// errKilled is the error of a body whose rank is killed.
var errKilled = errors.New("the rank is killed")

// countCall counts a call that begins, and ends the rank if it is to be killed at this call, or has been
// killed.
func (r *rank) countCall() {
	if call := r.calls.Add(1); r.killAt == 0 || call < r.killAt || r.returned.Load() {
		return
	}
	if r.killed.CompareAndSwap(false, true) {
		r.job.network.Vanish(uint32(r.number))
	}
	runtime.Goexit()
}
