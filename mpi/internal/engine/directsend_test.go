//go:build linux

package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-mpi/weft/transport/shm"

	"github.com/stretchr/testify/require"
)

// TestDirectSend_NotTakenAtOnceGoesIntoASlot: ranks that send to each other before they receive do not wait for
// each other, although their messages were announced: the peer had taken all earlier ones. Every message comes
// once, in order, whether it was announced, withdrawn or sent into a slot.
func TestDirectSend_NotTakenAtOnceGoesIntoASlot(t *testing.T) {
	const n, rounds = 1000, 60
	w := worldOf(t, shmDevices(t, 2, shm.Options{}), Config{SpinTime: time.Second})
	connected(t, w)
	for _, e := range w {
		p := e.peers[1-e.Rank()]
		p.shortLimit, p.copies.awaited, p.copies.sampled = 100, 100, false
	}
	var unawaited atomic.Bool // a message was announced, and not taken at once
	body := func(e *Engine) error {
		peer, in := 1-e.Rank(), make([]byte, n)
		exchange := func(i int, first bool) error {
			out := make([]byte, n)
			pattern(out, e.Rank(), i)
			recv := func() error {
				_, err := e.recv(world0, in, peer, i, 1)
				want := make([]byte, n)
				if pattern(want, peer, i); err == nil && string(in) != string(want) {
					err = errors.New("other bytes")
				}
				return err
			}
			if first {
				return errors.Join(e.Sends.Send(world0, out, peer, i), recv())
			}
			return errors.Join(recv(), e.Sends.Send(world0, out, peer, i))
		}
		for i := range rounds {
			// a dialogue, in which all is taken, and then both at once
			if err := exchange(2*i, e.Rank() == 0); err != nil {
				return err
			}
			e.mu.Lock()
			e.peers[peer].unawaited.skip = 0
			e.mu.Unlock()
			if err := exchange(2*i+1, true); err != nil {
				return err
			}
			e.mu.Lock()
			if e.peers[peer].unawaited.inARow > 0 {
				unawaited.Store(true)
			}
			e.mu.Unlock()
		}
		return nil
	}
	// On a busy machine it may be long until a rank sends right after the other has taken all of its messages.
	for range 100 {
		if ranks(t, w, body); unawaited.Load() || t.Failed() {
			break
		}
	}
	require.True(t, unawaited.Load())
}

// TestFINWords: windows of more announced messages than there are words for FINs, both ways at once, some of
// them withdrawn or taken late, all come to their end.
func TestFINWords(t *testing.T) {
	const window, rounds = 90, 20
	w := worldOf(t, shmDevices(t, 2, shm.Options{}), Config{SpinTime: time.Second, EagerLimit: 100})
	ranks(t, w, func(e *Engine) error {
		peer := 1 - e.Rank()
		for i := range rounds {
			var open []Request
			in := make([][]byte, window)
			for k := range window {
				in[k] = make([]byte, 200+k)
				out := make([]byte, 200+k)
				pattern(out, e.Rank(), k)
				s, err := e.Sends.Isend(world0, out, peer, k)
				if err != nil {
					return err
				}
				r, err := e.Recvs.Irecv(world0, in[k], peer, (k+i)%window, 1)
				if err != nil {
					return err
				}
				open = append(open, s, r)
			}
			for _, r := range open {
				if _, err := e.Requests.Wait(r); err != nil && !errors.Is(err, ErrTruncate) {
					return err
				}
			}
		}
		return nil
	})
	for _, e := range w {
		require.Zero(t, e.fabrics[0].sender.Outstanding(e.peers[1-e.Rank()].ch))
	}
}
