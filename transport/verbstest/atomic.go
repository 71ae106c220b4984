package verbstest

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
)

// word returns a word of a region, as its owner accesses it.
func word(m transport.MR, off int) *uint64 {
	return (*uint64)(unsafe.Pointer(&m.Bytes()[off : off+8][0]))
}

// fetchAdd returns a FetchAdd on the word at an offset of a region. The original goes to the first word of
// into.
func fetchAdd(id uint64, into, m transport.MR, off int, operand uint64) *transport.SendWR {
	return &transport.SendWR{ID: id, Op: transport.OpFetchAdd, Flags: transport.FlagSignaled,
		Operand: operand,
		Local:   []transport.SGE{part(into, 0, 8)}, Remote: []transport.Segment{segment(m, off, 8)}}
}

// asks reports whether the peer answers a request, so that its completion always has the result.
func asks(op transport.Opcode) bool {
	return op == transport.OpRead || op == transport.OpFetchAdd
}

const allAtomic = all | transport.RemoteAtomic

// original carries out one Atomic and returns the original.
func (t *trial) original(a, b *node, wr *transport.SendWR) uint64 {
	t.must(a.qp.PostSend(wr))
	if wc := t.one(a, wr.ID, wr.Op, a, b); wc.Bytes != 8 {
		t.failf("an Atomic completed with %d bytes", wc.Bytes)
	}
	return *word(wr.Local[0].MR, wr.Local[0].Offset)
}

// same checks the value of a word.
func (t *trial) same(what string, got, want uint64) {
	if got != want {
		t.failf("%s is %#x, want %#x", what, got, want)
	}
}

func wrongAtomics(t *trial, a, b *node) map[string]*transport.SendWR {
	into, m := a.memory(64, all), b.memory(64, allAtomic)
	readOnly := a.memory(64, transport.RemoteRead)
	pd, err := a.dev.AllocPD()
	t.must(err)
	foreign, err := pd.Alloc(64, all)
	t.must(err)
	add := func(change func(*transport.SendWR)) *transport.SendWR {
		wr := fetchAdd(1, into, m, 8, 1)
		change(wr)
		return wr
	}
	list := map[string]*transport.SendWR{
		"no local element": add(func(wr *transport.SendWR) { wr.Local = nil }),
		"two local elements": add(func(wr *transport.SendWR) {
			wr.Local = []transport.SGE{part(into,
				0, 4), part(into, 4, 4)}
		}),
		"7 bytes for the original": add(func(wr *transport.SendWR) { wr.Local[0].Length = 7 }),
		"9 bytes for the original": add(func(wr *transport.SendWR) { wr.Local[0].Length = 9 }),
		"into read-only memory":    add(func(wr *transport.SendWR) { wr.Local[0].MR = readOnly }),
		"into another domain":      add(func(wr *transport.SendWR) { wr.Local[0].MR = foreign }),
		"into no region":           add(func(wr *transport.SendWR) { wr.Local[0].MR = nil }),
		"beyond the local region":  add(func(wr *transport.SendWR) { wr.Local[0].Offset = 57 }),
		"no word":                  add(func(wr *transport.SendWR) { wr.Remote = nil }),
		"two words": add(func(wr *transport.SendWR) {
			wr.Remote = append(wr.Remote,
				wr.Remote[0])
		}),
		"a word of 4 bytes":  add(func(wr *transport.SendWR) { wr.Remote[0].Length = 4 }),
		"a word of 16 bytes": add(func(wr *transport.SendWR) { wr.Remote[0].Length = 16 }),
		"inline":             with(fetchAdd(1, into, m, 8, 1), transport.FlagInline),
	}
	for off := 1; off < 8; off++ {
		list[fmt.Sprintf("FetchAdd at offset %d", off)] = fetchAdd(1, into, m, off, 1)
	}
	return list
}

// refusedAtomic posts an Atomic on a word of zero that the peer must refuse.
func (t *trial) refusedAtomic(a, b *node, s transport.Segment) {
	into := a.memory(8, all)
	fill(into.Bytes(), 1, 1)
	wr := fetchAdd(5, into, into, 0, 7)
	wr.Remote[0] = s
	t.refused(a, b, wr)
	t.must(check(into.Bytes(), 1, 1))
}

