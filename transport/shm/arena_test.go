package shm

import (
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// resident is how many bytes of an arena have pages.
func resident(t *testing.T, d *Device) int64 {
	t.Helper()
	var st syscall.Stat_t
	require.NoError(t, syscall.Fstat(d.arena.fd, &st))
	return st.Blocks * 512
}

func TestArena_MemoryThatIsGivenBackIsTheSystems(t *testing.T) {
	d, err := New(Options{})
	require.NoError(t, err)
	defer d.Close()
	p, err := d.AllocPD()
	require.NoError(t, err)
	first, err := p.Alloc(1, everyRight) // and the page of its key
	require.NoError(t, err)
	before := resident(t, d)
	for _, n := range []int{128 << 10, maxFilled, 8 << 20} {
		m, err := p.Alloc(n, everyRight)
		require.NoError(t, err)
		require.Equal(t, before+int64(n), resident(t, d), "it has its pages before they are touched")
		require.Equal(t, make([]byte, n), m.Bytes())
		m.Bytes()[n-1] = 1
		require.NoError(t, m.Deregister())
		require.Equal(t, before, resident(t, d))
	}
	require.NoError(t, first.Deregister())
}

// TestArena_WhatNoPeerReachesIsNotInIt: such memory is private, and goes back to the system by itself, or,
// detached, not at all.
func TestArena_WhatNoPeerReachesIsNotInIt(t *testing.T) {
	d, err := New(Options{})
	require.NoError(t, err)
	defer d.Close()
	p, err := d.AllocPD()
	require.NoError(t, err)
	key, err := p.Alloc(1, everyRight) // the page of its key
	require.NoError(t, err)
	before, mapped := resident(t, d), sys.Mapped()
	for _, rights := range []transport.Access{0, transport.LocalWrite} {
		m, err := p.Alloc(100_000, rights)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 100_000), m.Bytes())
		require.Equal(t, before, resident(t, d))
		require.Greater(t, sys.Mapped(), mapped)
		require.NoError(t, m.Deregister())
		require.Equal(t, mapped, sys.Mapped())
	}
	m, err := p.Alloc(100_000, transport.LocalWrite|transport.Mappable)
	require.NoError(t, err)
	require.Greater(t, resident(t, d), before)
	require.NoError(t, m.Deregister())
	m, err = p.Alloc(100_000, transport.LocalWrite)
	require.NoError(t, err)
	mem := m.Bytes()
	require.NoError(t, m.Detach())
	mem[99_999] = 1
	require.NoError(t, sys.Unmap(mem))
	_, err = p.Alloc(100_000, 1<<15)
	require.ErrorIs(t, err, transport.ErrInvalid)
	require.Equal(t, mapped, sys.Mapped(), "what was refused has no memory")
	require.NoError(t, key.Deregister())
}

func TestArena_TooLittleMemoryIsAnErrorAndNothingElse(t *testing.T) {
	a, b := couple(t, Options{Arena: minArena})
	var held []transport.MR
	for {
		m, err := a.pd.Alloc(2*pageSize, everyRight)
		if err != nil {
			require.ErrorIs(t, err, errNoMemory)
			require.ErrorContains(t, err, "no room for 131072 bytes")
			break
		}
		m.Bytes()[2*pageSize-1] = 1
		held = append(held, m)
	}
	require.NotEmpty(t, held)
	_, err := a.pd.Alloc(1<<62, everyRight)
	require.ErrorIs(t, err, errNoMemory)

	// What needs a bounce buffer gets on without one.
	src, err := a.pd.Register(make([]byte, 50_000), everyRight)
	require.NoError(t, err)
	dst, err := b.pd.Register(make([]byte, 50_000), everyRight)
	require.NoError(t, err)
	for i := range src.Bytes() {
		src.Bytes()[i] = byte(i * 7)
	}
	wr := writeOf(src, dst, 50_000)
	wr.Flags = transport.FlagSignaled
	require.NoError(t, a.qp.PostSend(wr))
	var wc [1]transport.WC
	for a.cq.Poll(wc[:]) == 0 {
		b.cq.Poll(nil)
	}
	require.Equal(t, transport.StatusSuccess, wc[0].Status)
	b.cq.Poll(nil)
	require.Equal(t, src.Bytes(), dst.Bytes())
	require.True(t, a.qp.out.bounce.failed)

	require.NoError(t, held[0].Deregister())
	m, err := a.pd.Alloc(2*pageSize, everyRight)
	require.NoError(t, err)
	require.Zero(t, m.Bytes()[2*pageSize-1])
	_, err = New(Options{Arena: minArena - 1})
	require.ErrorIs(t, err, transport.ErrInvalid)
}

