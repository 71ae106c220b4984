package mpi_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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

// mixtures are the settings under which a mixture is run, and what must have happened to the channels then.
var mixtures = map[string]struct {
	env  []string
	must string // counters that some rank has above 0
	not  string // counters that no rank has
	// the longest message that goes through slots, where that is one number for the whole run: each longer
	// one is a rendezvous, and no other
	limit int
}{
	"AsIs": {nil, "acked", "refused shrunk", 0},
	"Read": {[]string{"WEFT_RENDEZVOUS=read"}, "acked", "refused shrunk granted", 0},
	"FourPhases": {[]string{"WEFT_PHASES=200,1000,4000,131072", "WEFT_VECTOR=largest", "WEFT_CHECKSUM=on"},
		"acked", "refused shrunk", 0},
	// three small channels fit, and nothing more
	"NoBudget": {[]string{"WEFT_BUFFER_BUDGET=64K"}, "refused", "acked shrunk", 608},
	"OnePhase": {[]string{"WEFT_PHASES=640", "WEFT_THRESHOLD=100"}, "", "acked refused shrunk", 100},
	"Shrinking": {[]string{"WEFT_SHRINK_AFTER=2ms", "WEFT_PHASES=640,4096,16384"}, "acked shrunk",
		"refused beside", 0},
	"KeepSmall": {[]string{"WEFT_KEEP_SMALL=1", "WEFT_SHRINK_AFTER=2ms", "WEFT_PHASES=640,4096,16384"},
		"acked shrunk beside", "refused", 0},
	"Everything": {[]string{"WEFT_SHRINK_AFTER=1ms", "WEFT_PHASES=200,1000,4000,131072",
		"WEFT_BUFFER_BUDGET=900K", "WEFT_UNEXPECTED_MAX=2K"},
		"acked shrunk refused holds", "", 0},
	"Granted": {[]string{"WEFT_RENDEZVOUS=write", "WEFT_EAGER_MAX=2K", "WEFT_UNEXPECTED_MAX=10K"},
		"granted holds", "refused shrunk", 0},
	"Threshold": {[]string{"WEFT_THRESHOLD=100"}, "acked", "refused shrunk", 0},
	"NoMemory": {[]string{"WEFT_UNEXPECTED_MAX=1K", "WEFT_VECTOR=first,whole"}, "acked holds",
		"refused shrunk", 0},
}

// TestMixture_E2_E4_E10_E11 is 1,600 messages among 4 ranks under each of these: sizes, vectors, tags, wildcards
// and probes at random, blocking and not, every byte and the order of every sender and tag checked. The
// environment variable MIXTURE_MESSAGES asks for another number, such as 100000. In short, most settings have
// one of the fabrics.
func TestMixture_E2_E4_E10_E11(t *testing.T) { fabricsInTurn(t, mixed) }

func mixed(t *testing.T, fabric string) {
	seed := 0
	for _, name := range slices.Sorted(maps.Keys(mixtures)) {
		m := mixtures[name]
		messages, err := strconv.Atoi(os.Getenv("MIXTURE_MESSAGES"))
		if err != nil {
			messages = 1_600
		}
		seed++
		if !testlength.Whole() && m.env != nil && seed%2 == boolInt(fabric == "WEFT_FABRIC=tcp") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			env := append([]string{"MIXTURE_MESSAGES=" + strconv.Itoa(messages), "MIXTURE_SEED=" +
				strconv.Itoa(seed), "MIXTURE_LIMIT=" + strconv.Itoa(m.limit), fabric}, m.env...)
			if strings.Contains(m.must, "shrunk") {
				env = append(env, "MIXTURE_SHRINKS=yes")
			}
			r := launch(t, 4, mixtureBody, env...)
			require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
			require.Contains(t, r.Out, fmt.Sprintf("%d messages", messages))
			counted := map[string]int{}
			for _, field := range strings.Fields(r.Out) {
				if name, value, ok := strings.Cut(field, "="); ok {
					n, err := strconv.Atoi(value)
					require.NoError(t, err)
					counted[name] += n
				}
			}
			for _, name := range strings.Fields(m.must) {
				require.Positive(t, counted[name], "%s: %v", name, counted)
			}
			for _, name := range strings.Fields(m.not) {
				require.Zero(t, counted[name], "%s: %v", name, counted)
			}
			// A refusal is remembered: each channel has asked once at most for each of two phases (E10).
			require.True(t, m.limit != 608 || counted["refused"] <= 4*3*2, "%v", counted)
			if m.limit == 0 {
				return
			}
			// Of the messages next to the limit more come than of those that may go either way.
			require.Greater(t, min(counted["longest"], counted["longer"]), 2*counted["either"], "%v", counted)
			for name, got := range map[string]int{"short": counted["eager"], "long": counted["rendezvous"]} {
				require.GreaterOrEqual(t, got, counted[name], "%s: %v", name, counted)
				require.LessOrEqual(t, got, counted[name]+counted["either"], "%s: %v", name, counted)
			}
		})
	}
}

