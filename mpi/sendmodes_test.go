package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// wantMisuse fails a rank in which a call has not failed with this kind of error, or does not name itself in
// it.
func wantMisuse(call string, got, kind error) error {
	if !errors.Is(got, kind) {
		return fmt.Errorf("%s: got %v, want %v", call, got, kind)
	}
	var e *mpi.Error
	begins := "mpi: " // without a communicator the rank is known only where the process is one
	if errors.As(got, &e) && e.Rank != mpi.NoPeer {
		begins = fmt.Sprintf("mpi: rank %d", e.Rank)
	}
	if e == nil || !strings.HasPrefix(got.Error(), begins) || !strings.Contains(got.Error(), ": "+call) {
		return fmt.Errorf("%q does not name %s", got, call)
	}
	return nil
}

func TestModes(t *testing.T) {
	together(t, 2, modes)
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, modes, fabric, nothingBuffered, smallestSlots) })
}

// Settings under which no message of more than a byte is buffered: a send waits for its receive.
const nothingBuffered, smallestSlots = "WEFT_THRESHOLD=1", "WEFT_PHASES=100"

// Ssend, matched probes and Cancel between two ranks, and what they do with ProcNull.
var modes = body("modes", func(_ context.Context, world *mpi.Comm) error {
	me, other := world.Rank(), 1-world.Rank()
	for _, n := range []int{0, 10, 20_000} {
		buf := make([]int32, n)
		if me == 0 {
			for i := range buf {
				buf[i] = int32(i + n)
			}
			r, err := mpi.Issend(world, buf, other, 1)
			if err != nil {
				return err
			}
			// Rank 1 has seen the message when this answer comes, and has not received it.
			if _, err := mpi.Recv[byte](world, nil, other, 2); err != nil {
				return err
			}
			if _, done, err := r.Test(); done || err != nil {
				return fmt.Errorf("a synchronous send of %d elements is complete without a receive: %v", n,
					err)
			}
			if err := mpi.Send[byte](world, nil, other, 3); err != nil {
				return err
			}
			if _, err := r.Wait(); err != nil {
				return err
			}
			if err := mpi.Ssend(world, buf, other, 4); err != nil {
				return err
			}
			continue
		}
		m, st, err := mpi.Mprobe(world, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		if err := firstError(want("bytes", st.Bytes(), 4*n), want("source", st.Source, 0),
			want("tag", st.Tag, 1)); err != nil {
			return err
		}
		_, _, ok, err := mpi.Improbe(world, other, 1)
		if err := firstError(err, want("a second matched probe", ok, false),
			mpi.Send[byte](world, nil, other, 2)); err != nil {
			return err
		}
		// the tag 1 is out of its reach
		if _, err := mpi.Recv[byte](world, nil, other, mpi.AnyTag); err != nil {
			return err
		}
		again := m
		st, err = mpi.Mrecv(&m, buf)
		if err := firstError(err, want("count", st.Count, n),
			want("the message afterwards", m, mpi.Message{})); err != nil {
			return err
		}
		for i := range buf {
			if buf[i] != int32(i+n) {
				return fmt.Errorf("element %d of %d differs", i, n)
			}
		}
		_, copied := mpi.Mrecv(&again, buf)
		_, zero := mpi.Imrecv(&m, buf)
		if err := firstError(wantMisuse("Mrecv", copied, mpi.ErrRequest),
			wantMisuse("Imrecv", zero, mpi.ErrRequest)); err != nil {
			return err
		}
		if _, err := mpi.Recv(world, buf, other, 4); err != nil {
			return err
		}
	}

	// A receive that is withdrawn takes no message, one that is not is not.
	in := []int64{-1}
	r, err := mpi.Irecv(world, in, other, 5)
	if err != nil {
		return err
	}
	// Neither sends before both have withdrawn.
	if err := firstError(r.Cancel(), mpi.Barrier(world)); err != nil {
		return err
	}
	sent, err := mpi.Isend(world, []int64{7}, other, 5)
	if err != nil {
		return err
	}
	if _, err := mpi.Probe(world, other, 5); err != nil {
		return err
	}
	st, err := r.Wait()
	if err := firstError(err, want("cancelled", st.Cancelled(), true),
		want("the buffer", in[0], -1)); err != nil {
		return err
	}
	st, err = mpi.Recv(world, in, other, 5)
	if err := firstError(err, want("cancelled", st.Cancelled(), false),
		want("the message", in[0], 7)); err != nil {
		return err
	}
	if _, err := sent.Wait(); err != nil {
		return err
	}

	// Nobody.
	m, st, err := mpi.Mprobe(world, mpi.ProcNull, 3)
	if err := firstError(err, want("ProcNull's source", st.Source, mpi.ProcNull),
		want("tag", st.Tag, mpi.AnyTag)); err != nil {
		return err
	}
	got, err := mpi.Mrecv(&m, in)
	if err := firstError(err, want("source of no process's message", got.Source, mpi.ProcNull),
		want("count", got.Count, 0)); err != nil {
		return err
	}
	m, _, ok, err := mpi.Improbe(world, mpi.ProcNull, 3)
	if err := firstError(err, want("Improbe of nobody", ok, true)); err != nil {
		return err
	}
	nobody, err := mpi.Imrecv(&m, in)
	if err != nil {
		return err
	}
	st, err = nobody.Wait()
	if err := firstError(err, want("source", st.Source, mpi.ProcNull), nobody.Cancel(),
		mpi.Ssend(world, in, mpi.ProcNull, 0)); err != nil {
		return err
	}
	nobody, err = mpi.Issend(world, in, mpi.ProcNull, 0)
	if err != nil {
		return err
	}
	_, err = nobody.Wait()
	return err
})

func TestMisuse(t *testing.T) { together(t, 2, misuse) }

// Every call says what is wrong and names itself.
var misuse = worldBody("misuse", func(_ context.Context, world *mpi.Comm) error {
	one, other := make([]byte, 1), 1-world.Rank()
	used, err := mpi.Isend(world, one, world.Rank(), 0)
	if err != nil {
		return err
	}
	if _, err := mpi.Recv(world, one, world.Rank(), 0); err != nil {
		return err
	}
	if _, err := used.Wait(); err != nil {
		return err
	}
	_, issend := mpi.Issend(world, one, 2, 0)
	_, _, mprobe := mpi.Mprobe(world, -5, 0)
	_, _, _, improbe := mpi.Improbe(world, other, -5)
	var none mpi.Message
	_, mrecv := mpi.Mrecv(&none, one)
	_, mrecvNil := mpi.Mrecv(nil, one)
	_, imrecv := mpi.Imrecv(&none, one)
	_, wait := used.Wait()
	_, _, test := used.Test()
	any, _, waitany := mpi.Waitany([]mpi.Request{{}, used})
	tested, _, _, testany := mpi.Testany([]mpi.Request{{}, used})
	_, waitsome := mpi.Waitsome([]mpi.Request{used}, nil)
	_, testsome := mpi.Testsome([]mpi.Request{used}, nil)
	_, testall := mpi.Testall([]mpi.Request{used})
	_, waitsomeStatus := mpi.WaitsomeStatus([]mpi.Request{used}, nil, nil)
	_, testsomeStatus := mpi.TestsomeStatus([]mpi.Request{used}, nil, nil)
	_, testallStatus := mpi.TestallStatus([]mpi.Request{used}, nil)
	_, sendInit := mpi.SendInit(world, one, 2, 0)
	_, sendInitType := mpi.SendInit(world, make([]string, 1), other, 0)
	_, ssendInit := mpi.SsendInit(world, one, other, -1)
	_, _, look := mpi.RequestStatus(used)
	_, replaceTo := mpi.SendrecvReplace(world, one, 2, 0, other, 0)
	_, replaceFrom := mpi.SendrecvReplace(world, one, other, 0, 2, 0)
	_, replaceType := mpi.SendrecvReplace(world, make([]string, 1), other, 0, other, 0)
	_, _, sliceFrom := mpi.RecvSlice[byte](world, 2, 0)
	_, _, sliceType := mpi.RecvSlice[string](world, other, 0)
	_, _, exchangeTo := mpi.SendrecvValue(world, "", 2, 0, other, 0)
	_, _, exchangeFrom := mpi.SendrecvValue(world, "", other, 0, other, -4)
	_, _, exchangeType := mpi.SendrecvValue(world, func() {}, other, 0, other, 0)
	_, isendValue := mpi.IsendValue(world, "", other, -1)
	_, isendValueType := mpi.IsendValue(world, func() {}, other, 0)
	_, irecvValue := mpi.IrecvValue[string](world, 2, 0)
	_, scatterValues := mpi.ScatterValues(world, make([]string, 2), 2)
	_, alltoallValues := mpi.AlltoallValues(nil, make([]string, 2))
	_, reduceValue := mpi.ReduceValue(world, 1, mpi.Sum[int](), -1)
	_, reduceValueOp := mpi.ReduceValue(world, 1, mpi.Op[int]{}, 0)
	_, exscanValue := mpi.ExscanValue(world, 1, mpi.Op[int]{})
	_, recvInit := mpi.RecvInit(world, one, other, -4)
	var zero mpi.Persistent
	_, startZero := zero.Start()
	_, startNil := (*mpi.Persistent)(nil).Start()
	_, dup := (*mpi.Comm)(nil).Dup()
	_, dupZero := new(mpi.Comm).Dup()
	_, split := (*mpi.Comm)(nil).Split(0, 0)
	_, idup := (*mpi.Comm)(nil).Idup(new(*mpi.Comm))
	_, idupNowhere := world.Idup(nil)
	_, splitBy := (*mpi.Comm)(nil).SplitBy(mpi.SameHost, 0)
	_, domain := world.SplitBy(mpi.Domain(4*world.Rank()), 0) // one rank is wrong, and both hear of it
	_, domains := world.SplitBy(mpi.Domain(world.Rank()), 0)
	_, color := world.Split(-7*world.Rank(), 0) // one rank is wrong, and both hear of it
	p, err := mpi.RecvInit(world, one, other, 0)
	if err != nil {
		return err
	}
	started, err := p.Start()
	if err != nil {
		return err
	}
	_, startActive := p.Start()
	startall := mpi.Startall([]*mpi.Persistent{p}, make([]mpi.Request, 1))
	startallRoom := mpi.Startall([]*mpi.Persistent{p}, nil)
	startallNil := mpi.Startall([]*mpi.Persistent{nil}, make([]mpi.Request, 1))
	if err := started.Cancel(); err != nil {
		return err
	}
	if _, err := started.Wait(); err != nil {
		return err
	}
	if err := p.Free(); err != nil {
		return err
	}
	_, startFreed := p.Start()
	return firstError(
		wantMisuse("Ssend", mpi.Ssend(world, one, other, -1), mpi.ErrTag),
		wantMisuse("Ssend", mpi.Ssend(world, make([]*int, 1), other, 0), mpi.ErrType),
		wantMisuse("Issend", issend, mpi.ErrRank),
		wantMisuse("Mprobe", mprobe, mpi.ErrRank),
		wantMisuse("Improbe", improbe, mpi.ErrTag),
		wantMisuse("Mrecv", mrecv, mpi.ErrRequest),
		wantMisuse("Mrecv", mrecvNil, mpi.ErrRequest),
		wantMisuse("Imrecv", imrecv, mpi.ErrRequest),
		wantMisuse("Wait", wait, mpi.ErrRequest),
		wantMisuse("Test", test, mpi.ErrRequest),
		wantMisuse("Cancel", used.Cancel(), mpi.ErrRequest),
		wantMisuse("Waitany", waitany, mpi.ErrRequest), want("its index", any, 1),
		wantMisuse("Testany", testany, mpi.ErrRequest), want("its index", tested, 1),
		wantMisuse("Waitsome", waitsome, mpi.ErrRequest),
		wantMisuse("Testsome", testsome, mpi.ErrRequest),
		wantMisuse("Testall", testall, mpi.ErrRequest),
		wantMisuse("Waitall", mpi.Waitall([]mpi.Request{{}, used}), mpi.ErrRequest),
		wantMisuse("WaitallStatus", mpi.WaitallStatus([]mpi.Request{used}, nil), mpi.ErrCount),
		wantMisuse("WaitsomeStatus", waitsomeStatus, mpi.ErrCount),
		wantMisuse("TestsomeStatus", testsomeStatus, mpi.ErrCount),
		wantMisuse("TestallStatus", testallStatus, mpi.ErrCount),
		wantMisuse("SendInit", sendInit, mpi.ErrRank),
		wantMisuse("SendInit", sendInitType, mpi.ErrType),
		wantMisuse("SsendInit", ssendInit, mpi.ErrTag),
		wantMisuse("RequestStatus", look, mpi.ErrRequest),
		wantMisuse("SendrecvReplace", replaceTo, mpi.ErrRank),
		wantMisuse("SendrecvReplace", replaceFrom, mpi.ErrRank),
		wantMisuse("SendrecvReplace", replaceType, mpi.ErrType),
		wantMisuse("RecvSlice", sliceFrom, mpi.ErrRank),
		wantMisuse("RecvSlice", sliceType, mpi.ErrType),
		wantMisuse("SendrecvValue", exchangeTo, mpi.ErrRank),
		wantMisuse("SendrecvValue", exchangeFrom, mpi.ErrTag),
		wantMisuse("SendrecvValue", exchangeType, mpi.ErrType),
		wantMisuse("IsendValue", isendValue, mpi.ErrTag),
		wantMisuse("IsendValue", isendValueType, mpi.ErrType),
		wantMisuse("IrecvValue", irecvValue, mpi.ErrRank),
		wantMisuse("ScatterValues", scatterValues, mpi.ErrRoot),
		wantMisuse("AlltoallValues", alltoallValues, mpi.ErrComm),
		wantMisuse("ReduceValue", reduceValue, mpi.ErrRoot),
		wantMisuse("ReduceValue", reduceValueOp, mpi.ErrOp),
		wantMisuse("ExscanValue", exscanValue, mpi.ErrOp),
		wantMisuse("RecvInit", recvInit, mpi.ErrTag),
		wantMisuse("Start", startZero, mpi.ErrRequest),
		wantMisuse("Start", startNil, mpi.ErrRequest),
		wantMisuse("Start", startActive, mpi.ErrRequest),
		wantMisuse("Start", startFreed, mpi.ErrRequest),
		wantMisuse("Startall", startall, mpi.ErrRequest),
		wantMisuse("Startall", startallRoom, mpi.ErrCount),
		wantMisuse("Startall", startallNil, mpi.ErrRequest),
		wantMisuse("Free", p.Free(), mpi.ErrRequest),
		wantMisuse("Free", zero.Free(), mpi.ErrRequest),
		wantMisuse("Free", (*mpi.Persistent)(nil).Free(), mpi.ErrRequest),
		wantMisuse("Dup", dup, mpi.ErrComm),
		wantMisuse("Dup", dupZero, mpi.ErrComm),
		wantMisuse("Split", split, mpi.ErrComm),
		wantMisuse("Idup", idup, mpi.ErrComm),
		wantMisuse("Idup", idupNowhere, mpi.ErrBuffer),
		wantMisuse("SplitBy", splitBy, mpi.ErrComm),
		wantMisuse("SplitBy", domain, mpi.ErrArg),
		wantMisuse("SplitBy", domains, mpi.ErrArg),
		wantMisuse("Split", color, mpi.ErrArg),
		wantMisuse("Free", world.Free(), mpi.ErrComm),
		wantMisuse("Free", (*mpi.Comm)(nil).Free(), mpi.ErrComm),
		wantMisuse("Send", mpi.Send((*mpi.Comm)(nil).WithContext(context.Background()), one, 0, 0),
			mpi.ErrComm),
	)
})

func TestPersistent(t *testing.T) { together(t, 3, persistent) }

// A ring of persistent requests: what is in the buffers at each Start is what goes.
var persistent = body("persistent", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	for _, n := range []int{1, 5000} {
		out, in := make([]int64, n), make([]int64, n)
		s, err := mpi.SendInit(world, out, (me+1)%size, 1)
		if err != nil {
			return err
		}
		r, err := mpi.RecvInit(world, in, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		nobody, err := mpi.RecvInit(world, in, mpi.ProcNull, 0)
		if err != nil {
			return err
		}
		rs, st := make([]mpi.Request, 3), make([]mpi.Status, 3)
		for round := range 30 {
			for i := range out {
				out[i] = int64(round*1_000_000 + me*100_000 + i)
			}
			if err := mpi.Startall([]*mpi.Persistent{r, s, nobody}, rs); err != nil {
				return err
			}
			if err := mpi.WaitallStatus(rs, st); err != nil {
				return err
			}
			left := (me + size - 1) % size
			if err := firstError(want("source", st[0].Source, left), want("count", st[0].Count, n),
				want("nobody", st[2].Source, mpi.ProcNull)); err != nil {
				return err
			}
			for i := range in {
				if in[i] != int64(round*1_000_000+left*100_000+i) {
					return fmt.Errorf("round %d: element %d is %d", round, i, in[i])
				}
			}
			if err := mpi.Barrier(world); err != nil { // or a neighbor's next could come before
				return err
			}
		}
		// Freed while it is active: the operation goes on, and its request too.
		last, err := r.Start()
		if err != nil {
			return err
		}
		if err := firstError(r.Free(), mpi.Send(world, out[:1], (me+1)%size, 2)); err != nil {
			return err
		}
		got, err := last.Wait()
		if err := firstError(err, want("tag", got.Tag, 2), s.Free(), nobody.Free(),
			mpi.Barrier(world)); err != nil {
			return err
		}
	}
	return nil
})

func TestAllocations(t *testing.T) { counted(t, allocations) }

// counted runs a body that counts allocations, and says so.
func counted(t *testing.T, body string) {
	t.Helper()
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	r := launch(t, 2, body)
	require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
	require.Contains(t, r.Out, "counted")
}

// allocationRounds is how often allocationsPerRound calls its function.
const allocationRounds = 60

// allocationsPerRound is how many allocations each call of a function makes. A pool may grow once, and what
// else the process does allocates now and then, such as looking at a peer that has no processor. What each
// call allocates shows in each of several short measurements: the smallest counts.
func allocationsPerRound(round func()) float64 {
	const measurements = 6
	least := math.Inf(1)
	for range measurements {
		least = min(least, testing.AllocsPerRun(allocationRounds/measurements-1, round)) // and one before
	}
	return least
}

// What is sent and waited for again and again allocates nothing.
var allocations = body("allocations", func(_ context.Context, world *mpi.Comm) error {
	other := 1 - world.Rank()
	buf := make([]int64, 40)
	if world.Rank() == 1 {
		for {
			m, st, err := mpi.Mprobe(world, other, mpi.AnyTag)
			if err != nil {
				return err
			}
			if _, err := mpi.Mrecv(&m, buf); err != nil || st.Bytes() == 0 {
				return err
			}
			if err := mpi.Ssend(world, buf[:st.Bytes()/8], other, st.Tag); err != nil {
				return err
			}
		}
	}
	var failure error
	check := func(err error) {
		if failure == nil {
			failure = err
		}
	}
	in, rs, done, st := make([]int64, 40), make([]mpi.Request, 4), make([]int, 0, 4), make([]mpi.Status, 4)
	s, err := mpi.SendInit(world, buf, other, 3)
	check(err)
	synchronous, err := mpi.SsendInit(world, buf, other, 3)
	check(err)
	r, err := mpi.RecvInit(world, in, other, 3)
	check(err)
	post := func() {
		var err error
		rs[1], err = mpi.Irecv(world, in, other, 1)
		check(err)
		rs[2], err = mpi.Issend(world, buf, other, 1)
		check(err)
	}
	for name, round := range map[string]func(){
		"Issend and Waitany": func() {
			post()
			for i := 0; i >= 0; {
				var err error
				i, _, err = mpi.Waitany(rs)
				check(err)
			}
		},
		"Issend and Waitsome": func() {
			post()
			for done = append(done, 0); len(done) > 0; {
				var err error
				done, err = mpi.WaitsomeStatus(rs, done, st)
				check(err)
			}
		},
		"Issend and Testall": func() {
			post()
			for ok := false; !ok; {
				var err error
				ok, err = mpi.TestallStatus(rs, st)
				check(err)
			}
		},
		"Issend and Testany": func() {
			post()
			for i, ok := 0, false; !ok || i >= 0; {
				var err error
				i, _, ok, err = mpi.Testany(rs)
				check(err)
			}
		},
		"Start and Wait": func() {
			a, err := r.Start()
			check(err)
			b, err := s.Start()
			check(err)
			_, err = a.Wait()
			check(err)
			_, err = b.Wait()
			check(err)
		},
		"SsendInit and RequestStatus": func() {
			a, err := r.Start()
			check(err)
			b, err := synchronous.Start()
			check(err)
			for _, request := range []mpi.Request{a, b} {
				for done := false; !done; {
					_, done, err = mpi.RequestStatus(request)
					check(err)
				}
				_, err = request.Wait()
				check(err)
			}
		},
		"SendrecvReplace": func() {
			_, err := mpi.SendrecvReplace(world, in, other, 1, other, 1)
			check(err)
		},
		"Issend and WaitallStatus": func() {
			post()
			check(mpi.WaitallStatus(rs, st))
		},
	} {
		for range 50 {
			round()
		}
		if n := allocationsPerRound(round); n > 0 {
			check(fmt.Errorf("%s: %v allocations", name, n))
		}
	}
	check(mpi.Send[int64](world, nil, other, 0))
	fmt.Fprintln(os.Stdout, "counted")
	return failure
})
