package wireup

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi/internal/wireup/coordinator"
)

// cardsOnly is a way that knows cards.
type cardsOnly struct {
	alone
	cards map[string]string
	asked chan string // what was looked up
}

func (c *cardsOnly) Get(_ context.Context, key string) (string, error) {
	c.asked <- key
	if text := c.cards[key]; text != "" {
		return text, nil
	}
	return "", coordinator.ErrNotFound
}

// The identity of a rank's process is that of its card, if it runs on this kernel; one that was not found
// is looked up again.
func TestRunning(t *testing.T) {
	here := Card{kernelKey: kernel(), processKey: sys.Identity()}
	elsewhere := Card{kernelKey: "another", processKey: sys.Identity()}
	another := Card{kernelKey: kernel(), processKey: sys.Identity() + "0"}
	c := &cardsOnly{asked: make(chan string, 100), cards: map[string]string{cardKey(1): here.String(),
		cardKey(2): elsewhere.String(), cardKey(3): another.String()}}
	j := &Job{way: c}
	require.False(t, j.Running(1), "it is not known yet")
	require.Equal(t, cardKey(1), <-c.asked)
	require.Eventually(t, func() bool { return j.Running(1) }, 2*time.Minute, time.Millisecond)
	for _, rank := range []uint32{2, 3} {
		require.False(t, j.Running(rank))
		require.Equal(t, cardKey(rank), <-c.asked)
		require.False(t, j.Running(rank))
	}
	require.Empty(t, c.asked)
	for range 2 {
		require.Eventually(t, func() bool {
			require.False(t, j.Running(4))
			return len(c.asked) > 0
		}, 2*time.Minute, time.Millisecond)
		require.Equal(t, cardKey(4), <-c.asked)
	}
}