var atomicChecks = []Check{
	{"Atomic/FetchAddAddsAndGivesTheOriginal", func(t *trial) {
		a, b := t.pair(shape{})
		into, m := a.memory(24, all), b.memory(24, allAtomic)
		want := uint64(math.MaxUint64 - 5)
		*word(m, 8) = want
		// it wraps around
		for i, operand := range []uint64{1, 0, 3, 1 << 63, math.MaxUint64, 12345, 1 << 40} {
			wr := fetchAdd(uint64(i), into, m, 8, operand)
			wr.Local[0].Offset = i * 2 // the original may go anywhere
			t.must(a.qp.PostSend(wr))
			t.one(a, uint64(i), transport.OpFetchAdd, a, b)
			var got uint64
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&got)), 8), into.Bytes()[i*2:])
			t.same("the original", got, want)
			want += operand
			t.same("the word", atomic.LoadUint64(word(m, 8)), want)
		}
		t.must(zero(m.Bytes()[:8]))
		t.must(zero(m.Bytes()[16:]))
		t.none(a, b)
		t.well(a, b)
	}},
	{"Atomic/EachIsCarriedOutOnceAndInOrder", func(t *trial) {
		a, b := t.pair(shape{reads: 3})
		const n = 60
		into, m := a.memory(8*n, all), b.memory(8, allAtomic)
		for i := range n {
			wr := fetchAdd(uint64(i), into, m, 0, uint64(i))
			wr.Local[0].Offset = 8 * i
			t.must(a.qp.PostSend(wr))
		}
		for i, wc := range t.take(a, n, a, b) {
			if wc.ID != uint64(i) || wc.Status != transport.StatusSuccess || wc.Bytes != 8 {
				t.failf("completion %d is %+v", i, wc)
			}
			t.same(fmt.Sprintf("original %d", i), *word(into, 8*i), uint64(i*(i-1)/2))
		}
		t.same("the word", *word(m, 0), n*(n-1)/2)
		t.none(a, b)
	}},
	{"Atomic/ManyQueuePairsAndTheOwnerAddToOneWord", func(t *trial) {
		const peers, adds = 4, 100
		nodes := t.ranks(peers+1, shape{})
		owner := nodes[0]
		m := owner.memory(64, allAtomic)
		results := make(chan []uint64, peers+1)
		failed := make(chan error, peers)
		var adders []*adder
		for _, x := range nodes[1:] {
			x.qp, _ = t.connect(x, owner)
			adders = append(adders, &adder{node: x, into: x.memory(8*adds, all), target: segment(m, 8, 8),
				n: adds})
		}
		var running sync.WaitGroup
		defer running.Wait() // before the devices and their memory are closed
		for _, x := range adders {
			running.Add(1)
			go func() {
				defer running.Done()
				err := x.run()
				results <- x.originals()
				failed <- err
			}()
		}
		running.Add(1)
		go func() { // the owner's own additions, concurrent with those of its device
			var own []uint64
			for len(own) < adds*peers {
				own = append(own, atomic.AddUint64(word(m, 8), 1)-1)
				time.Sleep(time.Microsecond)
			}
			results <- own
			running.Done()
		}()
		var errs error
		t.until("all adders", func() bool {
			select {
			case err := <-failed:
				errs = errors.Join(errs, err)
				return false
			default:
				return len(results) == peers+1
			}
		}, owner)
		seen := map[uint64]bool{}
		for range peers + 1 {
			for _, v := range <-results {
				if seen[v] {
					t.failf("two additions found the word at %d", v)
				}
				seen[v] = true
			}
		}
		t.must(errs)
		t.same("the word", atomic.LoadUint64(word(m, 8)), 2*peers*adds)
		if len(seen) != 2*peers*adds {
			t.failf("%d originals, want %d", len(seen), 2*peers*adds)
		}
	}},
	{"Atomic/N9_WrongRequestIsRefusedAtTheCallAndLeavesNoTrace", func(t *trial) {
		a, b := t.pair(shape{})
		for what, wr := range wrongAtomics(t, a, b) {
			t.is(a.qp.PostSend(wr), what, transport.ErrInvalid, transport.ErrAccess)
		}
		t.none(a, b)
		t.well(a, b)
	}},
	{"Atomic/MemoryForThemIsAligned", func(t *trial) {
		n := t.open(t.newDevices(1)[0], shape{})
		buf := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, 8)))), 64)
		for off := range 8 {
			m, err := n.pd.Register(buf[off:], transport.RemoteAtomic)
			if off%8 != 0 {
				t.is(err, "memory for Atomics at an odd address", transport.ErrInvalid)
				continue
			}
			t.must(err)
			t.must(m.Deregister())
		}
		m, err := n.pd.Register(buf[1:], all) // alignment matters only for Atomics
		t.must(err)
		t.must(m.Deregister())
	}},
	{"Atomic/TheRightIncludesLocalWriteAndNothingElse", func(t *trial) {
		a, b := t.pair(shape{})
		into, m := a.memory(64, all), b.memory(64, transport.RemoteAtomic)
		fill(into.Bytes(), 1, 1)
		t.must(b.qp.PostRecv(recv(1, m)))
		t.must(a.qp.PostSend(send(2, into)))
		t.one(b, 1, transport.OpRecv, a, b)
		t.one(a, 2, transport.OpSend, a, b)
		t.must(check(m.Bytes(), 1, 1))
		t.refused(a, b, write(3, into, m))
		t.closeAll()
		a, b = t.pair(shape{})
		t.refused(a, b, read(3, a.memory(64, all), b.memory(64, transport.RemoteAtomic)))
	}},
	{"Atomic/R6_WithoutTheRightIsRefused", func(t *trial) {
		a, b := t.pair(shape{})
		m := b.memory(64, all)
		t.refusedAtomic(a, b, segment(m, 8, 8))
		t.must(zero(m.Bytes()))
	}},
	{"Atomic/R6_OutOfBoundsIsRefused", func(t *trial) {
		for _, off := range []uint64{56, 64, 1 << 40, math.MaxUint64 &^ 7, math.MaxInt64 &^ 7} {
			a, b := t.pair(shape{})
			guard := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, 32)))), 256)
			m, err := b.pd.Register(guard[64:124], allAtomic) // ends within its last word
			t.must(err)
			t.refusedAtomic(a, b, transport.Segment{Key: m.Key(), Offset: off, Length: 8})
			t.must(zero(guard))
			t.closeAll()
		}
	}},
	{"Atomic/IsRefusedAtTheCallAtAnOffsetThatNoReadMayHave", func(t *trial) {
		for _, off := range []uint64{1<<46 + 8, 1 << 60, 1 << 63, math.MaxUint64 &^ 7} {
			a, b := t.pair(shape{})
			into, m := a.memory(8, all), b.memory(64, allAtomic|transport.RemoteRead)
			wr := read(1, into, m)
			wr.Remote[0].Offset = off
			if a.qp.PostSend(wr) != nil {
				t.is(a.qp.PostSend(fetchAdd(2, into, m, int(off), 1)), "an Atomic far beyond all memory",
					transport.ErrInvalid)
				t.none(a, b)
				t.well(a, b)
			}
			t.closeAll()
		}
	}},
	{"Atomic/R6_WrongKeyIsRefused", func(t *trial) {
		for _, wrong := range []func(b *node, m transport.MR) transport.Key{
			func(*node, transport.MR) transport.Key { return 0 },
			func(_ *node, m transport.MR) transport.Key { return m.Key() ^ 1 },
			func(_ *node, m transport.MR) transport.Key { return m.Key() ^ 1<<63 },
			func(b *node, _ transport.MR) transport.Key { // deregistered
				gone, err := b.pd.Register(make([]byte, 64), allAtomic)
				t.must(err)
				key := gone.Key()
				t.must(gone.Deregister())
				return key
			},
			func(b *node, _ transport.MR) transport.Key { // in another domain
				pd, err := b.dev.AllocPD()
				t.must(err)
				other, err := pd.Alloc(64, allAtomic)
				t.must(err)
				return other.Key()
			},
		} {
			a, b := t.pair(shape{})
			m := b.memory(64, allAtomic)
			t.refusedAtomic(a, b, transport.Segment{Key: wrong(b, m), Offset: 8, Length: 8})
			t.must(zero(m.Bytes()))
			t.closeAll()
		}
	}},
	{"Atomic/NoneIsCarriedOutAfterARefusedOne", func(t *trial) {
		for _, refused := range []transport.Opcode{transport.OpFetchAdd, transport.OpRead} {
			a, b := t.pair(shape{})
			into, m := a.memory(8, all), b.memory(8, allAtomic)
			bad := fetchAdd(3, into, m, 0, 1)
			bad.Op = refused
			bad.Remote[0].Key ^= 1 << 40
			for i := range uint64(7) {
				wr := fetchAdd(i, into, m, 0, 1)
				if i == 3 {
					wr = bad
				}
				t.must(a.qp.PostSend(wr))
			}
			wcs := t.take(a, 7, a, b)
			for i, wc := range wcs {
				if wc.ID != uint64(i) || i > 3 && wc.Status != transport.StatusFlushed || i == 3 &&
					wc.Status != transport.StatusRemoteAccess {
					t.failf("completions %+v, want request 3 to be refused", wcs)
				}
			}
			t.settle(a, b)
			t.same("the word", *word(m, 0), 3)
			t.closeAll()
		}
	}},
	{"Atomic/R5_MoreThanTheDepthWaitTheirTurn", func(t *trial) {
		a, b := t.pair(shape{reads: 2, sendWR: 300})
		const n = 200 // more than any peer accepts at once
		into, dst := a.memory(8*n, all), a.memory(8, all)
		counter, m := b.memory(8, allAtomic), b.memory(8, all)
		fill(m.Bytes(), 2, 2)
		for i := range n {
			wr := fetchAdd(uint64(i), into, counter, 0, 1)
			wr.Local[0].Offset = 8 * i
			if i >= n/2 && i%2 == 1 { // first only Atomics, then both
				wr = read(uint64(i), dst, m)
			}
			t.must(a.qp.PostSend(with(wr, transport.FlagMore))) // so that all could go at once
		}
		done := uint64(0)
		for i, wc := range t.take(a, n, a, b) {
			if wc.ID != uint64(i) || wc.Status != transport.StatusSuccess {
				t.failf("completion %d is %+v", i, wc)
			}
			if wc.Op == transport.OpFetchAdd {
				t.same("the original", *word(into, 8*i), done)
				done++
			}
		}
		t.must(check(dst.Bytes(), 2, 2))
		t.well(a, b)
	}},
	{"Atomic/FindsEarlierWritesPlaced", func(t *trial) {
		a, b := t.pair(shape{})
		const size = 40_000
		src, into, m := a.memory(size, all), a.memory(8, all), b.memory(size, allAtomic)
		for round := range uint64(40) {
			off := int(round%5) * 8
			fill(src.Bytes(), 1, round)
			value := *word(src, off)
			t.must(a.qp.PostSend(without(write(0, src, m), transport.FlagSignaled)))
			t.same("the original", t.original(a, b, fetchAdd(round, into, m, off, round)), value)
			t.same("the word", atomic.LoadUint64(word(m, off)), value+round)
		}
	}},
	{"Atomic/LaterReadsFindItDone", func(t *trial) {
		a, b := t.pair(shape{})
		into, dst, m := a.memory(8, all), a.memory(8, all), b.memory(8, allAtomic)
		for round := range uint64(40) {
			t.must(a.qp.PostSend(fetchAdd(1, into, m, 0, 1)))
			t.must(a.qp.PostSend(read(2, dst, m)))
			t.one(a, 1, transport.OpFetchAdd, a, b)
			t.one(a, 2, transport.OpRead, a, b)
			t.same("what was read", *word(dst, 0), round+1)
		}
	}},
	{"Atomic/FenceWaitsForEarlierReads", func(t *trial) {
		a, b := t.pair(shape{})
		const size = 60_000
		dst, into, m := a.memory(size, all), a.memory(8, all), b.memory(size, allAtomic)
		for round := range uint64(30) {
			fill(m.Bytes(), 1, round)
			value := *word(m, size-8)
			t.must(a.qp.PostSend(read(1, dst, m)))
			t.must(a.qp.PostSend(with(fetchAdd(2, into, m, size-8, 1), transport.FlagFence)))
			t.one(a, 1, transport.OpRead, a, b)
			t.one(a, 2, transport.OpFetchAdd, a, b)
			t.must(check(dst.Bytes(), 1, round)) // the contents before the Atomic
			t.same("the original", *word(into, 0), value)
		}
	}},
	{"Atomic/FenceWaitsForEarlierAtomics", func(t *trial) {
		a, b := t.pair(shape{})
		into, m, dst := a.memory(8, all), b.memory(8, allAtomic), b.memory(8, all)
		for round := range uint64(30) {
			*word(into, 0) = ^round
			*word(m, 0) = round * 77
			t.must(b.qp.PostRecv(recv(1, dst)))
			t.must(a.qp.PostSend(fetchAdd(2, into, m, 0, 1)))
			// sends the original of the Atomic
			t.must(a.qp.PostSend(with(send(3, into), transport.FlagFence)))
			t.one(a, 2, transport.OpFetchAdd, a, b)
			t.one(a, 3, transport.OpSend, a, b)
			t.one(b, 1, transport.OpRecv, a, b)
			t.same("what was sent", *word(dst, 0), round*77)
		}
	}},
	{"Atomic/UnsignalledGivesTheOriginalAllTheSame", func(t *trial) {
		a, b := t.pair(shape{})
		into, m := a.memory(16, all), b.memory(8, allAtomic)
		*word(m, 0) = 42
		t.must(a.qp.PostSend(without(fetchAdd(1, into, m, 0, 1), transport.FlagSignaled)))
		wr := fetchAdd(2, into, m, 0, 1)
		wr.Local[0].Offset = 8
		t.same("the second original", t.original(a, b, wr), 43)
		t.same("the first original", *word(into, 0), 42)
		t.none(a, b)
	}},
	{"Atomic/PlacedNamesTheQueuePair", func(t *trial) {
		a, b := t.pair(shape{})
		into, m := a.memory(8, all), b.memory(8, allAtomic)
		t.arm(b)
		t.original(a, b, fetchAdd(1, into, m, 0, 1))
		t.settle(b)
		if len(b.placed) != 1 || b.placed[0] != b.qp.Num() {
			t.failf("Placed has named %v, want %d once", b.placed, b.qp.Num())
		}
	}},
	{"Atomic/C4_FlushCompletesEveryRequestOnceAndInOrder", func(t *trial) {
		a, b := t.pair(shape{})
		const n = 20
		into, m := a.memory(8, all), b.memory(8, allAtomic)
		for i := range uint64(n) {
			t.must(a.qp.PostSend(fetchAdd(i, into, m, 0, 1))) // it needs the peer, which is not driven
		}
		a.qp.Abort(nil)
		t.until("all completions", func() bool { return len(a.wcs) >= n }, a)
		t.settle(a)
		t.flushed(a.wcs, 0, n, transport.StatusFatal)
	}},
	{"Atomic/C3_CloseWaitsForThoseOutstanding", func(t *trial) {
		a, b := t.pair(shape{})
		const n = 20
		into, m := a.memory(8, all), b.memory(8, allAtomic)
		for i := range uint64(n) {
			t.must(a.qp.PostSend(fetchAdd(i, into, m, 0, 1)))
		}
		a.qp.Close()
		for i, wc := range t.take(a, n, a, b) {
			if wc.ID != uint64(i) || wc.Status != transport.StatusSuccess {
				t.failf("completion %d is %+v", i, wc)
			}
		}
		t.same("the word", *word(m, 0), n)
		b.qp.Close()
		t.until("both queue pairs closed", bothIn(a, b, transport.StateClosed), a, b)
	}},
	{"Atomic/IntoADeregisteredRegionFails", func(t *trial) {
		a, b := t.pair(shape{})
		m, buf := b.memory(8, allAtomic), make([]byte, 8)
		into, err := a.pd.Register(buf, all)
		t.must(err)
		t.must(a.qp.PostSend(fetchAdd(1, into, m, 0, 1)))
		*word(m, 0) = 42
		t.must(into.Deregister())
		wc := t.take(a, 1, a, b)[0]
		if wc.ID != 1 || wc.Status == transport.StatusSuccess || wc.Err == nil {
			t.failf("completion %+v, want a failure", wc)
		}
		t.must(zero(buf))
		t.until("both queue pairs in error", bothIn(a, b, transport.StateError), a, b)
	}},
}

