package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/weft-mpi/weft/mpi"
)

func TestAllocatedBuffers(t *testing.T) { ranks(t, 2, allocatedBuffers) }

// Messages of every protocol go from and to parts of allocated memory, at any offset, and touch nothing
// beside their part.
var allocatedBuffers = body("allocated buffers", func(_ context.Context, world *mpi.Comm) error {
	const maxBytes = 1<<20 + 3
	me, other := world.Rank(), 1-world.Rank()
	out, err := mpi.Alloc[byte](maxBytes + 8192)
	in, err2 := mpi.Alloc[byte](maxBytes + 8192)
	if err := firstError(err, err2); err != nil {
		return err
	}
	if uintptr(unsafe.Pointer(&out[0]))%uintptr(os.Getpagesize()) != 0 ||
		bytes.Count(out, []byte{0}) != len(out) {
		return errors.New("not zeroes on pages of its own")
	}
	want := make([]byte, maxBytes)
	heap := make([]byte, len(in))
	sequence := 0
	for _, n := range []int{0, 1, 7, 600, 5000, 16384, 65536, 100_003, maxBytes} {
		for _, at := range []int{0, 1, 7, 64, 4095, 8192} {
			for _, into := range [][]byte{in, heap} {
				sequence++
				fill(out[at:][:n], me, 0, sequence)
				fill(want[:n], other, 0, sequence)
				for i := range into {
					into[i] = 0xee
				}
				st, err := mpi.Sendrecv(world, out[at:][:n], other, sequence, into[at:][:n], other, sequence)
				if err != nil {
					return err
				}
				if st.Count != n || !bytes.Equal(into[at:][:n], want[:n]) {
					return fmt.Errorf("%d bytes at %d: not what was sent", n, at)
				}
				before, after := into[:at], into[at+n:]
				if bytes.Count(before, []byte{0xee}) < at || bytes.Count(after, []byte{0xee}) < len(after) {
					return fmt.Errorf("%d bytes at %d: bytes beside them changed", n, at)
				}
			}
		}
	}
	return firstError(mpi.Free(out), mpi.Free(in))
})

func TestAllocatedVectors(t *testing.T) { ranks(t, 2, allocatedVectors) }

var allocatedVectors = body("allocated vectors", func(_ context.Context, world *mpi.Comm) error {
	me, other := world.Rank(), 1-world.Rank()
	out, err := mpi.Alloc[byte](300_000)
	in, err2 := mpi.Alloc[byte](300_000)
	if err := firstError(err, err2); err != nil {
		return err
	}
	fill(out, me, 0, 0)
	r, err := mpi.IrecvVec(world, [][]byte{in[:70_000], in[70_000:]}, other, 0)
	if err != nil {
		return err
	}
	inUse := mpi.Free(in)
	send := mpi.SendVec(world, [][]byte{out[:10], out[10:200_000], out[200_000:]}, other, 0)
	_, err = r.Wait()
	fill(out, other, 0, 0)
	if !bytes.Equal(in, out) {
		return errors.New("not what was sent")
	}
	return firstError(wantError("Free", inUse, mpi.ErrBuffer), send, err, mpi.Free(out), mpi.Free(in))
})

func TestAllocatedCollectives(t *testing.T) { ranks(t, 3, allocatedCollectives) }

var allocatedCollectives = body("allocated collectives", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	for _, n := range []int{1, 100, 50_000} {
		in, err := mpi.Alloc[float64](n)
		out, err2 := mpi.Alloc[float64](n)
		all, err3 := mpi.Alloc[float64](n * size)
		if err := firstError(err, err2, err3); err != nil {
			return err
		}
		for i := range in {
			in[i] = float64(i + me)
		}
		err = firstError(mpi.Allreduce(world, in, out, mpi.Sum[float64]()), mpi.Gather(world, in, all, 0),
			mpi.Bcast(world, all, 0),
			mpi.Allreduce(world, mpi.InPlace[float64](), in, mpi.Max[float64]()))
		if err != nil {
			return err
		}
		for i := range n {
			err := firstError(want("sum", out[i], float64(size*i+3)),
				want("maximum", in[i], float64(i+size-1)),
				want("gathered", all[n+i], float64(i+1)))
			if err != nil {
				return fmt.Errorf("element %d of %d: %w", i, n, err)
			}
		}
		if err := firstError(mpi.Free(in), mpi.Free(out), mpi.Free(all)); err != nil {
			return err
		}
	}
	return nil
})

