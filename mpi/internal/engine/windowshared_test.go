//go:build linux

package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sharedcopy"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi/internal/rma"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
)

// sharedWindow is a window of ranks that have cores of their own, with memory of rank 0 that has a pattern.
// An owner that does not copy its share is given up after the timeout.
func sharedWindow(t *testing.T, n, size int, timeout time.Duration) (w []*Engine, wins []*Window, mem []byte) {
	w = worldOf(t, shmDevices(t, n, shm.Options{}), Config{SpinTime: time.Second, PeerTimeout: timeout})
	cards, all := make([]WindowCard, n), make([]int, n)
	wins = make([]*Window, n)
	for i, e := range w {
		b, err := e.hub.Memory.Alloc(max(size*(1-i), 8))
		require.NoError(t, err)
		wins[i], cards[i], err = e.Windows.New(9, b, rma.Type{Kind: rma.Int, Size: 1})
		require.NoError(t, err)
		all[i] = i
	}
	mem = wins[0].mem
	pattern(mem, 0, 1)
	for i, win := range wins {
		win.Join(i, all, cards)
	}
	return w, wins, mem
}

// moveRanges has a rank get ranges of rank 0's part, and put ranges to its own share of the second half of it,
// and compare them, in a number of rounds.
func moveRanges(e *Engine, win *Window, mem []byte, rounds int) error {
	buf, err := e.hub.Memory.Alloc(len(mem) / 2)
	if err != nil {
		return err
	}
	target := win.Target(0)
	if err := target.Reach(nil); err != nil {
		return err
	}
	share := len(mem) / 2 / (len(win.targets) - 1)
	mine := mem[len(mem)/2+(e.rank-1)*share:][:share]
	if err := moveIn(e, target, buf, mem, mine, rounds); err != nil {
		return err
	}
	return e.hub.Memory.Free(buf)
}

// moveIn is moveRanges through a buffer, with a share of the memory.
func moveIn(e *Engine, target *Target, buf, mem, mine []byte, rounds int) (err error) {
	rng := rand.New(rand.NewPCG(5, uint64(e.rank)))
	first := mem[:len(mem)/2]
	for i := range rounds {
		n := SharedMove + rng.IntN(1<<(15+rng.IntN(8)))
		put := i%2 == 1
		there := first
		if put {
			there = mine
		}
		n = min(n, len(there)-1)
		at, to := rng.IntN(len(there)-n), rng.IntN(len(buf)-n)
		here, offset := buf[to:][:n], len(mem)-cap(there)+at
		if put {
			pattern(here, e.rank, i)
			err = target.Put(here, offset, nil)
		} else {
			clear(buf)
			err = target.Get(here, offset, nil)
		}
		if err == nil {
			err = target.Flush(nil)
		}
		switch {
		case err != nil:
			return err
		case !bytes.Equal(here, there[at:][:n]):
			return fmt.Errorf("other bytes; put %t", put)
		case !put && (to > 0 && buf[to-1] != 0 || to+n < len(buf) && buf[to+n] != 0):
			return errors.New("bytes beside the range were changed")
		}
	}
	return nil
}

func copiedBy(e *Engine) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Windows.copied
}

// moveSlowly is a Get or Put of all of buf at the start of rank 0's part that copies nothing until the owner
// has copied something.
func moveSlowly(e, owner *Engine, target *Target, op transport.Opcode, buf []byte) error {
	user := target.Control.word(wordUser)
	if !atomic.CompareAndSwapUint64(user, 0, uint64(e.rank)+1) {
		return errors.New("another rank uses the claims")
	}
	defer atomic.StoreUint64(user, 0)
	mr, memory := target.shared.register(op, buf)
	if mr == nil {
		return errors.New("the buffer cannot be registered")
	}
	p := sharedcopy.Part{ID: uint64(e.rank), Key: uint64(mr.Key()), Length: uint64(len(buf))}
	if op == transport.OpWrite {
		p.ID |= movesIn
	}
	before, limit := copiedBy(owner), time.Now().Add(time.Minute)
	leader := sharedcopy.Leader{Claims: (*sharedcopy.Claims)(unsafe.Pointer(target.Control.word(wordClaims)))}
	leader.AfterOthers()
	done := leader.Copy(&p, func(from, to uint64) bool {
		for copiedBy(owner) == before {
			if time.Now().After(limit) {
				return false
			}
			runtime.Gosched()
		}
		target.copyRange(op, buf[from:to], int(from))
		return true
	}, func() bool { runtime.Gosched(); return true })
	e.mu.Lock()
	defer e.mu.Unlock()
	memory.pins--
	if err := mr.Deregister(); err != nil || !done {
		return errors.Join(err, errors.New("the owner has copied nothing"))
	}
	return nil
}

