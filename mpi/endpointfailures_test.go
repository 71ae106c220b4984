package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// TestEndpoint_FailureIsOfAll: a rank that is killed while messages move on all endpoints has failed on all of
// them, once: the others shrink every communicator, and one line tells of it.
func TestEndpoint_FailureIsOfAll(t *testing.T) {
	t.Parallel()
	onEndpoints(t, func(t *testing.T, env ...string) {
		r := launchertest.RunSurviving(t, launchertest.Ranks(4, endpointsLose, env...))
		require.Equal(t, launcher.RanksLost, r.Cause(t).How, "%s%s", r.Out, r.Err)
		require.Equal(t, 3, strings.Count(r.Out, "all is well\n"), "%s%s", r.Out, r.Err)
		require.Equal(t, 1, strings.Count(r.Err, "was killed by signal 9"), r.Err)
		// a rank may say so before the launcher sees it, once
		require.LessOrEqual(t, strings.Count(r.Err, "has lost rank 3"), 1, r.Err)
	})
}

var endpointsLose = body("endpoints-lose", func(_ context.Context, world *mpi.Comm) error {
	const victim, comms = 3, 4
	list, err := dups(world, comms)
	if err != nil {
		return err
	}
	errs := make([]error, comms)
	var all sync.WaitGroup
	for k, c := range list {
		all.Go(func() {
			for n := int64(0); ; n++ {
				if world.Rank() == victim && k == comms-1 && n == 20 {
					die()
				}
				err := firstError(works(c, n), sendRing(1+int(n%2)*many)(c, n))
				if err == nil {
					continue
				}
				if errs[k] = survived(world, c, victim, err); errs[k] == nil {
					errs[k] = firstError(works(c, 0), sendRing(many)(c, 0))
				}
				return
			}
		})
	}
	all.Wait()
	if err = errors.Join(errs...); err == nil {
		fmt.Println("all is well")
	}
	return err
})

// survived shrinks a communicator in place after a call has failed for a rank of it that has died.
func survived(world, c *mpi.Comm, victim int, why error) error {
	switch {
	case errors.Is(why, mpi.ErrProcFailed):
		// what one endpoint has told the program, all know
		if !slices.Contains(world.Failed(), victim) {
			return fmt.Errorf("the world knows only of %v, after %w", world.Failed(), why)
		}
	case !errors.Is(why, mpi.ErrRevoked):
		return why
	}
	if err := c.Revoke(); err != nil {
		return err
	}
	shrunk, err := c.Shrink()
	if err != nil {
		return err
	}
	if *c = *shrunk; c.Size() != world.Size()-1 {
		return fmt.Errorf("%d ranks are left", c.Size())
	}
	return nil
}

// Calls on communicators of several endpoints end when the rank that they wait for is killed, and nothing is
// left of them.
func TestEndpoint_FailedRankEndsEveryCall(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		j := begin(t, 2, failing, "WEFT_PEER_TIMEOUT=1h", "WEFT_ENDPOINTS=4", fabric)
		j.strike(func() { j.signal(1, syscall.SIGKILL) })
	})
}

// TestEndpoint_RevokeBesideAFlood: a communicator is revoked while messages that nobody receives keep another
// endpoint busy; these are all received afterwards, in their order.
func TestEndpoint_RevokeBesideAFlood(t *testing.T) {
	onEndpoints(t, func(t *testing.T, env ...string) { ranks(t, 3, endpointsRevoke, env...) })
}

var endpointsRevoke = body("endpoints-revoke", func(_ context.Context, world *mpi.Comm) error {
	const flood = 4000
	flooded, err := world.Dup(mpi.OnEndpoint(1))
	if err != nil {
		return err
	}
	revoked, err := world.Dup(mpi.OnEndpoint(2))
	if err != nil {
		return err
	}
	size := func(i int) int {
		if i%100 == 0 {
			return many
		}
		return 1 + i%3
	}
	var sent []mpi.Request
	switch world.Rank() {
	case 0:
		for i := range flood {
			b := make([]int64, size(i))
			b[0] = int64(i)
			r, err := mpi.Isend(flooded, b, 1, i)
			if err != nil {
				return err
			}
			sent = append(sent, r)
			if i == flood/2 {
				err = revoked.Revoke()
			}
			if err != nil {
				return err
			}
		}
		err = mpi.Barrier(revoked)
	case 1:
		err = second(mpi.Recv(revoked, make([]int64, 1), mpi.AnySource, 0))
	default:
		err = mpi.Barrier(revoked)
	}
	if err := wantError("a call on what was revoked", err, mpi.ErrRevoked); err != nil {
		return err
	}
	if world.Rank() == 1 {
		b := make([]int64, many)
		for i := range flood {
			st, err := mpi.Recv(flooded, b, 0, mpi.AnyTag)
			if err != nil {
				return err
			}
			if st.Tag != i || b[0] != int64(i) || st.Count != size(i) {
				return fmt.Errorf("message %d: %+v, %d", i, st, b[0])
			}
		}
	}
	left, err := revoked.Shrink()
	if err != nil {
		return err
	}
	return firstError(mpi.Waitall(sent), works(left, 1), works(flooded, 1))
})

