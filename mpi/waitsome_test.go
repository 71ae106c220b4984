package mpi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// TestSeveral has 5 ranks, more than there are cores, complete their requests through every call for several.
func TestSeveral(t *testing.T) { together(t, 5, several) }

var several = body("several", func(_ context.Context, world *mpi.Comm) error {
	const each, lanes = 200, 2
	me, size := world.Rank(), world.Size()
	var wg sync.WaitGroup
	errs := make([]error, 1+lanes)
	wg.Go(func() { errs[0] = severalSend(world, each*lanes) })
	for lane := range lanes { // two goroutines wait for several at the same time
		wg.Go(func() { errs[1+lane] = severalReceive(world, each*size, uint64(me*lanes+lane)) })
	}
	wg.Wait()
	return firstError(errs...)
})

// severalSend sends n messages to every rank: who sends it, its number, and a payload that follows from both.
func severalSend(world *mpi.Comm, n int) error {
	rng := rand.New(rand.NewPCG(1, uint64(world.Rank())))
	open := make([]mpi.Request, 16)
	at := 0
	for seq := range n {
		for dst := range world.Size() {
			buf := make([]int64, severalLen(world.Rank(), seq))
			for i := range buf {
				buf[i] = int64(world.Rank()*1_000_000 + seq*1000 + i%1000)
			}
			send := mpi.Isend[int64]
			if rng.IntN(3) == 0 {
				send = mpi.Issend[int64]
			}
			r, err := send(world, buf, dst, seq)
			if err != nil {
				return err
			}
			if open[at] != (mpi.Request{}) {
				return fmt.Errorf("request %d is in use", at)
			}
			open[at] = r
			if at, _, err = freePlace(open); err != nil {
				return err
			}
		}
	}
	return mpi.Waitall(open)
}

// freePlace finds a place in open, which it waits for if there is none.
func freePlace(open []mpi.Request) (int, mpi.Status, error) {
	for i := range open {
		if open[i] == (mpi.Request{}) {
			return i, mpi.Status{}, nil
		}
	}
	return mpi.Waitany(open)
}

func severalLen(source, seq int) int {
	if (source+seq)%23 == 0 {
		return 3000
	}
	return 1 + (source*31+seq*7)%90
}

// severalReceiver receives a number of messages, 7 receives at a time.
type severalReceiver struct {
	world            *mpi.Comm
	rng              *rand.Rand
	posted, received int
	rs               [7]mpi.Request
	st               [7]mpi.Status
	bufs             [7][3000]int64
	done             []int
}

func severalReceive(world *mpi.Comm, n int, seed uint64) error {
	v := &severalReceiver{world: world, rng: rand.New(rand.NewPCG(2, seed))}
	for v.received < n {
		if err := v.post(n); err != nil {
			return err
		}
		if err := v.complete(); err != nil {
			return err
		}
	}
	rs := v.rs[:]
	i, _, err := mpi.Waitany(rs)
	_, _, ok, err2 := mpi.Testany(rs)
	done, err3 := mpi.Waitsome(rs, v.done)
	some, err4 := mpi.Testsome(rs, nil)
	all, err5 := mpi.Testall(rs)
	return firstError(err, err2, err3, err4, err5, want("Waitany of none", i, -1),
		want("Testany of none", ok, true),
		want("Waitsome of none", len(done), 0), want("Testsome of none", len(some), 0),
		want("Testall of none", all, true),
		mpi.Waitall(rs), mpi.Waitall(nil))
}

// post has a receive in every place, as long as there are fewer than n.
func (v *severalReceiver) post(n int) error {
	for i := range v.rs {
		if v.rs[i] == (mpi.Request{}) && v.posted < n {
			r, err := mpi.Irecv(v.world, v.bufs[i][:], mpi.AnySource, mpi.AnyTag)
			if err != nil {
				return err
			}
			v.rs[i] = r
			v.posted++
		}
	}
	return nil
}

// complete makes one of the calls for several, and checks what it has completed.
func (v *severalReceiver) complete() error {
	rs, st := v.rs[:], v.st[:]
	switch v.rng.IntN(7) {
	case 0, 1:
		i, s, err := mpi.Waitany(rs)
		if err != nil {
			return err
		}
		return v.check(i, s)
	case 2:
		i, s, ok, err := mpi.Testany(rs)
		if err != nil || !ok {
			return err
		}
		return v.check(i, s)
	case 3, 4:
		return v.some()
	case 5:
		active := activeOf(rs)
		ok, err := mpi.TestallStatus(rs, st)
		if err != nil {
			return err
		}
		if !ok {
			return want("requests that are active after a Testall that was false", len(activeOf(rs)),
				len(active))
		}
		return v.checkEach(active)
	default:
		active := activeOf(rs)
		if err := mpi.WaitallStatus(rs, st); err != nil {
			return err
		}
		return v.checkEach(active)
	}
}

