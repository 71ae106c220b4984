package engine

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport/shm"
)

// TestRandomMixture has every rank send to every other, sizes and tags at random, through blocking and
// non-blocking calls, wildcards and probes: every byte is checked, and messages of one sender and tag never
// overtake one another.
func TestRandomMixture(t *testing.T) {
	onEach(t, 4, func(t *testing.T, w []*Engine) {
		messages, largest := often(1500), 300_000
		if simulated(w) {
			messages, largest = 100, 5_000
		}
		_, without := w[0].fabrics[0].Device.(noReads)
		if without {
			messages /= 4
		}
		ranks(t, w, func(e *Engine) error { return mixture(e, messages, largest, 42) })
		if !simulated(w) { // there all fit the slots
			requireGranted(t, w, without || !w[0].fabrics[0].Device.Query().DirectCopies)
		}
	})
	for seed := range uint64(often(20)) { // each has a schedule and an order of placement of its own
		w := world(t, fabrics["sim"](t, seed, 3))
		ranks(t, w, func(e *Engine) error { return mixture(e, 60, 5_000, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestRandomMixture_OfGrants has slots so small that most messages are announced, and written by their
// senders.
func TestRandomMixture_OfGrants(t *testing.T) {
	for seed := range uint64(often(10)) {
		w := worldOf(t, fabrics["sim-granted"](t, seed, 3), Config{EagerLimit: 100})
		ranks(t, w, func(e *Engine) error { return mixture(e, 60, 5_000, seed) })
		requireGranted(t, w, true)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for how, granted := range map[Rendezvous]bool{RendezvousAuto: true, RendezvousRead: false,
		RendezvousWrite: true} {
		w := worldOf(t, fabrics["tcp"](t, 1, 3), Config{EagerLimit: 100, Rendezvous: how})
		ranks(t, w, func(e *Engine) error { return mixture(e, often(500), 50_000, 7) })
		requireGranted(t, w, granted)
	}
	w := worldOf(t, shmDevices(t, 3, shm.Options{}), Config{EagerLimit: 100})
	ranks(t, w, func(e *Engine) error { return mixture(e, often(500), 50_000, 7) })
	requireGranted(t, w, false)
}

// requireGranted has all ranks have written announced messages, or none; none of either is open.
func requireGranted(t *testing.T, w []*Engine, granted bool) {
	t.Helper()
	for _, e := range w {
		var written, announced uint64
		for _, c := range e.Stats().Channels {
			written += c.Granted
			announced += c.Rendezvous
		}
		require.Positive(t, announced)
		require.Equal(t, granted, written > 0, "%d of %d", written, announced)
	}
}

const mixtureTags = 3

// mixture sends n messages to every rank, itself included, and receives as many. The pattern of each follows
// from its sender, its tag and its number among those from one rank to another with one tag.
func mixture(e *Engine, n, largest int, seed uint64) error {
	var wg sync.WaitGroup
	var sendErr error
	wg.Go(func() { sendErr = mixtureSend(e, n, largest, rand.New(rand.NewPCG(seed+1, uint64(e.Rank())))) })
	err := mixtureReceive(e, n, largest, rand.New(rand.NewPCG(seed, uint64(e.Rank()))))
	if err != nil {
		e.hub.Fail(err)
	}
	wg.Wait()
	if err == nil {
		err = sendErr
	}
	return err
}

func mixtureSend(e *Engine, n, largest int, rng *rand.Rand) error {
	size := e.Size()
	next := make([][mixtureTags]int, size)
	var open []Request
	wait := func() error {
		for _, r := range open {
			if _, err := e.Requests.Wait(r); err != nil {
				return err
			}
		}
		open = open[:0]
		return nil
	}
	for i := range n * size {
		dst := (i + e.Rank()) % size
		tag := rng.IntN(mixtureTags)
		next[dst][tag]++
		buf := make([]byte, mixtureLen(rng, largest))
		pattern(buf, e.Rank()*mixtureTags+tag, next[dst][tag])
		if rng.IntN(4) == 0 && dst != e.Rank() {
			if err := e.Sends.Send(world0, buf, dst, tag); err != nil {
				return err
			}
			continue
		}
		r, err := e.Sends.Isend(world0, buf, dst, tag)
		if err != nil {
			return err
		}
		if open = append(open, r); len(open) == 20 {
			if err := wait(); err != nil {
				return err
			}
		}
	}
	return wait()
}

func mixtureReceive(e *Engine, n, largest int, rng *rand.Rand) error {
	seen := make([][mixtureTags]int, e.Size())
	big := make([]byte, largest)
	for range n * e.Size() {
		var st Status
		var err error
		buf := big
		switch rng.IntN(3) {
		case 0:
			st, err = e.recv(world0, buf, AnySource, AnyTag, 1)
		case 1:
			var probed Status
			if probed, err = e.Probes.Probe(world0, AnySource, AnyTag, nil); err != nil {
				return err
			}
			buf = make([]byte, probed.Bytes)
			st, err = e.recv(world0, buf, probed.Source, probed.Tag, 1)
			if err == nil && st.Bytes != probed.Bytes {
				err = fmt.Errorf("probed %d bytes, received %d", probed.Bytes, st.Bytes)
			}
		default:
			var r Request
			if r, err = e.Recvs.Irecv(world0, buf, AnySource, AnyTag, 1); err == nil {
				st, err = e.Requests.Wait(r)
			}
		}
		if err != nil {
			return err
		}
		seen[st.Source][st.Tag]++
		if err := checkPattern(buf[:st.Bytes], st.Source*mixtureTags+st.Tag,
			seen[st.Source][st.Tag]); err != nil {
			return err
		}
	}
	return nil
}

func mixtureLen(rng *rand.Rand, largest int) int {
	switch rng.IntN(20) {
	case 0:
		return rng.IntN(largest)
	case 1, 2, 3:
		return rng.IntN(5000)
	case 4:
		return 0
	}
	return rng.IntN(700)
}
