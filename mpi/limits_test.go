package mpi_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

// TestUnreceivedSends: two thousand messages of 1,000 bytes that nobody receives yet, of which the receiver
// keeps 128 KiB, do not keep a pair of partners from completing after them. The environment variable UNRECEIVED asks for
// another number with the default limit, such as 300000.
func TestUnreceivedSends(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		env := []string{fabric, "UNRECEIVED=2000", "WEFT_UNEXPECTED_MAX=128K"}
		if n := os.Getenv("UNRECEIVED"); n != "" {
			env = []string{fabric, "UNRECEIVED=" + n}
		}
		r := launch(t, 2, unreceivedBody, env...)
		require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
		require.Contains(t, r.Out, "all came")
	})
}

// TestUnreceivedSends_OverLanes: the same where a request leaves the send queue only when the peer has
// acknowledged it, so that the queue is full long before the socket is.
func TestUnreceivedSends_OverLanes(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"WEFT_LANES=2", "WEFT_RECONNECT=on"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			r := launch(t, 2, unreceivedBody, "WEFT_FABRIC=tcp", setting, "UNRECEIVED=3000",
				"WEFT_UNEXPECTED_MAX=256K")
			require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
			require.Contains(t, r.Out, "all came")
		})
	}
}

// tiny are settings that leave hardly any room, alone and together.
var tiny = map[string][]string{
	"Unexpected": {"WEFT_UNEXPECTED_MAX=1"},
	"Eager":      {"WEFT_EAGER_MAX=1"},
	"Eager64":    {"WEFT_EAGER_MAX=64"},
	"Credits":    {"WEFT_PHASES=100"},
	"Budget":     {"WEFT_BUFFER_BUDGET=48K"},
	"All": {"WEFT_UNEXPECTED_MAX=1", "WEFT_EAGER_MAX=1", "WEFT_PHASES=100",
		"WEFT_BUFFER_BUDGET=64K"},
	"AllButEager": {"WEFT_UNEXPECTED_MAX=1", "WEFT_PHASES=100,1000", "WEFT_BUFFER_BUDGET=64K"},
	"AllGranted": {"WEFT_UNEXPECTED_MAX=1", "WEFT_EAGER_MAX=64", "WEFT_PHASES=100",
		"WEFT_RENDEZVOUS=write"},
	"AllKeepsSmall": {"WEFT_UNEXPECTED_MAX=1", "WEFT_EAGER_MAX=64", "WEFT_PHASES=100,1000",
		"WEFT_KEEP_SMALL=1", "WEFT_SHRINK_AFTER=1ms"},
}

// wires are the ways between two ranks of a host.
var wires = [][]string{{"WEFT_FABRIC=shm"}, {"WEFT_FABRIC=tcp"}, {"WEFT_FABRIC=tcp", "WEFT_LANES=2"},
	{"WEFT_FABRIC=tcp", "WEFT_RECONNECT=on"}}

// onWires runs a test over each of them.
func onWires(t *testing.T, test func(t *testing.T, wire []string)) {
	for _, wire := range wires {
		name := strings.NewReplacer("WEFT_", "", "FABRIC=", "", "=", "").Replace(strings.Join(wire, "-"))
		t.Run(name, func(t *testing.T) { test(t, wire) })
	}
}

// TestTinyLimits is a mixture of messages of all sizes, received in another order than they are sent, beside
// collectives, where every limit is tiny: all of it completes. In short, each limit has one of the wires of TCP.
// The environment variable TINY_MESSAGES asks for another number of messages.
func TestTinyLimits(t *testing.T) {
	messages := cmp.Or(os.Getenv("TINY_MESSAGES"), "100")
	onWires(t, func(t *testing.T, wire []string) {
		for i, name := range slices.Sorted(maps.Keys(tiny)) {
			if !testlength.Whole() && !slices.Equal(wire, wires[0]) && !slices.Equal(wire, wires[1+i%(len(wires)-1)]) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				env := append([]string{"TINY_MESSAGES=" + messages}, append(wire, tiny[name]...)...)
				r := launch(t, 4, tinyBody, env...)
				require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
			})
		}
	})
}

// limits are the settings of which TestTinyLimits_AtRandom draws one value each, "" for the default.
var limits = []struct {
	name   string
	values []string
}{
	{"WEFT_UNEXPECTED_MAX", []string{"", "1", "100", "4K"}},
	{"WEFT_EAGER_MAX", []string{"", "1", "64", "1000"}},
	{"WEFT_PHASES", []string{"", "100", "100,1000", "100,1000,20000"}},
	{"WEFT_BUFFER_BUDGET", []string{"", "64K", "100K"}},
	{"WEFT_RENDEZVOUS", []string{"", "write", "read"}},
	{"WEFT_KEEP_SMALL", []string{"", "1"}},
	{"WEFT_SHRINK_AFTER", []string{"", "1ms"}},
	{"GOMAXPROCS", []string{"", "1", "4"}},
}

// TestTinyLimits_AtRandom is the same with combinations that a seed draws: TINY_COMBINATIONS is their number,
// TINY_SEED the first one's seed.
func TestTinyLimits_AtRandom(t *testing.T) {
	first, _ := strconv.Atoi(cmp.Or(os.Getenv("TINY_SEED"), "1"))
	combinations, _ := strconv.Atoi(cmp.Or(os.Getenv("TINY_COMBINATIONS"), "4"))
	for seed := first; seed < first+combinations; seed++ {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		env := append([]string{"TINY_MESSAGES=" + fmt.Sprint(20+r.IntN(200))}, wires[r.IntN(len(wires))]...)
		for _, l := range limits {
			if v := l.values[r.IntN(len(l.values))]; v != "" {
				env = append(env, l.name+"="+v)
			}
		}
		ranks := 2 + r.IntN(6)
		t.Run(fmt.Sprintf("seed %d, %d ranks, %s", seed, ranks, strings.Join(env, " ")), func(t *testing.T) {
			result := launch(t, ranks, tinyBody, env...)
			require.NoError(t, result.Failure, "standard error:\n%s", result.Err)
		})
	}
}

