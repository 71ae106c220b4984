package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// onEndpoints runs a test on every fabric with ranks that poll and ranks that share their cores, each with
// several endpoints. In short, those of one fabric poll, on which differs from test to test.
func onEndpoints(t *testing.T, test func(t *testing.T, env ...string)) {
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		for name, cores := range map[string]string{"polling": "1", "sharing": "0"} {
			if !testlength.Whole() && (name == "polling") == (fabric == "WEFT_FABRIC=tcp" == (len(t.Name())%2 == 0)) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				test(t, fabric, "WEFT_ENDPOINTS=4", "WEFT_CORES_PER_RANK="+cores)
			})
		}
	})
}

// dups makes n duplicates of a communicator.
func dups(c *mpi.Comm, n int) (list []*mpi.Comm, err error) {
	for range n {
		d, err := c.Dup()
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

func TestEndpoint_CommunicatorsTakeThemInTurn(t *testing.T) {
	ranks(t, 3, endpointsInTurn, "WEFT_ENDPOINTS=3")
}

var endpointsInTurn = worldBody("endpoints-in-turn", func(_ context.Context, world *mpi.Comm) error {
	var all []int
	add := func(c *mpi.Comm, err error) error {
		if err == nil {
			all = append(all, c.Endpoint())
		}
		return err
	}
	err := firstError(add(world, nil), add(world.Dup()), add(world.Split(0, -world.Rank())), add(world.Dup()))
	if err != nil {
		return err
	}
	same := make([]int, world.Size()*len(all))
	if err := mpi.Allgather(world, all, same); err != nil {
		return err
	}
	for i, e := range same {
		if e != i%len(all)%3 {
			return fmt.Errorf("endpoints of the communicators at the ranks, one after another: %v", same)
		}
	}
	return nil
})

// TestEndpoint_BlockedCallsKeepNobodyWaiting: a rendezvous on one communicator ends while its sender is blocked
// in a call on another, or tests a request there again and again.
func TestEndpoint_BlockedCallsKeepNobodyWaiting(t *testing.T) {
	onEndpoints(t, func(t *testing.T, env ...string) { ranks(t, 2, endpointsBlocked, env...) })
}

var endpointsBlocked = body("endpoints-blocked", func(_ context.Context, world *mpi.Comm) error {
	list, err := dups(world, 2)
	if err != nil {
		return err
	}
	a, b, peer := list[0], list[1], 1-world.Rank()
	large, word := make([]byte, 4<<20), []byte{0}
	for i := range 3 { // how the sender waits on a: in a receive, in a wait for any of two, or by tests
		if world.Rank() == 1 {
			if _, err := mpi.Recv(b, large, peer, i); err != nil {
				return err
			}
			if large[0] != byte(i) {
				return fmt.Errorf("message %d is %d", i, large[0])
			}
			if err := mpi.Send(a, word, peer, i); err != nil {
				return err
			}
			continue
		}
		large[0] = byte(i)
		sent, err := mpi.Isend(b, large, peer, i)
		if err != nil {
			return err
		}
		answer, err := mpi.Irecv(a, word, peer, i)
		switch {
		case err != nil:
		case i == 0:
			_, err = answer.Wait()
		case i == 1:
			rs := []mpi.Request{{}, answer}
			var k int
			if k, _, err = mpi.Waitany(rs); err == nil {
				err = want("the request that is done", k, 1)
			}
		default:
			for done := false; !done && err == nil; {
				_, done, err = answer.Test()
			}
		}
		if err := firstError(err, endOf(sent)); err != nil {
			return err
		}
	}
	return nil
})

func endOf(r mpi.Request) error {
	_, err := r.Wait()
	return err
}

// TestEndpoint_RequestsOfSeveral: the calls for several requests take requests of several endpoints.
func TestEndpoint_RequestsOfSeveral(t *testing.T) {
	onEndpoints(t, func(t *testing.T, env ...string) { ranks(t, 2, endpointsSeveral, env...) })
	t.Run("checking mode", func(t *testing.T) {
		ranks(t, 2, endpointsSeveral, "WEFT_ENDPOINTS=4", "WEFT_CHECK=1")
	})
}

var endpointsSeveral = body("endpoints-several", func(_ context.Context, world *mpi.Comm) error {
	const rounds = 40
	comms, err := dups(world, 6)
	if err != nil {
		return err
	}
	peer := 1 - world.Rank()
	rng := rand.New(rand.NewPCG(3, 1)) // the same at both ranks
	for round := range rounds {
		order := rng.Perm(len(comms))
		sizes := make([]int, len(comms))
		for i := range sizes {
			sizes[i] = []int{1, 100, 5000, 200_000}[rng.IntN(4)]
		}
		if world.Rank() == 1 {
			for _, i := range order { // one after another, each after a word that says go on
				if _, err := mpi.Recv(world, []byte{0}, peer, 0); err != nil {
					return err
				}
				b := make([]byte, sizes[i])
				b[0] = byte(i)
				if err := mpi.Send(comms[i], b, peer, round); err != nil {
					return err
				}
			}
			continue
		}
		rs, bufs := make([]mpi.Request, len(comms)), make([][]byte, len(comms))
		for i, c := range comms {
			bufs[i] = make([]byte, sizes[i])
			if rs[i], err = mpi.Irecv(c, bufs[i], peer, round); err != nil {
				return err
			}
		}
		goOn := func() error { return mpi.Send(world, []byte{1}, peer, 0) }
		switch round % 4 {
		case 0: // all
			for range order {
				err = firstError(err, goOn())
			}
			st := make([]mpi.Status, len(rs))
			if err = firstError(err, mpi.WaitallStatus(rs, st)); err == nil {
				for i := range st {
					err = firstError(err, want("bytes", st[i].Count, sizes[i]))
				}
			}
		case 1: // any
			for _, i := range order {
				err = firstError(err, goOn())
				k, st, err2 := mpi.Waitany(rs)
				err = firstError(err, err2, want("the request that is done", k, i), want("bytes", st.Count, sizes[i]))
			}
			if k, _, err2 := mpi.Waitany(rs); k != -1 || err2 != nil {
				err = firstError(err, fmt.Errorf("Waitany of none: %d, %v", k, err2))
			}
		case 2: // some
			var done []int
			for range order {
				err = firstError(err, goOn())
				for done = done[:0]; len(done) == 0 && err == nil; {
					done, err = mpi.Testsome(rs, done)
				}
				err = firstError(err, want("requests that are done", len(done), 1))
			}
		default: // all, by tests
			for range order {
				err = firstError(err, goOn())
			}
			for done := false; !done && err == nil; {
				done, err = mpi.Testall(rs)
			}
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for i, b := range bufs {
			if b[0] != byte(i) || rs[i] != (mpi.Request{}) {
				return fmt.Errorf("round %d: message %d is %d, and its request %v", round, i, b[0], rs[i])
			}
		}
	}
	return nil
})

// TestEndpoint_MixtureOfCommunicators: goroutines on eight communicators, whose messages need those of others.
func TestEndpoint_MixtureOfCommunicators(t *testing.T) {
	onEndpoints(t, func(t *testing.T, env ...string) { ranks(t, 2, endpointsMixture, env...) })
}

func TestEndpoint_C1_MixtureOfCommunicatorsWithHandlers(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		ranks(t, 2, endpointsMixture, append(withHandlers(t), fabric, "WEFT_ENDPOINTS=4")...)
	})
}

// mixtureVariable is how many messages the ranks of the mixture send to each other; 1,000 without it.
const mixtureVariable = "MPI_TEST_MIXTURE"

// In round i, the goroutine on communicator k sends when the one on k+1 has received its messages of round i-1.
// Synchronous sends, and large messages, end only when their receiver has come to them. Every message has its
// number: on one communicator they come in order.
var endpointsMixture = body("endpoints-mixture", func(_ context.Context, world *mpi.Comm) error {
	const comms = 8
	messages := 1000
	if text := os.Getenv(mixtureVariable); text != "" {
		var err error
		if messages, err = strconv.Atoi(text); err != nil {
			return err
		}
	}
	list, err := dups(world, comms)
	if err != nil {
		return err
	}
	each := messages / comms / 2
	received := make([]chan struct{}, comms) // by the goroutine before
	for k := range received {
		received[k] = make(chan struct{}, each)
	}
	errs := make([]error, comms)
	var wg sync.WaitGroup
	for k, c := range list {
		wg.Go(func() {
			defer close(received[k])
			errs[k] = mixOn(c, k, each, received[k], received[(k+1)%comms])
		})
	}
	wg.Wait()
	return errors.Join(errs...)
})

// mixOn sends so many messages to the other rank and receives as many, in rounds of a few.
func mixOn(c *mpi.Comm, k, messages int, mine chan<- struct{}, others <-chan struct{}) error {
	peer := 1 - c.Rank()
	rng := rand.New(rand.NewPCG(uint64(k), 11)) // the same at both ranks
	for round, begun := 0, 0; begun < messages; round++ {
		burst := make([][]int64, min(1+rng.IntN(4), messages-begun))
		for i := range burst {
			burst[i] = make([]int64, []int{1, 2, 100, 3000, 60_000}[rng.IntN(5)])
		}
		how := rng.IntN(3)
		var in, out []mpi.Request
		if how < 2 { // else by probes
			for i := range burst {
				r, err := mpi.Irecv(c, burst[i], peer, mpi.AnyTag)
				if err != nil {
					return err
				}
				in = append(in, r)
			}
		}
		if round > 0 {
			<-others
		}
		for i, b := range burst {
			data := make([]int64, len(b))
			data[0], data[len(b)-1] = int64(begun+i), int64(begun+i)
			send := mpi.Isend[int64]
			if rng.IntN(4) == 0 {
				send = mpi.Issend
			}
			r, err := send(c, data, peer, begun+i)
			if err != nil {
				return err
			}
			out = append(out, r)
		}
		tags, err := receiveMixed(c, how, in, burst)
		if err = firstError(err, mpi.Waitall(out)); err != nil {
			return err
		}
		for i, b := range burst {
			n := begun + i
			if tags[i] != n || b[0] != int64(n) || b[len(b)-1] != int64(n) {
				return fmt.Errorf("communicator %d: message %d has tag %d and is %d, %d", k, n, tags[i], b[0],
					b[len(b)-1])
			}
		}
		begun += len(burst)
		mine <- struct{}{}
	}
	return nil
}

// receiveMixed ends the receives of a burst in one of three ways, and gives the tags of its messages.
func receiveMixed(c *mpi.Comm, how int, in []mpi.Request, burst [][]int64) ([]int, error) {
	tags := make([]int, len(burst))
	switch how {
	case 0:
		st := make([]mpi.Status, len(in))
		err := mpi.WaitallStatus(in, st)
		for i := range st {
			tags[i] = st[i].Tag
		}
		return tags, err
	case 1:
		for range in {
			i, st, err := mpi.Waitany(in)
			if err != nil {
				return nil, err
			}
			tags[i] = st.Tag
		}
	default:
		for i, b := range burst {
			st, err := mpi.Probe(c, mpi.AnySource, mpi.AnyTag)
			if err != nil {
				return nil, err
			}
			if _, err := mpi.Recv(c, b, st.Source, st.Tag); err != nil {
				return nil, err
			}
			tags[i] = st.Tag
		}
	}
	return tags, nil
}

// TestEndpoint_C1_N4_N7_HandlersOnTheirCores: the handlers of a rank's endpoints have its cores in turn, serve
// the queues of their endpoints, and can be moved and change their class while messages move.
func TestEndpoint_C1_N4_N7_HandlersOnTheirCores(t *testing.T) {
	cores, err := sys.Affinity()
	require.NoError(t, err)
	cores = cores[:min(2, len(cores))]
	onFabrics(t, func(t *testing.T, fabric string) {
		ranks(t, 2, endpointsHandled, fabric, "WEFT_ENDPOINTS=3", "GOMAXPROCS=4",
			"WEFT_CQ_CORES="+topology.FormatCPUList(cores), handlerCores+"="+topology.FormatCPUList(cores))
	})
}

// TestEndpoint_C1_N4_N7_N8_HandlersOfTheLauncher: the launcher deals the cores of --cq-cores out to the endpoints
// of each rank, and tells of it; the handlers are there, also when one has been moved and another is bulk, and
// end with their queues. Where there are cores for that, there are two ranks, and all handlers have events.
func TestEndpoint_C1_N4_N7_N8_HandlersOfTheLauncher(t *testing.T) {
	cores, err := sys.Affinity()
	require.NoError(t, err)
	if len(cores) < 2 {
		t.Skip("one core for a rank, and one for its completion handlers")
	}
	n := 1
	if len(cores) > 2 {
		n = 2
	}
	handlers := cores[1 : 1+n]
	onFabrics(t, func(t *testing.T, fabric string) {
		r := launchertest.RunPlaced(t, 3, launcher.CQCores{From: launcher.CQList, CPUs: handlers},
			launchertest.Ranks(n, endpointsPlaced, fabric, "WEFT_STATS=1"))
		require.NoError(t, r.Failure, r.Err)
		for _, core := range handlers {
			require.Contains(t, r.Err, fmt.Sprintf("completion handlers of endpoints 0 on %d, 1 on %d, 2 on %d\n",
				core, core, core))
			for i, class := range []string{"", "", ", bulk"} {
				require.Regexp(t, fmt.Sprintf(`(?m)^ *%d( +\d+){5} +core %d%s +\d`, i, core, class), r.Err)
			}
		}
	})
}

// plainAndBulk gives the cores that a variable lists, and duplicates on endpoints 1 and 2, of which the second
// is bulk.
func plainAndBulk(world *mpi.Comm, variable string) (cores []int, plain, bulk *mpi.Comm, err error) {
	if cores, err = topology.ParseCPUList(os.Getenv(variable)); err != nil {
		return nil, nil, nil, err
	}
	if plain, err = world.Dup(mpi.OnEndpoint(1)); err != nil {
		return nil, nil, nil, err
	}
	bulk, err = world.Dup(mpi.OnEndpoint(2), mpi.Bulk())
	return cores, plain, bulk, err
}

var endpointsPlaced = body("endpoints-placed", func(_ context.Context, world *mpi.Comm) error {
	cores, plain, bulk, err := plainAndBulk(world, "WEFT_CQ_CORES")
	if err != nil {
		return err
	}
	peer := (world.Rank() + 1) % world.Size()
	for range 2 {
		for _, c := range []*mpi.Comm{world, plain, bulk} {
			for i := range 100 {
				r, err := mpi.Irecv(c, make([]int64, 1), mpi.AnySource, i)
				if err != nil {
					return err
				}
				if err := firstError(mpi.Send(c, []int64{1}, peer, i), endOf(r)); err != nil {
					return err
				}
			}
		}
		if err := plain.MoveHandler(cores[0]); err != nil {
			return err
		}
	}
	for i, e := range world.Stats().Endpoints {
		if e.HandlerCore != cores[i%len(cores)] || e.HandlerBulk != (i == 2) {
			return fmt.Errorf("endpoint %d: %+v; its handler should be on core %d", i, e, cores[i%len(cores)])
		}
		if world.Size() > 1 && (e.Events == 0 || e.Completions == 0 || e.HandlerPasses == 0) {
			return fmt.Errorf("endpoint %d: %+v; its handler should have had events", i, e)
		}
	}
	return nil
})

// TestStatistics_EveryEndpoint: the counters at the end, and the metrics, tell of each endpoint that is in use,
// and metrics have no value twice.
func TestStatistics_EveryEndpoint(t *testing.T) {
	dir, err := os.MkdirTemp("", "weft") // a name of a socket is short
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	r := launch(t, 2, endpointsShown, append(withHandlers(t), "WEFT_ENDPOINTS=2", "WEFT_STATS=1",
		"WEFT_METRICS=unix:"+dir+"/{rank}", metricsPath+"="+dir)...)
	require.NoError(t, r.Failure, r.Err)
	for _, endpoint := range []string{"0", "1"} {
		require.Regexp(t, `(?m)^ *`+endpoint+`( +\d+){5} +core \d+ +[1-9]\d* +\d+ +[1-9]\d* +[1-9]`, r.Err)
		require.Regexp(t, `(?m)^ *1 at endpoint `+endpoint+` `, r.Err)
	}
}

const metricsPath = "WEFT_TEST_METRICS"

var endpointsShown = worldBody("endpoints-shown", func(_ context.Context, world *mpi.Comm) error {
	second, err := world.Dup(mpi.OnEndpoint(1))
	if err != nil {
		return err
	}
	peer := 1 - world.Rank()
	for _, c := range []*mpi.Comm{world, second} {
		r, err := mpi.Irecv(c, make([]int64, 1), peer, 0)
		if err != nil {
			return err
		}
		if err := firstError(mpi.Send(c, []int64{1}, peer, 0), endOf(r), mpi.Barrier(c)); err != nil {
			return err
		}
	}
	conn, err := net.Dial("unix", filepath.Join(os.Getenv(metricsPath), strconv.Itoa(world.Rank())))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if name, _, is := strings.Cut(line, "} "); is {
			if seen[name] {
				return fmt.Errorf("%s is there twice:\n%s", name, text)
			}
			seen[name] = true
		}
	}
	for _, want := range []string{`weft_endpoint_events_total{rank="%d",`, `weft_endpoint_handler_core{rank="%d",`,
		`weft_endpoint_lock_waited_seconds_total{rank="%d",`, `weft_channel_sent_total{rank="%d",`} {
		for _, endpoint := range []string{`endpoint="0"`, `endpoint="1"`} {
			found := false
			for name := range seen {
				found = found || strings.HasPrefix(name, fmt.Sprintf(want, world.Rank())) &&
					strings.Contains(name, endpoint)
			}
			if !found {
				return fmt.Errorf("%s with %s is not there:\n%s", want, endpoint, text)
			}
		}
	}
	return mpi.Barrier(world)
})

