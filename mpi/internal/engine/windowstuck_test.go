package engine

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi/internal/rma"
)

// The lock of a part's elements that a rank has taken and does not leave holds the engine up once, and not for
// each UPDATE: there can be so many of them that the others would take the rank for dead. When the lock is
// left UPDATEs are carried out again.
func TestUpdatesOfAStuckPart(t *testing.T) {
	w := fourRanks(t, Config{})
	const size = 16
	win, card, err := w[0].Windows.New(3, make([]byte, size), rma.Type{Kind: rma.Complex, Size: size})
	require.NoError(t, err)
	win.Join(0, []int{0, 1}, []WindowCard{card, card})
	var all sync.WaitGroup
	update := func() (outcome rma.Outcome) {
		w[0].mu.Lock()
		defer w[0].mu.Unlock()
		outcome, _ = w[0].Windows.carryOut(w[0].peerLocked(1), &rma.Update{Window: 3, Op: rma.Replace,
			Data: make([]byte, size)}, nil)
		return outcome
	}
	win.control[wordElements] = 1
	all.Go(func() {
		for range maxResults {
			if o := update(); o != rma.Stuck {
				t.Errorf("an UPDATE ends with %v", o)
			}
		}
	})
	require.True(t, endsWithin(&all), "each UPDATE waits for the lock")
	win.control[wordElements] = 0
	require.Equal(t, rma.Done, update())
}
