//go:build linux

package engine

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sharedcopy"
	"github.com/weft-mpi/weft/mpi/internal/rma"
	"github.com/weft-mpi/weft/transport/shm"
)

// sharedWindow is a window of ranks that have cores of their own, with memory of rank 0 that has a pattern.
func sharedWindow(t *testing.T, n, size int) (w []*Engine, wins []*Window, mem []byte) {
	w = worldOf(t, shmDevices(t, n, shm.Options{}), Config{SpinTime: time.Second})
	cards, all := make([]WindowCard, n), make([]int, n)
	wins = make([]*Window, n)
	for i, e := range w {
		b, err := e.Alloc(max(size*(1-i), 8))
		require.NoError(t, err)
		wins[i], cards[i], err = e.NewWindow(9, b, rma.Type{Kind: rma.Int, Size: 1})
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
// and compare them, until there are rounds of them and enough says so.
func moveRanges(e *Engine, win *Window, mem []byte, rounds int, enough func() bool) error {
	rng := rand.New(rand.NewPCG(5, uint64(e.rank)))
	buf, err := e.Alloc(len(mem) / 2)
	if err != nil {
		return err
	}
	target := win.Target(0)
	if err := target.Reach(nil); err != nil {
		return err
	}
	share := len(mem) / 2 / (len(win.targets) - 1)
	first, mine := mem[:len(mem)/2], mem[len(mem)/2+(e.rank-1)*share:][:share]
	for i := 0; i < rounds || !enough(); i++ {
		n := SharedMove + rng.IntN(1<<(15+rng.IntN(8)))
		switch { // whether the owner comes to copy something is a matter of chance: it has many
		case i > 100_000:
			return errors.New("the owner has copied nothing")
		case i > rounds:
			n = SharedMove
		}
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
	return e.Free(buf)
}

func copiedBy(e *Engine) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.windows.copied
}

// TestSharedMoves: two ranks at once get and put ranges of every length of the part of a third one, which
// waits for them and copies some of the bytes.
func TestSharedMoves(t *testing.T) {
	w, wins, mem := sharedWindow(t, 3, 10<<20)
	ranks(t, w, func(e *Engine) error {
		if e.Rank() > 0 {
			enough := func() bool { return copiedBy(w[0]) > 0 }
			return errors.Join(moveRanges(e, wins[e.rank], mem, 30, enough), e.Send(world0, nil, 0, 1))
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
	w, wins, mem := sharedWindow(t, 2, 6<<20)
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
		if err := e.Send(world0, nil, 0, 1); err != nil {
			return err
		}
		buf := make([]byte, len(mem))
		if err := wins[1].Target(0).Get(buf, 0, nil); err != nil || !bytes.Equal(buf, mem) {
			return errors.Join(err, errors.New("other bytes, in ordinary memory"))
		}
		return moveRanges(e, wins[1], mem, 20, func() bool { return true })
	})
	require.Zero(t, w[0].windows.copied)
}

// TestSharedMoves_OfAnOwnerThatStands: what it has claimed of a Get, and does not copy, is copied by the other
// end; of a Put the owner is given up, since it could do that later.
func TestSharedMoves_OfAnOwnerThatStands(t *testing.T) {
	w, wins, mem := sharedWindow(t, 2, 2<<20)
	var struck atomic.Int32
	over := make(chan struct{})
	c := wins[0].shared.claims
	wins[0].shared.claims = nil // no pass helps
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			if o := c.Look(); o.Open() {
				if _, n := c.ClaimBack(&o); n > 0 {
					struck.Add(1)
				}
			}
		}
	})
	defer close(over)
	e, target := w[1], wins[1].Target(0)
	ranks(t, w, func(e *Engine) error {
		if e.Rank() == 0 {
			_, err := e.recv(world0, nil, 1, 1, 1)
			return err
		}
		return errors.Join(target.Reach(nil), e.Send(world0, nil, 0, 1))
	})
	buf, err := e.Alloc(1 << 20)
	require.NoError(t, err)
	for struck.Load() == 0 {
		clear(buf)
		require.NoError(t, target.Get(buf, 4096, nil))
		require.Equal(t, mem[4096:][:len(buf)], buf)
	}
	pattern(buf, 1, 2)
	for struck.Store(0); struck.Load() == 0; {
		require.NoError(t, target.Put(buf, 0, nil))
	}
	require.ErrorIs(t, target.Flush(nil), errPutStands)
}

// TestSharedMoves_OfALiar: whatever a peer writes to the claims of a part, its owner goes on, and shares moves
// of others afterwards.
func TestSharedMoves_OfALiar(t *testing.T) {
	w, wins, mem := sharedWindow(t, 3, 6<<20)
	ranks(t, w, func(e *Engine) error {
		win := wins[e.Rank()]
		recv := func(from int) error { _, err := e.recv(world0, nil, from, 1, 1); return err }
		switch e.Rank() {
		case 0:
			err := recv(1)
			pattern(mem, 0, 1)
			return errors.Join(err, e.Send(world0, nil, 2, 1), recv(2))
		case 1:
			err := win.Target(0).Reach(nil)
			rng := rand.New(rand.NewPCG(7, 8))
			for range 100_000 {
				word := win.Target(0).controlWord(wordClaims + 8*rng.IntN(sharedcopy.Size/8))
				atomic.StoreUint64(word, rng.Uint64()>>rng.IntN(64))
			}
			return errors.Join(err, e.Send(world0, nil, 0, 1))
		}
		before := uint64(0)
		enough := func() bool {
			copied := copiedBy(w[0])
			before = cmp.Or(before, copied)
			return copied > before
		}
		return errors.Join(recv(0), moveRanges(e, win, mem, 10, enough), e.Send(world0, nil, 0, 1))
	})
}