// Whatever is handed out and given back in whatever order: nothing overlaps, all of it is zero, and in the
// end everything is one piece again.
func TestArena_HandsOutEveryByteOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, err := newArena(minArena)
		if err != nil {
			t.Fatal(err)
		}
		defer a.close()
		whole := slices.Clone(a.free)
		var held []span
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "give back") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				if err := a.put(held[i], nil); err != nil {
					t.Fatal(err)
				}
				held = append(held[:i], held[i+1:]...)
				continue
			}
			n := rapid.IntRange(1, 5*pageSize).Draw(t, "bytes")
			s, err := a.alloc(n)
			if err != nil {
				continue
			}
			for i, b := range a.bytes(s)[:n] {
				if b != 0 {
					t.Fatalf("byte %d is %d", i, b)
				}
			}
			for _, o := range held {
				if s.off < o.off+o.n && o.off < s.off+s.n {
					t.Fatalf("%v and %v overlap", s, o)
				}
			}
			for _, at := range []int{0, n / 2, n - 1} {
				a.bytes(s)[at] = 0xff
			}
			held = append(held, s)
		}
		for _, s := range held {
			if err := a.put(s, nil); err != nil {
				t.Fatal(err)
			}
		}
		if a.filled.n > 0 {
			if err := a.recycle(a.filled); err != nil {
				t.Fatal(err)
			}
			a.used += a.filled.n
		}
		for _, off := range a.blocks {
			if err := a.recycle(span{off, unit}); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(a.free, whole) || a.used != 0 {
			t.Fatalf("%v are free of %v, and %d in use", a.free, whole, a.used)
		}
	})
}

// Memory that no peer accesses has pages when it is used, not before; a small ring has them at once.
func TestMap_PagesOfWhatNoPeerAccesses(t *testing.T) {
	a, _ := couple(t, Options{})
	a.alloc(t, 1) // which takes the first page of the table of keys
	before := resident(t, a.dev)
	mirror, err := a.pd.Alloc(8<<10, transport.LocalWrite)
	require.NoError(t, err)
	require.Equal(t, before, resident(t, a.dev))
	mirror.Bytes()[0] = 1
	require.Equal(t, before+unit, resident(t, a.dev))
	_, err = a.pd.Alloc(2*mappedAtOnce, transport.RemoteWrite)
	require.NoError(t, err)
	require.Equal(t, before+unit+2*mappedAtOnce, resident(t, a.dev))
}

// An inline Write needs no posted one before it.
func TestWriteInline_First(t *testing.T) {
	a, b := couple(t, Options{})
	m := b.alloc(t, 64)
	require.True(t, a.qp.WriteInline(&transport.Segment{Key: m.Key(), Length: 64}, nil, nil, 77))
	require.EqualValues(t, 77, m.Bytes()[56])
	require.False(t, a.qp.WriteInline(&transport.Segment{Key: m.Key() + 1<<30, Length: 64}, nil, nil, 78))
	require.NoError(t, m.Deregister())
	require.False(t, a.qp.WriteInline(&transport.Segment{Key: m.Key(), Length: 64}, nil, nil, 79))
}

// Once the device is closed, its memory is not mapped, and the number of its descriptor may be another file's.
func TestArena_ClosedGivesNoMemory(t *testing.T) {
	d, err := New(Options{})
	require.NoError(t, err)
	off, err := d.arena.block()
	require.NoError(t, err)
	d.arena.putBlock(off)
	require.NoError(t, d.Close())
	_, err = d.arena.doorbell()
	require.ErrorIs(t, err, transport.ErrDeviceGone)
	_, err = d.arena.block()
	require.ErrorIs(t, err, transport.ErrDeviceGone)
}