var mixtureBody = body("mixture", func(_ context.Context, world *mpi.Comm) error {
	total, err := strconv.Atoi(os.Getenv("MIXTURE_MESSAGES"))
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(os.Getenv("MIXTURE_SEED"), 10, 64)
	if err != nil {
		return err
	}
	limit, _ := strconv.Atoi(os.Getenv("MIXTURE_LIMIT")) // none is asked for on several hosts
	m := &mixture{world: world, each: total / (world.Size() * world.Size()), seed: seed, limit: limit}
	var wg sync.WaitGroup
	var sendErr error
	wg.Go(func() { sendErr = m.send() })
	recvErr := m.receive()
	if recvErr != nil {
		return recvErr // the job ends, and the sender with it
	}
	wg.Wait()
	if sendErr != nil {
		return sendErr
	}
	if os.Getenv("MIXTURE_SHRINKS") != "" {
		if err := untilShrunk(world); err != nil {
			return err
		}
	}
	st := world.Stats()
	count := []int{m.received}
	if err := mpi.Reduce(world, count, count, mpi.Sum[int](), 0); err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Printf("%d messages\n", count[0])
	}
	for _, c := range st.Channels {
		if c.Endpoint != world.Endpoint() {
			continue // of weft's own messages
		}
		fmt.Printf("acked=%d refused=%d shrunk=%d beside=%d granted=%d eager=%d rendezvous=%d\n",
			c.EnlargesGranted, c.ResizesRefused, c.ShrinksGranted, c.ViaLargeRing, c.Granted, c.Eager,
			c.Rendezvous)
	}
	fmt.Printf("short=%d long=%d either=%d longest=%d longer=%d\n", m.short, m.long, m.either, m.longest,
		m.longer)
	fmt.Printf("holds=%d\n", st.Holds)
	return nil
})

// untilShrunk waits until a channel of this rank has given a large ring back, if one has had any.
func untilShrunk(world *mpi.Comm) error {
	for {
		enlarged, shrunk := false, false
		for _, c := range world.Stats().Channels {
			enlarged, shrunk = enlarged || c.EnlargesGranted > 0, shrunk || c.ShrinksGranted > 0
		}
		if shrunk || !enlarged {
			return nil
		}
		if _, _, err := mpi.Iprobe(world, mpi.AnySource, mpi.AnyTag); err != nil {
			return err
		}
	}
}

// mixture sends each message to a rank and tag at random, and receives what the others send to this one.
type mixture struct {
	world    *mpi.Comm
	each     int // messages from every rank to every rank
	seed     uint64
	limit    int // see mixtures
	received int

	// messages sent to other ranks that must go through slots, that must not, and that may or may not
	short, long, either int
	longest, longer     int // of those in one piece, those as long as the limit, and a byte longer
}

// sent counts a message for another rank. Where a vector does not go in one slot, the first has fewer bytes
// for elements, and the others have more.
func (m *mixture) sent(vec [][]byte) {
	total, largest := 0, 0
	for _, b := range vec {
		total, largest = total+len(b), max(largest, len(b))
	}
	inParts := 16
	if os.Getenv("WEFT_THRESHOLD") != "" {
		inParts = 0 // it is less than what any of them has
	}
	switch {
	case total <= m.limit || largest <= m.limit-inParts:
		m.short++
	case len(vec) == 1 || largest > m.limit+inParts:
		m.long++
	default:
		m.either++
	}
	if len(vec) == 1 && total == m.limit {
		m.longest++
	}
	if len(vec) == 1 && total == m.limit+1 {
		m.longer++
	}
}

const (
	mixtureTags = 4
	mixtureMax  = 200_000
)

// mixtureSize is small nearly always, large now and then.
func mixtureSize(rng *rand.Rand) int {
	switch p := rng.IntN(1000); {
	case p < 20:
		return rng.IntN(mixtureMax)
	case p < 200:
		return rng.IntN(6000)
	case p < 250:
		return 0
	}
	return rng.IntN(650)
}

// fill gives a message bytes that depend on its sender, its number and the offset.
func fill(b []byte, source, tag, number int) {
	x := (uint64(source)*mixtureTags+uint64(tag))*0x9e3779b97f4a7c15 + uint64(number)*0xbf58476d1ce4e5b9
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, x^x>>29)
		x += 0x94d049bb133111eb
	}
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
}