func TestAllocMisuse(t *testing.T) { ranks(t, 1, allocMisuse) }

var allocMisuse = body("alloc misuse", func(_ context.Context, _ *mpi.Comm) error {
	_, negative := mpi.Alloc[int](-1)
	_, huge := mpi.Alloc[int64](math.MaxInt / 4)
	_, more := mpi.Alloc[byte](math.MaxInt)
	_, pointers := mpi.Alloc[string](1)
	_, nothing := mpi.Alloc[struct{}](1)
	none, err := mpi.Alloc[int](0)
	buf, err2 := mpi.Alloc[int64](1000)
	next, err3 := mpi.Alloc[int64](1000)
	if err := firstError(err, err2, err3); err != nil {
		return err
	}
	part := mpi.Free(buf[:999])
	err = firstError(
		wantError("a negative length", negative, mpi.ErrCount), wantError("an overflow", huge, mpi.ErrCount),
		wantError("pointers", pointers, mpi.ErrType), wantError("no bytes", nothing, mpi.ErrType),
		want("an empty slice", none != nil && len(none) == 0, true), mpi.Free(none), mpi.Free[int](nil),
		want("capacity", cap(buf), 1000),
		wantError("the beginning", part, mpi.ErrBuffer), wantError("the end", mpi.Free(buf[1:]),
			mpi.ErrBuffer),
		wantError("nothing of it", mpi.Free(buf[:0]), mpi.ErrBuffer),
		wantError("a slice of pointers", mpi.Free([]*int{nil}), mpi.ErrType),
		wantError("an ordinary slice", mpi.Free(make([]int, 1000)), mpi.ErrBuffer),
		mpi.Free(buf), wantError("again", mpi.Free(buf), mpi.ErrBuffer), mpi.Free(next),
	)
	if err == nil && (more == nil || !strings.Contains(part.Error(),
		"7992 bytes of the 8000 that Alloc gave; free the whole slice")) {
		err = fmt.Errorf("Alloc of all memory: %v; Free of a part: %v", more, part)
	}
	return err
})

func TestFreeWhileInUse(t *testing.T) { ranks(t, 2, freeWhileInUse) }

// Free refuses what an operation still uses, says which, and leaves the operation unharmed.
var freeWhileInUse = body("free while in use", func(_ context.Context, world *mpi.Comm) error {
	me, other := world.Rank(), 1-world.Rank()
	const n = 100_000
	out, err := mpi.Alloc[byte](n)
	in, err2 := mpi.Alloc[byte](n)
	self, err3 := mpi.Alloc[byte](n)
	if err := firstError(err, err2, err3); err != nil {
		return err
	}
	fill(out, me, 0, 1)
	fill(self, me, 0, 2)
	recv, err := mpi.Irecv(world, in[10:][:n-20], other, 5)
	toSelf, err2 := mpi.Isend(world, self[1:2000], me, 7)
	if err := firstError(err, err2); err != nil {
		return err
	}
	posted, unmatched := mpi.Free(in), mpi.Free(self)
	// Neither has posted the receive yet: both sends are announced, at most.
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	send, err := mpi.Isend(world, out, other, 6)
	if err != nil {
		return err
	}
	sending := mpi.Free(out)
	err = firstError(
		wantError("a posted receive", posted, mpi.ErrBuffer),
		wantError("a send to oneself", unmatched, mpi.ErrBuffer),
		wantError("a send under way", sending, mpi.ErrBuffer))
	for text, err := range map[string]error{"a receive from rank %d of the world with tag 5": posted,
		"a send to rank %d of the world with tag 6": sending} {
		if text := fmt.Sprintf(text, other); !strings.Contains(err.Error(), text) {
			return fmt.Errorf("%q does not say %q", err, text)
		}
	}
	if err != nil {
		return err
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	got, wanted := make([]byte, n), make([]byte, n)
	fill(wanted, other, 0, 1)
	_, err = mpi.Recv(world, got, other, 6)
	_, err2 = send.Wait()
	if err := firstError(err, err2, want("bytes of the send", bytes.Equal(got, wanted), true)); err != nil {
		return err
	}
	_, err = mpi.Sendrecv(world, out[:n-20], other, 5, got, me, 7)
	_, err2 = recv.Wait()
	_, err3 = toSelf.Wait()
	if err := firstError(err, err2, err3, want("bytes of the receive",
		bytes.Equal(in[10:][:n-20], wanted[:n-20]), true)); err != nil {
		return err
	}
	p, err := mpi.SendInit(world, in[5:6], other, 0)
	if err != nil {
		return err
	}
	return firstError(wantError("a Persistent", mpi.Free(in), mpi.ErrBuffer), p.Free(), mpi.Free(in),
		mpi.Free(out), mpi.Free(self))
})

func TestFreeDuringACollective(t *testing.T) { ranks(t, 2, freeDuringACollective) }

// A collective uses its buffers between its messages, too.
var freeDuringACollective = body("free during a collective", func(_ context.Context, world *mpi.Comm) error {
	one := make([]byte, 1)
	if world.Rank() == 1 {
		if _, err := mpi.Recv(world, one, 0, 0); err != nil {
			return err
		}
		return mpi.Allreduce(world, []int{1}, make([]int, 1), mpi.Sum[int]())
	}
	in, err := mpi.Alloc[int](1)
	out, err2 := mpi.Alloc[int](1)
	if err := firstError(err, err2); err != nil {
		return err
	}
	entered, freed := make(chan struct{}), make(chan struct{})
	op := mpi.NewOp(func(inout, in []int) {
		close(entered)
		<-freed
		inout[0] += in[0]
	}, true)
	done := make(chan error)
	go func() { done <- mpi.Allreduce(world, in, out, op) }()
	if err := mpi.Send(world, one, 1, 0); err != nil {
		return err
	}
	<-entered
	refusedIn, refusedOut := mpi.Free(in), mpi.Free(out)
	close(freed)
	return firstError(<-done, wantError("input", refusedIn, mpi.ErrBuffer),
		wantError("output", refusedOut, mpi.ErrBuffer),
		want("sum", out[0], 1), mpi.Free(in), mpi.Free(out))
})

func TestFreedMemoryGoesBack(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) { ranks(t, 1, freedGoesBack, "WEFT_FABRIC="+fabric) })
	}
}

