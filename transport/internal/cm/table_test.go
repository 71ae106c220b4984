package cm

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

type pair struct{}

func (*pair) Released() bool { return false }

// The error of a call whose context ends during an attempt includes what that attempt says; if it says only
// that the context has ended, what the attempt before it says.
func TestConnect_ErrorIncludesTheLastAttempt(t *testing.T) {
	stuck := errors.New("the peer does not answer")
	for name, c := range map[string]struct {
		attempts []error
		want     error
	}{
		"the first":                 {[]error{stuck}, stuck},
		"a later one":               {[]error{ErrBusy, stuck}, stuck},
		"without an error":          {[]error{ErrBusy, context.Canceled}, ErrBusy},
		"the first, without errors": {[]error{fmt.Errorf("dialing: %w", context.Canceled)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			table := NewTable[*pair]()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			err := table.Connect(ctx, transport.Identity{Size: 2}, 1, "somewhere",
				func(context.Context, *Peer[*pair]) (*pair, error) {
					err := c.attempts[0]
					if c.attempts = c.attempts[1:]; len(c.attempts) == 0 {
						cancel()
					}
					return nil, err
				})
			require.ErrorIs(t, err, context.Canceled)
			for _, what := range []error{stuck, ErrBusy} {
				require.Equal(t, what == c.want, errors.Is(err, what), "%v", err)
			}
			require.NoError(t, table.Close(func() error { return nil }))
		})
	}
}
