package mpi_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// twoCores are two cores that this process may use.
func twoCores(t *testing.T) string {
	cores, err := sys.Affinity()
	require.NoError(t, err)
	if len(cores) < 2 {
		t.Skip("two cores for completion handlers")
	}
	return "WEFT_CQ_CORES=" + topology.FormatCPUList(cores[:2])
}

// TestEndpoint_C1_N3_N4_N7_N8_CountersOfEveryHandler: the endpoints of a rank have the cores of its handlers in
// turn, each core's handlers count the events of its endpoints (C1), and share a thread there (N4). After a change
// of its class (N7) or its core (N3) a handler's events are counted at the new place and no longer at the old.
// At the end all that was sent has come, and no thread is left (N8).
func TestEndpoint_C1_N3_N4_N7_N8_CountersOfEveryHandler(t *testing.T) {
	cores := twoCores(t)
	onFabrics(t, func(t *testing.T, fabric string) {
		ranks(t, 2, handlersCounted, fabric, "WEFT_ENDPOINTS=3", "GOMAXPROCS=4", cores)
	})
}

var handlersCounted = launchertest.Body("handlers-counted", func() error {
	far, err := farCore()
	if err != nil {
		return err
	}
	err = mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		return countHandlers(world, far)
	})
	if err != nil {
		return err
	}
	return wantThreads(far, 0)
})

// countHandlers has three communicators, on an endpoint each. far is that of farCore.
func countHandlers(world *mpi.Comm, far int) error {
	cores, err := topology.ParseCPUList(os.Getenv("WEFT_CQ_CORES"))
	if err != nil {
		return err
	}
	comms := make([]*mpi.Comm, 3)
	for k := range comms {
		if comms[k], err = world.Dup(mpi.OnEndpoint(k)); err != nil {
			return err
		}
	}
	for k, c := range comms {
		if err := exchangeOn(c); err != nil {
			return err
		}
		if err := wantPlaces(world, k, place{cores[k%2], false}); err != nil {
			return err
		}
	}
	if err := wantThreads(far, 1); err != nil { // one endpoint has that core, or two
		return err
	}

	bulk, err := world.Dup(mpi.OnEndpoint(2), mpi.Bulk())
	if err != nil {
		return err
	}
	if err := servedAnew(world, bulk, place{cores[0], false}, place{cores[0], true}); err != nil {
		return err
	}
	if err := comms[1].MoveHandler(cores[0]); err != nil {
		return err
	}
	if err := servedAnew(world, comms[1], place{cores[1], false}, place{cores[0], false}); err != nil {
		return err
	}
	threads := 0 // now all endpoints have the same core
	if far == cores[0] {
		threads = 1
	}
	if err := wantThreads(far, threads); err != nil {
		return err
	}
	return sendAndLeave(comms)
}

// place is where a completion handler runs, and its class.
type place struct {
	core int
	bulk bool
}

// exchangeOn has both ranks receive short and long messages.
func exchangeOn(c *mpi.Comm) error {
	for i := range 20 {
		in := make([]byte, 1+i%2*200_000)
		if _, err := mpi.Sendrecv(c, make([]byte, len(in)), 1-c.Rank(), i, in, 1-c.Rank(), i); err != nil {
			return err
		}
	}
	return mpi.Barrier(c)
}

// wantPlaces fails unless the handlers of an endpoint have run in these places, with events at the last.
func wantPlaces(world *mpi.Comm, endpoint int, places ...place) error {
	e := world.Stats().Endpoints[endpoint]
	var at []place
	for _, h := range e.Handlers {
		at = append(at, place{h.Core, h.Bulk})
	}
	last := places[len(places)-1]
	if !slices.Equal(at, places) || e.HandlerCore != last.core || e.HandlerBulk != last.bulk {
		return fmt.Errorf("endpoint %d: %+v; its handler should have run at %v", endpoint, e, places)
	}
	if h := e.Handlers[len(places)-1]; h.Events == 0 || h.Passes == 0 || h.Completions == 0 {
		return fmt.Errorf("endpoint %d: %+v; its handler should have had events", endpoint, e)
	}
	return nil
}

// servedAnew fails unless what comes from now on is counted at a new place, and no longer at the old.
func servedAnew(world, c *mpi.Comm, from, to place) error {
	before := world.Stats().Endpoints[c.Endpoint()].Handlers[0]
	if err := exchangeOn(c); err != nil {
		return err
	}
	return firstError(wantPlaces(world, c.Endpoint(), from, to),
		want("the counters of the place before", world.Stats().Endpoints[c.Endpoint()].Handlers[0], before))
}

// sendAndLeave has rank 0 send messages and come to Finalize before rank 1 has received them.
func sendAndLeave(comms []*mpi.Comm) error {
	const messages = 50
	for _, c := range comms {
		for i := range messages {
			if c.Rank() == 0 {
				if err := mpi.Send(c, []int64{int64(i)}, 1, i); err != nil {
					return err
				}
				continue
			}
			b := make([]int64, 1)
			if _, err := mpi.Recv(c, b, 0, messages-1-i); err != nil {
				return err
			}
			if err := want("a message", b[0], int64(messages-1-i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// farCore is a core of the handlers to which the rank itself is not bound. A handler may have the thread that
// tells later.
func farCore() (int, error) {
	cores, err := topology.ParseCPUList(os.Getenv("WEFT_CQ_CORES"))
	if err != nil {
		return 0, err
	}
	own, err := boundTo("/proc/self/status")
	if own == strconv.Itoa(cores[0]) {
		return cores[1], err
	}
	return cores[0], err
}

// boundTo is the list of processors that the file of a thread's state names.
func boundTo(status string) (string, error) {
	text, err := os.ReadFile(status)
	for line := range strings.Lines(string(text)) {
		if list, is := strings.CutPrefix(line, "Cpus_allowed_list:"); is {
			return strings.TrimSpace(list), err
		}
	}
	return "", err
}

// wantThreads waits until so many threads of this process are bound to a core alone: one that ends does that by
// itself.
func wantThreads(core, n int) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		tasks, err := filepath.Glob("/proc/self/task/*/status")
		if err != nil {
			return err
		}
		bound := 0
		for _, task := range tasks {
			if list, _ := boundTo(task); list == strconv.Itoa(core) { // or it has ended
				bound++
			}
		}
		if bound == n {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d threads are bound to core %d; want %d", bound, core, n)
		}
	}
}

// A core of WEFT_CQ_CORES that no endpoint has is not passed over in silence.
func TestHandler_C1_CoresWithoutAnEndpointAreTold(t *testing.T) {
	r := launch(t, 1, nothingToDo, twoCores(t), "WEFT_ENDPOINTS=1")
	require.NoError(t, r.Failure, r.Err)
	require.Contains(t, r.Err, "processors of WEFT_CQ_CORES are not used")
}

var nothingToDo = worldBody("nothing-to-do", func(context.Context, *mpi.Comm) error { return nil })
