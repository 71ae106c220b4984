package engine

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/mpi/internal/malicetest"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
	"github.com/weft-mpi/weft/transport/tcp"
)

var (
	maliceRuns = flag.Int("malice.runs", 0, "runs of TestMaliciousRank on each fabric; 0: a few")
	maliceSeed = flag.Uint64("malice.seed", 1, "seed of the first of them")
)

// malices are what a malicious rank is tried on, and what it does there.
var malices = map[string]struct {
	device func() (transport.Device, error)
	of     malicetest.Kind
}{
	"tcp":       {plainTCP, malicetest.Requests},
	"lanes":     {threeLanes, malicetest.Requests},
	"reconnect": {checkedTCP, malicetest.Requests},
	"tls":       {func() (transport.Device, error) { return tcp.New(tcp.Options{TLS: true}) }, malicetest.Requests},
	"shm":       {sharedMemory, malicetest.Requests},

	"frames of tcp":       {plainTCP, malicetest.Frames},
	"frames of lanes":     {threeLanes, malicetest.Frames},
	"frames of reconnect": {reconnectingTCP, malicetest.Frames},
	"rings of shm":        {sharedMemory, malicetest.Rings},
}

func plainTCP() (transport.Device, error)   { return tcp.New(tcp.Options{}) }
func threeLanes() (transport.Device, error) { return tcp.New(tcp.Options{Lanes: 3}) }
func checkedTCP() (transport.Device, error) {
	return tcp.New(tcp.Options{Reconnect: true, Checksum: tcp.ChecksumAlways})
}
func reconnectingTCP() (transport.Device, error) { return tcp.New(tcp.Options{Reconnect: true}) }
func sharedMemory() (transport.Device, error)    { return shm.New(shm.Options{}) }

// TestMaliciousRank: two honest ranks and one that holds the secret and breaks the rules. What the honest
// ones say to each other comes, whole and in order; what they have to do with the third succeeds or fails
// with an error that names it, and nothing waits any more when it is gone; no rank panics, and what is kept
// of its messages is bounded.
func TestMaliciousRank(t *testing.T) {
	runs := *maliceRuns
	if runs == 0 {
		runs = often(7)
	}
	for name, malice := range malices {
		t.Run(name, func(t *testing.T) {
			struck, failed := int64(0), 0
			for run := range runs {
				seed := *maliceSeed + uint64(run)
				if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
					s, f := againstMalice(t, malice.device, malice.of, seed)
					struck, failed = struck+s, failed+f
				}) {
					t.Fatalf("run it again with -malice.runs=1 -malice.seed=%d", seed)
				}
			}
			t.Logf("%d runs: %d lies; %d operations failed", runs, struck, failed)
			require.Positive(t, struck)
		})
	}
}

const maliceKeep = 256 << 10

// againstMalice is one run. It tells how often the malicious rank lied, and how many operations failed over
// it.
func againstMalice(t *testing.T, device func() (transport.Device, error),
	of malicetest.Kind, seed uint64) (struck int64, failed int) {
	random := rand.New(rand.NewPCG(seed, 99))
	var m malicetest.Misdeed
	devices := make([]transport.Device, 3)
	for i := range devices {
		d, err := device()
		require.NoError(t, err)
		if devices[i] = d; i == 2 {
			devices[i], m = of(d, seed)
		}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := worldOf(t, devices, Config{MaxUnexpectedBytes: maliceKeep})

	var honest, dealings, third sync.WaitGroup
	var count atomic.Int64
	for r := range 2 {
		honest.Go(func() {
			if err := exchangeHonestly(w[r], 1-r, rand.New(rand.NewPCG(seed, 1))); err != nil {
				t.Errorf("honest rank %d: %v", r, err)
			}
		})
		for i, deal := range []func(e *Engine, peer int, random *rand.Rand) error{sendTo, receiveFrom,
			sendTo} {
			dealings.Go(func() {
				if err := deal(w[r], 2, rand.New(rand.NewPCG(seed, uint64(10+i)))); err != nil {
					count.Inc()
					if !strings.Contains(err.Error(), "rank 2") {
						t.Errorf("rank %d: the error does not name rank 2: %v", r, err)
					}
				}
			})
		}
		third.Go(func() { sendTo(w[2], r, rand.New(rand.NewPCG(seed, 20))) })
		third.Go(func() { receiveFrom(w[2], r, rand.New(rand.NewPCG(seed, 21))) })
		third.Go(func() { receiveFrom(w[2], r, rand.New(rand.NewPCG(seed, 22))) })
	}
	if !endsWithin(&honest) {
		t.Errorf("the honest ranks wait for each other")
	}
	time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond) // the third goes at any moment
	for _, e := range w[:2] {
		e.mu.Lock()
		if kept := e.unexpected.bytes; kept > 2*maliceKeep {
			t.Errorf("rank %d keeps %d bytes of unexpected messages", e.Rank(), kept)
		}
		e.mu.Unlock()
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 192<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	m.Stop()
	w[2].hub.Fail(ErrAborted)
	if !endsWithin(&dealings) {
		for _, e := range w {
			e.hub.Fail(ErrAborted)
		}
		dealings.Wait()
		t.Errorf("a rank waits for one that is gone")
	}
	third.Wait()
	for _, e := range w {
		require.NoError(t, e.hub.Destroy(ErrFinalized))
	}
	return m.Deeds(), int(count.Load())
}

// endsWithin tells whether a group ends before it is given up.
func endsWithin(wg *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(time.Minute):
		return false
	}
}

// sizeOf is the size of a message: mostly small, some that go by rendezvous.
func sizeOf(random *rand.Rand) int {
	switch random.IntN(8) {
	case 0:
		return random.IntN(200_000)
	case 1, 2:
		return random.IntN(10_000)
	}
	return random.IntN(200)
}

const maliceMessages = 60

// exchangeHonestly sends a peer messages and takes as many of it.
func exchangeHonestly(e *Engine, peer int, random *rand.Rand) error {
	for seq := range maliceMessages {
		n := sizeOf(random)
		out, in := make([]byte, n), make([]byte, n)
		pattern(out, e.Rank(), seq)
		r, err := e.Recvs.Irecv(world0, in, peer, 1, 1)
		if err != nil {
			return err
		}
		if err := e.Sends.Send(world0, out, peer, 1); err != nil {
			return err
		}
		if _, err := e.Requests.Wait(r); err != nil {
			return err
		}
		if err := checkPattern(in, peer, seq); err != nil {
			return err
		}
	}
	return nil
}

func sendTo(e *Engine, peer int, random *rand.Rand) error {
	for i := range maliceMessages {
		if err := e.Sends.Send(world0, make([]byte, sizeOf(random)), peer, 2+i%2); err != nil {
			return err
		}
	}
	return nil
}

// receiveFrom takes messages, of which nothing is believed.
func receiveFrom(e *Engine, peer int, random *rand.Rand) error {
	buf := make([]byte, 1<<20)
	for i := range maliceMessages {
		switch _, err := e.recv(world0, buf[:len(buf)>>random.IntN(12)], peer, 2+i%2, 1); {
		case errors.Is(err, ErrTruncate): // a message that is too long ends nothing
		case err != nil:
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}