var tinyBody = body("tiny-limits", func(_ context.Context, world *mpi.Comm) error {
	c, err := world.Dup()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var sendErr, collErr error
	messages := number("TINY_MESSAGES")
	wg.Go(func() { sendErr = sendInOrder(world, messages) })
	wg.Go(func() { collErr = checkedCollectives(c, messages/20) })
	err = receiveInAnyOrder(world, messages)
	wg.Wait()
	return firstError(err, sendErr, collErr, mpi.Barrier(world))
})

const tinyTags = 5

// tinySize is the size of a message from one rank to another, which both ends know.
func tinySize(src, dst, i int) int {
	return []int{0, 3, 8, 40, 65, 200, 700, 3000, 40_000}[(i*7+src*3+dst)%9]
}

// sendInOrder sends messages to every other rank, all of which are under way together.
func sendInOrder(c *mpi.Comm, messages int) error {
	rng := rand.New(rand.NewPCG(1, uint64(c.Rank())))
	var open []mpi.Request
	for i := range messages / c.Size() {
		for by := range c.Size() - 1 {
			dst := (c.Rank() + by + 1) % c.Size()
			b := make([]byte, tinySize(c.Rank(), dst, i))
			fill(b, c.Rank(), dst, i)
			var r mpi.Request
			var err error
			switch rng.IntN(4) {
			case 0:
				r, err = mpi.Issend(c, b, dst, i%tinyTags)
			case 1:
				r, err = mpi.IsendVec(c, pieces(rng, b), dst, i%tinyTags)
			default:
				r, err = mpi.Isend(c, b, dst, i%tinyTags)
			}
			if err != nil {
				return err
			}
			open = append(open, r)
		}
	}
	return mpi.Waitall(open)
}

// receiveInAnyOrder receives all messages of one tag after all of another, from each rank in turn.
func receiveInAnyOrder(c *mpi.Comm, messages int) error {
	buf, want := make([]byte, 40_000), make([]byte, 40_000)
	for tag := tinyTags - 1; tag >= 0; tag-- {
		for i := tag; i < messages/c.Size(); i += tinyTags {
			for by := range c.Size() - 1 {
				src := (c.Rank() + by + 1) % c.Size()
				st, err := mpi.Recv(c, buf, src, tag)
				if err != nil {
					return err
				}
				n := tinySize(src, c.Rank(), i)
				fill(want[:n], src, c.Rank(), i)
				if st.Count != n || !bytes.Equal(buf[:n], want[:n]) {
					return fmt.Errorf("message %d of rank %d, %d bytes, is not the one of %d that was sent",
						i, src, st.Count, n)
				}
			}
		}
	}
	return nil
}

// checkedCollectives runs rounds of collectives and checks their results.
func checkedCollectives(c *mpi.Comm, rounds int) error {
	for i := range rounds {
		n := []int{1, 4, 9, 100, 2000}[i%5]
		in, out := make([]float64, n), make([]float64, n)
		for k := range in {
			in[k] = float64(c.Rank() + k)
		}
		if err := mpi.Allreduce(c, in, out, mpi.Sum[float64]()); err != nil {
			return err
		}
		for k := range out {
			if sum := float64(c.Size()*k + c.Size()*(c.Size()-1)/2); out[k] != sum {
				return fmt.Errorf("round %d: element %d of %d is %v, not %v", i, k, n, out[k], sum)
			}
		}
		if err := mpi.Reduce(c, in, out, mpi.Max[float64](), i%c.Size()); err != nil {
			return err
		}
		if err := firstError(mpi.Bcast(c, in, i%c.Size()), mpi.Barrier(c)); err != nil {
			return err
		}
		if in[0] != float64(i%c.Size()) {
			return fmt.Errorf("round %d: %v was broadcast", i, in[0])
		}
	}
	return nil
}

var unreceivedBody = body("unreceived", func(_ context.Context, world *mpi.Comm) error {
	messages := number("UNRECEIVED")
	const size = 1000
	if world.Rank() == 0 {
		bufs, open := make([]byte, messages*size), make([]mpi.Request, messages)
		for i := range open {
			b := bufs[i*size:][:size]
			fill(b, 0, 1, i)
			var err error
			if open[i], err = mpi.Isend(world, b, 1, 1); err != nil {
				return err
			}
		}
		if err := mpi.Send(world, []byte{1}, 1, 2); err != nil {
			return err
		}
		return mpi.Waitall(open)
	}
	buf, want := make([]byte, size), make([]byte, size)
	if _, err := mpi.Recv(world, buf[:1], 0, 2); err != nil {
		return err
	}
	for i := range messages {
		if _, err := mpi.Recv(world, buf, 0, 1); err != nil {
			return err
		}
		fill(want, 0, 1, i)
		if string(buf) != string(want) {
			return fmt.Errorf("message %d has other bytes", i)
		}
	}
	fmt.Println("all came")
	return nil
})

// number is what the test has put into the environment.
func number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		panic(err)
	}
	return n
}