func (v *severalReceiver) some() (err error) {
	if v.rng.IntN(2) == 0 {
		v.done, err = mpi.WaitsomeStatus(v.rs[:], v.done, v.st[:])
		if len(v.done) == 0 {
			err = fmt.Errorf("Waitsome returned with nothing: %w", err)
		}
	} else {
		v.done, err = mpi.TestsomeStatus(v.rs[:], v.done, v.st[:])
	}
	for k, i := range v.done {
		if k > 0 && v.done[k-1] >= i {
			return fmt.Errorf("indices %v", v.done)
		}
	}
	if err != nil {
		return err
	}
	return v.checkEach(v.done)
}

func (v *severalReceiver) checkEach(indices []int) error {
	for _, i := range indices {
		if err := v.check(i, v.st[i]); err != nil {
			return err
		}
	}
	return nil
}

// check checks the message that has come in a place.
func (v *severalReceiver) check(i int, s mpi.Status) error {
	v.received++
	if s.Count != severalLen(s.Source, s.Tag) || v.rs[i] != (mpi.Request{}) || s.Err() != nil {
		return fmt.Errorf("%+v of %v", s, v.rs[i])
	}
	for k, x := range v.bufs[i][:s.Count] {
		if x != int64(s.Source*1_000_000+s.Tag*1000+k%1000) {
			return fmt.Errorf("message %d of rank %d: element %d is %d", s.Tag, s.Source, k, x)
		}
	}
	return nil
}

func activeOf(rs []mpi.Request) (active []int) {
	for i := range rs {
		if rs[i] != (mpi.Request{}) {
			active = append(active, i)
		}
	}
	return active
}

func TestFailuresOfSeveral(t *testing.T) { together(t, 1, failuresOfSeveral) }

// The first failure by index is the error; every status tells of its own.
var failuresOfSeveral = body("failures of several", func(_ context.Context, world *mpi.Comm) error {
	post := func() ([]mpi.Request, error) {
		rs := make([]mpi.Request, 4)
		for i := range rs[1:] {
			r, err := mpi.Irecv(world, make([]byte, 2), 0, i+1)
			if err != nil {
				return nil, err
			}
			rs[i+1] = r
		}
		return rs, firstError(mpi.Send(world, make([]byte, 5), 0, 2), mpi.Send(world, make([]byte, 6), 0, 3),
			mpi.Send(world, make([]byte, 1), 0, 1))
	}
	expect := func(call string, err error, st []mpi.Status, rs []mpi.Request) error {
		return firstError(wantMisuse(call, err, mpi.ErrTruncate), want("first", st[1].Err(), nil),
			wantError("second", st[2].Err(), mpi.ErrTruncate),
			wantError("third", st[3].Err(), mpi.ErrTruncate),
			want("the first failure", err, st[2].Err()), want("count", st[2].Count, 2),
			want("active", len(activeOf(rs)), 0))
	}
	st := make([]mpi.Status, 4)
	rs, err := post()
	if err != nil {
		return err
	}
	if err := expect("WaitallStatus", mpi.WaitallStatus(rs, st), st, rs); err != nil {
		return err
	}
	if rs, err = post(); err != nil {
		return err
	}
	clear(st)
	done, err := mpi.WaitsomeStatus(rs, nil, st)
	if err := firstError(want("done", len(done), 3), expect("WaitsomeStatus", err, st, rs)); err != nil {
		return err
	}
	if rs, err = post(); err != nil {
		return err
	}
	clear(st)
	ok, err := mpi.TestallStatus(rs, st)
	if err := firstError(want("all", ok, true), expect("TestallStatus", err, st, rs)); err != nil {
		return err
	}
	if rs, err = post(); err != nil {
		return err
	}
	kept := rs[2]
	err = mpi.Waitall(rs)
	_, again := kept.Wait()
	return firstError(wantMisuse("Waitall", err, mpi.ErrTruncate),
		wantError("a copy of one that was used up", again, mpi.ErrRequest),
		want("active", len(activeOf(rs)), 0))
})
