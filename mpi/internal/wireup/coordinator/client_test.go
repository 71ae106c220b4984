package coordinator

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// configs are those of a job's ranks, at a port that was free just now.
func configs(t *testing.T, size int) []Config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	var list []Config
	for rank := range size {
		list = append(list, Config{Rank: rank, Size: size, Address: l.Addr().String(),
			Secret: [secretSize]byte{1}, Within: time.Minute, Kernel: "k"})
	}
	return list
}

// A name that is not known yet, a port that nobody listens at, and a connection that ends at once are tried
// again.
func TestJoin_Rank0CannotBeReachedYet(t *testing.T) {
	both := configs(t, 2)
	tries := 0
	both[1].dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		switch tries++; tries {
		case 1, 2:
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}
		case 3:
			return nil, syscall.ECONNREFUSED
		case 4:
			a, b := net.Pipe()
			return a, b.Close()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	var all sync.WaitGroup
	for _, config := range both {
		all.Go(func() {
			c, err := Join(t.Context(), config)
			if err == nil {
				err = errors.Join(c.Barrier(t.Context()), c.Finalize(t.Context()))
			}
			if err != nil {
				t.Error(config.Rank, err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 5, tries)
}

// A name that stays unknown is told at the deadline.
func TestJoin_Rank0StaysUnknown(t *testing.T) {
	config := configs(t, 2)[1]
	config.Within = 100 * time.Millisecond
	config.dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "rank0", IsNotFound: true}
	}
	_, err := Join(t.Context(), config)
	require.ErrorContains(t, err, "rank 1 of 2 has not reached rank 0 at "+config.Address+" within 100ms: ")
	require.ErrorContains(t, err, "lookup rank0: no such host")
}

// The wait for the other ranks ends with its context.
func TestJoin_Cancelled(t *testing.T) {
	for _, config := range configs(t, 2) {
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("enough")
		cancel(reason)
		_, err := Join(ctx, config)
		require.ErrorIs(t, err, reason, config.Rank)
	}
}