// TestSharedMoves_TheOwnerCopies a share of what another rank gets and puts, while it waits in a call.
func TestSharedMoves_TheOwnerCopies(t *testing.T) {
	w, wins, mem := sharedWindow(t, 2, sharedcopy.MaxPart, time.Minute)
	ranks(t, w, func(e *Engine) error {
		if e.Rank() == 0 {
			_, err := e.recv(world0, nil, 1, 1, 1)
			return err
		}
		target := wins[1].Target(0)
		buf, err := e.hub.Memory.Alloc(len(mem))
		if err := errors.Join(err, target.Reach(nil)); err != nil {
			return err
		}
		if err := moveSlowly(e, w[0], target, transport.OpRead, buf); err != nil {
			return err
		}
		if !bytes.Equal(buf, mem) {
			return errors.New("other bytes after a Get")
		}
		pattern(buf, 1, 2)
		if err := moveSlowly(e, w[0], target, transport.OpWrite, buf); err != nil {
			return err
		}
		if !bytes.Equal(buf, mem) {
			return errors.New("other bytes after a Put")
		}
		return e.Sends.Send(world0, nil, 0, 1)
	})
}

// TestSharedMoves: two ranks at once get and put ranges of every length of the part of a third one, which
// waits for them and may copy some of the bytes.
func TestSharedMoves(t *testing.T) {
	w, wins, mem := sharedWindow(t, 3, 10<<20, time.Minute)
	ranks(t, w, func(e *Engine) error {
		if e.Rank() > 0 {
			return errors.Join(moveRanges(e, wins[e.rank], mem, 30), e.Sends.Send(world0, nil, 0, 1))
		}
		for from := range 2 {
			if _, err := e.recv(world0, nil, from+1, 1, 1); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestSharedMoves_OfARankThatComputes are made by the others alone, and so are those into other memory.
func TestSharedMoves_OfARankThatComputes(t *testing.T) {
	w, wins, mem := sharedWindow(t, 2, 6<<20, time.Minute)
	over := make(chan struct{})
	ranks(t, w, func(e *Engine) error {
		if e.Rank() == 0 {
			if _, err := e.recv(world0, nil, 1, 1, 1); err != nil {
				return err
			}
			<-over
			return nil
		}
		defer close(over)
		if err := e.Sends.Send(world0, nil, 0, 1); err != nil {
			return err
		}
		buf := make([]byte, len(mem))
		if err := wins[1].Target(0).Get(buf, 0, nil); err != nil || !bytes.Equal(buf, mem) {
			return errors.Join(err, errors.New("other bytes, in ordinary memory"))
		}
		return moveRanges(e, wins[1], mem, 20)
	})
	require.Zero(t, w[0].Windows.copied)
}

// TestSharedMoves_OfSeveralGoroutines of a rank are made side by side.
func TestSharedMoves_OfSeveralGoroutines(t *testing.T) {
	w, wins, mem := sharedWindow(t, 2, 8<<20, time.Minute)
	ranks(t, w, func(e *Engine) error {
		if e.Rank() == 0 {
			_, err := e.recv(world0, nil, 1, 1, 1)
			return err
		}
		target := wins[1].Target(0)
		errs := []error{target.Reach(nil), nil, nil}
		var all sync.WaitGroup
		for i := range 2 {
			buf, err := e.hub.Memory.Alloc(4 << 20)
			if err != nil {
				return err
			}
			mine := mem[4<<20+i*2<<20:][:2<<20]
			all.Go(func() { errs[i] = errors.Join(errs[i], moveIn(e, target, buf, mem, mine, 30)) })
		}
		all.Wait()
		return errors.Join(append(errs, e.Sends.Send(world0, nil, 0, 1))...)
	})
}

// TestSharedMoves_OfAnOwnerThatStands: an owner that has claimed pages and does not copy them, but does all
// else, is given up: it could do so later. Until then the caller's memory cannot be freed.
func TestSharedMoves_OfAnOwnerThatStands(t *testing.T) {
	for name, move := range map[string]func(*Target, []byte) error{
		"Get": func(t *Target, b []byte) error { return t.Get(b, 0, nil) },
		"Put": func(t *Target, b []byte) error { return t.Put(b, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			w, wins, mem := sharedWindow(t, 2, 2<<20, 300*time.Millisecond)
			e, target := w[1], wins[1].Target(0)
			ranks(t, w, func(e *Engine) error {
				if e.Rank() == 0 {
					_, err := e.recv(world0, nil, 1, 1, 1)
					return err
				}
				return errors.Join(target.Reach(nil), e.Sends.Send(world0, nil, 0, 1))
			})
			buf, err := e.hub.Memory.Alloc(1 << 20)
			require.NoError(t, err)
			copy(buf, mem)
			moved := make(chan error)
			go func() {
				for target.Err() == nil {
					if err := move(target, buf); err != nil {
						moved <- err
						return
					}
				}
				moved <- nil
			}()
			for h, n := (sharedcopy.Helper{Claims: wins[0].shared.Claims}), uint64(0); n == 0; {
				if o, ok := h.Next(); ok {
					_, n = h.Claim(&o)
				}
			}
			require.ErrorIs(t, e.hub.Memory.Free(buf), ErrBuffer)
			require.NoError(t, <-moved)
			require.ErrorIs(t, target.Flush(nil), errShareStands)
			require.ErrorIs(t, wins[1].FlushAll(nil), errShareStands)
			require.Equal(t, mem[:len(buf)], buf)
			require.NoError(t, e.hub.Memory.Free(buf))
		})
	}
}

// TestSharedMoves_AfterAUserHasFailed: others use the claims then.
func TestSharedMoves_AfterAUserHasFailed(t *testing.T) {
	w, wins, _ := sharedWindow(t, 3, 1<<20, time.Minute)
	user := wins[1].Target(0).Control.word
	ranks(t, w, func(e *Engine) error {
		if e.Rank() > 0 {
			return errors.Join(wins[e.rank].Target(0).Reach(nil), e.Sends.Send(world0, nil, 0, 1))
		}
		for from := range 2 {
			if _, err := e.recv(world0, nil, from+1, 1, 1); err != nil {
				return err
			}
		}
		return nil
	})
	atomic.StoreUint64(user(wordUser), 2+1)
	for rank := 1; rank <= 2; rank++ {
		require.Equal(t, uint64(2+1), atomic.LoadUint64(user(wordUser)))
		w[0].mu.Lock()
		w[0].failures.failPeer(w[0].peers[rank], transport.ErrPeerLost)
		w[0].mu.Unlock()
	}
	require.Zero(t, atomic.LoadUint64(user(wordUser)))
}

// TestSharedMoves_OfALiar: whatever a peer writes to the claims of a part, its owner goes on, and shares moves
// of others afterwards.
func TestSharedMoves_OfALiar(t *testing.T) {
	w, wins, mem := sharedWindow(t, 3, 6<<20, time.Minute)
	ranks(t, w, func(e *Engine) error {
		win := wins[e.Rank()]
		recv := func(from int) error { _, err := e.recv(world0, nil, from, 1, 1); return err }
		switch e.Rank() {
		case 0:
			err := recv(1)
			pattern(mem, 0, 1)
			return errors.Join(err, e.Sends.Send(world0, nil, 2, 1), recv(2))
		case 1:
			err := win.Target(0).Reach(nil)
			rng := rand.New(rand.NewPCG(7, 8))
			for range 100_000 {
				word := win.Target(0).Control.word(wordClaims + 8*rng.IntN(sharedcopy.Size/8))
				atomic.StoreUint64(word, rng.Uint64()>>rng.IntN(64))
			}
			return errors.Join(err, e.Sends.Send(world0, nil, 0, 1))
		}
		buf, err := e.hub.Memory.Alloc(sharedcopy.MaxPart)
		if err := errors.Join(err, recv(0), moveRanges(e, win, mem, 10)); err != nil {
			return err
		}
		if err := moveSlowly(e, w[0], win.Target(0), transport.OpRead, buf); err != nil {
			return err
		}
		if !bytes.Equal(buf, mem[:len(buf)]) {
			return errors.New("other bytes after the owner has helped")
		}
		return e.Sends.Send(world0, nil, 0, 1)
	})
}

// Memory of a peer that is shorter than the peer has said does not stay mapped.
func TestTarget_ShortMemoryIsUnmapped(t *testing.T) {
	typ := rma.Type{Kind: rma.Int, Size: 1}
	for _, short := range []string{"control block", "attachment"} {
		w := worldOf(t, shmDevices(t, 2, shm.Options{}), Config{})
		connected(t, w)
		ours, card0, err := w[0].Windows.NewDynamic(9, typ)
		require.NoError(t, err)
		make1 := w[1].Windows.NewDynamic
		if short == "control block" {
			make1 = func(id uint32, typ rma.Type) (*Window, WindowCard, error) {
				return w[1].Windows.New(id, nil, typ)
			}
		}
		theirs, card1, err := make1(9, typ)
		require.NoError(t, err)
		for rank, win := range []*Window{ours, theirs} {
			win.Join(rank, []int{0, 1}, []WindowCard{card0, card1})
		}
		at := 0
		if short == "attachment" {
			mem, err := w[1].hub.Memory.Alloc(4096)
			require.NoError(t, err)
			at, err = theirs.Attach(mem)
			require.NoError(t, err)
			entry := theirs.control[entryAt(uint64(at)>>AttachedShift):]
			binary.NativeEndian.PutUint64(entry[entryLength:], 4097)
			require.NoError(t, ours.Target(1).Reach(nil))
		}
		mapped := sys.Mapped()
		if short == "attachment" {
			target, err := ours.Target(1).Hold(at, nil)
			require.NoError(t, err)
			require.False(t, target.Mapped())
		} else {
			require.NoError(t, ours.Target(1).Reach(nil))
			require.False(t, ours.Target(1).Mapped())
		}
		require.Equal(t, mapped, sys.Mapped(), short)
	}
}