// TestEndpoint_DifferentNumbers: a rank with one endpoint beside ranks with four shares the first with them.
func TestEndpoint_DifferentNumbers(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		one := launchertest.Ranks(1, endpointsDiffer, fabric, "WEFT_ENDPOINTS=1")
		four := launchertest.Ranks(3, endpointsDiffer, fabric, "WEFT_ENDPOINTS=4")
		for _, apps := range [][]launcher.App{{one, four}, {four, one}} {
			r := launchertest.Run(t, apps...)
			require.NoError(t, r.Failure, r.Err)
		}
	})
}

var endpointsDiffer = worldBody("endpoints-differ", func(_ context.Context, world *mpi.Comm) error {
	for range 6 {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		if err := firstError(want("endpoint", c.Endpoint(), 0), works(c, 1), sendRing(many)(c, 1)); err != nil {
			return err
		}
	}
	_, err := world.Dup(mpi.OnEndpoint(2))
	if err := wantError("an endpoint that not all have", err, mpi.ErrArg); err != nil {
		return err
	}
	// those who have four use them among themselves
	color := 0
	if os.Getenv("WEFT_ENDPOINTS") == "1" {
		color = 1
	}
	part, err := world.Split(color, 0)
	if err != nil {
		return err
	}
	used := map[int]bool{}
	for range 4 {
		c, err := part.Dup()
		if err != nil {
			return err
		}
		used[c.Endpoint()] = true
		if err := works(c, 1); err != nil {
			return err
		}
	}
	return firstError(want("endpoints", len(used), 4-3*color), works(world, 2))
})

// TestEndpoint_Finalize: what was not received, or not waited for, on any endpoint is dropped, with the warning
// that ranks with one endpoint give.
func TestEndpoint_Finalize(t *testing.T) {
	onEndpoints(t, func(t *testing.T, env ...string) {
		warnings := func(env ...string) []string {
			r := launchertest.Launch(t, 2, endpointsLeft, env...)
			require.NoError(t, r.Failure, r.Err)
			return slices.Sorted(strings.Lines(r.Err))
		}
		several := warnings(env...)
		require.Len(t, several, 2)
		require.Equal(t, warnings(append(env, "WEFT_ENDPOINTS=1")...), several)
	})
}

var endpointsLeft = worldBody("endpoints-left", func(_ context.Context, world *mpi.Comm) error {
	list, err := dups(world, 4)
	if err != nil {
		return err
	}
	peer := 1 - world.Rank()
	for k, c := range list {
		for range world.Rank() * k {
			if err := mpi.Send(c, []int64{1}, peer, k); err != nil {
				return err
			}
		}
		if _, err := mpi.Isend(c, make([]int64, many), peer, 9); err != nil {
			return err
		}
	}
	return nil
})

// TestEndpoint_Contexts: a context ends calls on communicators of every endpoint, and waits for requests of
// several.
func TestEndpoint_Contexts(t *testing.T) {
	onEndpoints(t, func(t *testing.T, env ...string) { ranks(t, 2, endpointsContext, env...) })
}

var endpointsContext = body("endpoints-context", func(_ context.Context, world *mpi.Comm) error {
	list, err := dups(world, 4)
	if err != nil {
		return err
	}
	peer := 1 - world.Rank()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	errs := make([]error, len(list))
	var rs []mpi.Request
	for k, c := range list {
		bound := c.WithContext(ctx)
		all.Go(func() {
			if k%2 == 0 {
				errs[k] = second(mpi.Recv(bound, make([]int64, 1), peer, 5))
			} else {
				errs[k] = mpi.Ssend(bound, make([]int64, 1), peer, 5)
			}
		})
		for _, c := range []*mpi.Comm{bound, c} {
			r, err := mpi.Irecv(c, make([]int64, 1), peer, 6)
			if err != nil {
				return err
			}
			rs = append(rs, r)
		}
	}
	all.Go(cancel)
	done := []int(nil)
	for len(done) < len(list) {
		some, err := mpi.Waitsome(rs, nil)
		if err := wantError("Waitsome", err, context.Canceled); err != nil {
			return err
		}
		done = append(done, some...)
	}
	all.Wait()
	if err := mpi.Barrier(world); err != nil { // the other rank's context has ended too
		return err
	}
	for k, c := range list {
		if err := wantError("a call", errs[k], context.Canceled); err != nil {
			return err
		}
		if done[k]%2 != 0 {
			return fmt.Errorf("requests %v have ended", done)
		}
		if err := mpi.Send(c, []int64{1}, peer, 6); err != nil {
			return err
		}
	}
	return mpi.Waitall(rs)
})