func (m *mixture) send() error {
	rng := rand.New(rand.NewPCG(m.seed, uint64(m.world.Rank())))
	size := m.world.Size()
	number := make([][mixtureTags]int, size)
	buffers := make([][]byte, 32)
	for i := range buffers {
		buffers[i] = make([]byte, mixtureMax)
	}
	var open []mpi.Request
	for i := range m.each * size {
		dst, tag := (i+m.world.Rank())%size, rng.IntN(mixtureTags)
		n := mixtureSize(rng)
		if m.limit > 0 && rng.IntN(10) == 0 {
			n = m.limit + rng.IntN(2)
		}
		buf := buffers[len(open)][:n]
		fill(buf, m.world.Rank(), tag, number[dst][tag])
		number[dst][tag]++
		if dst != m.world.Rank() && rng.IntN(4) == 0 {
			m.sent([][]byte{buf})
			if err := mpi.Send(m.world, buf, dst, tag); err != nil {
				return err
			}
			continue
		}
		var r mpi.Request
		var err error
		vec, sync := [][]byte{buf}, false
		switch rng.IntN(6) {
		case 0, 1:
			vec = pieces(rng, buf)
			r, err = mpi.IsendVec(m.world, vec, dst, tag)
		case 2:
			sync = true
			var p *mpi.Persistent
			if p, err = mpi.SsendInit(m.world, buf, dst, tag); err == nil {
				r, err = p.Start()
				err = errors.Join(err, p.Free())
			}
		default:
			r, err = mpi.Isend(m.world, buf, dst, tag)
		}
		switch {
		case dst == m.world.Rank():
		case sync:
			m.long++ // whatever its length, it waits for its receive
		default:
			m.sent(vec)
		}
		if err != nil {
			return err
		}
		if open = append(open, r); len(open) == len(buffers) || rng.IntN(20) == 0 {
			if err := mpi.Waitall(open); err != nil {
				return err
			}
			open = open[:0]
		}
	}
	return mpi.Waitall(open)
}

// pieces cuts a buffer anywhere, some pieces being empty.
func pieces(rng *rand.Rand, b []byte) [][]byte {
	var vec [][]byte
	for range rng.IntN(5) {
		n := rng.IntN(len(b) + 1)
		if rng.IntN(2) == 0 {
			n = min(n, 100)
		}
		vec = append(vec, b[:n])
		b = b[n:]
	}
	return append(vec, b)
}

func (m *mixture) receive() error {
	rng := rand.New(rand.NewPCG(m.seed+1000, uint64(m.world.Rank())))
	size := m.world.Size()
	number := make([][mixtureTags]int, size)
	want := make([]byte, mixtureMax)
	check := func(st mpi.Status, buf []byte) error {
		n := &number[st.Source][st.Tag]
		fill(want[:st.Count], st.Source, st.Tag, *n)
		if !bytes.Equal(buf[:st.Count], want[:st.Count]) {
			i := 0
			for buf[i] == want[i] {
				i++
			}
			return fmt.Errorf("message %d of rank %d with tag %d: byte %d of %d is %#x, not %#x", *n,
				st.Source, st.Tag, i, st.Count, buf[i], want[i])
		}
		*n++
		m.received++
		return nil
	}
	a, b := make([]byte, mixtureMax), make([]byte, mixtureMax)
	for left := m.each * size; left > 0; {
		switch k := rng.IntN(5); {
		case k == 0: // what Probe shows is what the next receive gets
			st, err := mpi.Probe(m.world, mpi.AnySource, mpi.AnyTag)
			if err != nil {
				return err
			}
			got, err := mpi.Recv(m.world, a[:st.Bytes()], st.Source, st.Tag)
			if err == nil && (got.Count != st.Bytes() || got.Source != st.Source || got.Tag != st.Tag) {
				err = fmt.Errorf("probed %+v, received %+v", st, got)
			}
			if err == nil {
				err = check(got, a)
			}
			if err != nil {
				return err
			}
			left--
		case k == 1 && left >= 2: // two at once match in the order of their posting
			r1, err := mpi.Irecv(m.world, a, mpi.AnySource, mpi.AnyTag)
			if err != nil {
				return err
			}
			r2, err := mpi.Irecv(m.world, b, mpi.AnySource, mpi.AnyTag)
			if err != nil {
				return err
			}
			st, err := r1.Wait()
			if err == nil {
				err = check(st, a)
			}
			if err != nil {
				return err
			}
			if st, err = r2.Wait(); err == nil {
				err = check(st, b)
			}
			if err != nil {
				return err
			}
			left -= 2
		case k == 2:
			got, st, err := mpi.RecvSlice[byte](m.world, mpi.AnySource, mpi.AnyTag)
			if err == nil {
				err = check(st, got)
			}
			if err != nil {
				return err
			}
			left--
		case k == 3:
			st, err := mpi.RecvVec(m.world, pieces(rng, a), mpi.AnySource, mpi.AnyTag)
			if err == nil {
				err = check(st, a)
			}
			if err != nil {
				return err
			}
			left--
		default:
			st, err := mpi.Recv(m.world, a, mpi.AnySource, mpi.AnyTag)
			if err == nil {
				err = check(st, a)
			}
			if err != nil {
				return err
			}
			left--
		}
	}
	if _, ok, err := mpi.Iprobe(m.world, mpi.AnySource, mpi.AnyTag); ok || err != nil {
		return fmt.Errorf("a message too many: %v, %v", ok, err)
	}
	return nil
}