// adder is a rank that adds one to another rank's word many times, on its own goroutine.
type adder struct {
	*node
	into   transport.MR
	target transport.Segment
	n      int
	posted int
}

func (x *adder) run() error {
	end := time.Now().Add(x.t.timeout)
	for seen := 0; seen < x.n; {
		if time.Now().After(end) {
			return fmt.Errorf("rank %d waited in vain: %d of %d Atomics", x.rank, seen, x.n)
		}
		for ; x.posted < x.n; x.posted++ {
			wr := &transport.SendWR{ID: uint64(x.posted), Op: transport.OpFetchAdd,
				Flags: transport.FlagSignaled, Operand: 1,
				Local: []transport.SGE{part(x.into, 8*x.posted, 8)}, Remote: []transport.Segment{x.target}}
			if err := x.qp.PostSend(wr); errors.Is(err, transport.ErrQueueFull) {
				break
			} else if err != nil {
				return err
			}
		}
		x.poll()
		for _, wc := range x.wcs {
			if wc.ID != uint64(seen) || wc.Status != transport.StatusSuccess {
				return fmt.Errorf("rank %d: completion %d is %+v", x.rank, seen, wc)
			}
			seen++
		}
		x.wcs = x.wcs[:0]
		if err := x.recvCQ.Wait(time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (x *adder) originals() (list []uint64) {
	for i := range x.n {
		list = append(list, *word(x.into, 8*i))
	}
	return list
}