// handlerCores says to the ranks which cores their handlers should have.
const handlerCores = "WEFT_TEST_HANDLER_CORES"

var endpointsHandled = body("endpoints-handled", func(_ context.Context, world *mpi.Comm) error {
	cores, plain, bulk, err := plainAndBulk(world, handlerCores)
	if err != nil {
		return err
	}
	if _, err := world.Dup(mpi.OnEndpoint(3)); !errors.Is(err, mpi.ErrArg) {
		return fmt.Errorf("an endpoint that is not there: %v", err)
	}
	comms := []*mpi.Comm{world, plain, bulk}
	check := func(at ...int) error {
		for i, e := range world.Stats().Endpoints {
			if e.Number != i || e.HandlerCore != cores[at[i]] || e.HandlerBulk != (i == 2) || e.Events == 0 {
				return fmt.Errorf("endpoint %d: %+v; its handler should be on core %d", i, e, cores[at[i]])
			}
		}
		return want("endpoints", len(world.Stats().Endpoints), len(comms))
	}
	talk := func() error {
		for range 15 {
			for _, c := range comms {
				if err := mpi.Barrier(c); err != nil {
					return err
				}
				b := make([]byte, 200_000)
				if c.Rank() == 0 {
					err = mpi.Send(c, b, 1, 1)
				} else {
					_, err = mpi.Recv(c, b, 0, 1)
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	}
	last := len(cores) - 1
	if err := firstError(talk(), check(0, last, 0)); err != nil {
		return err
	}
	// moved to and fro while messages move
	stop, moved := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				moved <- plain.MoveHandler(cores[0])
				return
			default:
			}
			if err := plain.MoveHandler(cores[i%len(cores)]); err != nil {
				moved <- err
				return
			}
		}
	}()
	err = talk()
	close(stop)
	if err := firstError(err, <-moved, talk(), check(0, 0, 0)); err != nil {
		return err
	}
	if err := plain.MoveHandler(8000); !errors.Is(err, mpi.ErrArg) {
		return fmt.Errorf("a core that is not there: %v", err)
	}
	return firstError(talk(), check(0, 0, 0))
})
