package mpi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

func TestViewMemory(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		ranks(t, 2, viewMemory, fabric, "WEFT_PEER_TIMEOUT=60s")
	})
}

// besideMessage is how much memory a message of a view has at each end beside the elements.
const besideMessage = 64 << 10

// No call on a view allocates when it is called again, and the first one has 64 KiB for a message.
var viewMemory = body("view memory", func(_ context.Context, world *mpi.Comm) error {
	if raceDetector { // which allocates
		return nil
	}
	debug.SetGCPercent(-1)
	const elements = 1 << 18 / 8
	m := &viewEndsMemory{world: world, other: 1 - world.Rank(), out: make([]float64, 4*elements),
		in: make([]float64, 4*elements), order: rand.New(rand.NewPCG(19, 5)).Perm(2 * elements)}
	var err error
	if m.win, err = mpi.WinAllocate[float64](world, 4*elements); err != nil {
		return err
	}
	if err := firstError(m.win.LockAll(), m.win.Put(m.out[:1], m.other, 0), m.contiguous(elements)); err != nil {
		return err
	}
	for _, n := range []int{elements, 64 << 10 / 8, 1} {
		for _, shape := range []string{"Strided", "Sub", "Indexed"} {
			for _, call := range viewCalls {
				if err := m.measure(call.call, call.messages, m.shaped(shape, n)); err != nil {
					return fmt.Errorf("%s, %d elements, %s: %w", call.name, n, shape, err)
				}
			}
		}
	}
	return firstError(m.win.UnlockAll(), m.win.Free())
})

// viewEndsMemory is what the calls work on.
type viewEndsMemory struct {
	world   *mpi.Comm
	win     *mpi.Win[float64]
	other   int
	out, in []float64
	order   []int
}

// shapedEnds are views of one shape and length, and a place.
type shapedEnds struct {
	send, recv mpi.View[float64]
	place      mpi.Place[float64]
	sends      [2]mpi.View[float64] // by rank
	recvs      [2]mpi.View[float64]
}

// contiguous has buffers between the ranks be as long as they get.
func (m *viewEndsMemory) contiguous(n int) error {
	for range 3 {
		for _, n := range []int{1, 100, 1000, 8000, n} {
			if _, err := mpi.Sendrecv(m.world, m.out[:n], m.other, 1, m.in[:n], m.other, 1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *viewEndsMemory) shaped(shape string, n int) *shapedEnds {
	var e shapedEnds
	at := m.win.At(0, 4*n)
	switch shape {
	case "Strided":
		e.send, e.recv, e.place = mpi.Strided(m.out, n, 1, 2), mpi.Strided(m.in, n, 1, 4), at.Strided(n, 1, 3)
	case "Sub":
		rows := max(n/8, 1)
		of, from, size := []int{rows, 16}, []int{0, 3}, []int{rows, n / rows}
		e.send, e.recv = mpi.Sub(m.out, of, from, size), mpi.Sub(m.in, of, from, size)
		e.place = m.win.At(0, 16*rows).Sub(of, from, size)
	case "Indexed":
		e.send, e.recv = mpi.Indexed(m.out, m.order[:n], nil), mpi.Indexed(m.in, m.order[len(m.order)-n:], nil)
		e.place = m.win.At(0, 4*n).Strided(n/2, 2, 3)
		if n%2 == 1 {
			e.place = m.win.At(3, n)
		}
	}
	if n > 1024 { // over TCP each piece of a place is a Write
		e.place = m.win.At(1, n)
	}
	e.sends[m.other], e.recvs[m.other] = e.send, e.recv
	return &e
}

// viewCalls are calls at both ranks at once, and how many messages each has under way at a rank.
var viewCalls = []struct {
	name     string
	messages uint64
	call     func(m *viewEndsMemory, e *shapedEnds) error
}{
	{"SendView and RecvView", 1, func(m *viewEndsMemory, e *shapedEnds) (err error) {
		if m.world.Rank() == 0 {
			return mpi.SendView(m.world, e.send, m.other, 1)
		}
		_, err = mpi.RecvView(m.world, e.recv, m.other, 1)
		return err
	}},
	{"SendrecvView", 2, func(m *viewEndsMemory, e *shapedEnds) error {
		_, err := mpi.SendrecvView(m.world, e.send, m.other, 1, e.recv, m.other, 1)
		return err
	}},
	{"AlltoallView", 2, func(m *viewEndsMemory, e *shapedEnds) error {
		return mpi.AlltoallView(m.world, e.sends[:], e.recvs[:])
	}},
	{"PutView", 1, func(m *viewEndsMemory, e *shapedEnds) error {
		return firstErr(m.win.PutView(e.send, m.other, e.place), m.win.Flush(m.other))
	}},
	{"GetView", 1, func(m *viewEndsMemory, e *shapedEnds) error {
		return firstErr(m.win.GetView(e.recv, m.other, e.place), m.win.Flush(m.other))
	}},
}

func (m *viewEndsMemory) measure(call func(*viewEndsMemory, *shapedEnds) error, messages uint64,
	e *shapedEnds) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := call(m, e); err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	const others = 64 << 10 // what the call has beside a message, and the rest of the process meanwhile
	if grown := after.TotalAlloc - before.TotalAlloc; grown > messages*besideMessage+others {
		return fmt.Errorf("the first call took %d bytes", grown)
	}
	// Memory that is kept for the next call may be kept for each processor.
	const rounds, attempts = 10, 10
	count := []uint64{rounds}
	for range attempts {
		if err := mpi.Barrier(m.world); err != nil {
			return err
		}
		runtime.ReadMemStats(&before)
		for range rounds {
			if err := call(m, e); err != nil {
				return err
			}
		}
		runtime.ReadMemStats(&after)
		count[0] = after.Mallocs - before.Mallocs
		if err := mpi.Allreduce(m.world, mpi.InPlace[uint64](), count, mpi.Max[uint64]()); err != nil {
			return err
		}
		if count[0] < rounds/2 { // others may have some
			return nil
		}
	}
	return fmt.Errorf("%d allocations in %d calls", count[0], rounds)
}