// What has been freed is the system's again: 1 GiB passes through, of which every page has been in use.
var freedGoesBack = body("freed goes back", func(_ context.Context, _ *mpi.Comm) error {
	before, err := resident()
	if err != nil {
		return err
	}
	for range 3 {
		buf, err := mpi.Alloc[byte](64 << 20)
		if err != nil {
			return err
		}
		for i := 0; i < len(buf); i += 4096 {
			buf[i] = 1
		}
		during, err := resident()
		if err != nil {
			return err
		}
		if during < before+64<<20 {
			return errors.New("the memory does not show in what is resident")
		}
		if err := mpi.Free(buf); err != nil {
			return err
		}
	}
	after, err := resident()
	if err == nil && after > before+32<<20 {
		err = fmt.Errorf("what is resident went from %d to %d bytes", before, after)
	}
	return err
})

// resident is how much of the process is in memory.
func resident() (int, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var all, pages int
	_, err = fmt.Sscan(string(text), &all, &pages)
	return pages * os.Getpagesize(), err
}

func TestAllocatedAllocations(t *testing.T) { counted(t, allocatedAllocations) }

// A message from and to allocated memory allocates nothing.
var allocatedAllocations = body("allocated allocations", func(_ context.Context, world *mpi.Comm) error {
	other := 1 - world.Rank()
	var failure error
	for tag, n := range []int{8, 600, 10_000, 300_000} {
		buf, err := mpi.Alloc[byte](n)
		if err != nil {
			return err
		}
		round := func() {
			if world.Rank() == 0 {
				failure = firstError(failure, mpi.Send(world, buf, other, tag))
			}
			_, err := mpi.Recv(world, buf, other, tag)
			if world.Rank() == 1 {
				failure = firstError(failure, mpi.Send(world, buf, other, tag))
			}
			failure = firstError(failure, err)
		}
		for range 50 {
			round()
		}
		if world.Rank() == 1 {
			for range allocationRounds {
				round()
			}
		} else if a := allocationsPerRound(round); a > 0 {
			return fmt.Errorf("%d bytes: %v allocations", n, a)
		}
		if err := firstError(failure, mpi.Free(buf)); err != nil {
			return err
		}
	}
	if world.Rank() == 0 {
		fmt.Println("counted")
	}
	return nil
})
