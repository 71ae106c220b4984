package jobtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/malicetest"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/fabric"
	"github.com/weft-mpi/weft/transport/fabrics"
)

var (
	maliceRuns = flag.Int("malice.runs", 1, "jobs of TestMaliciousRankOfAJob of each kind")
	maliceSeed = flag.Uint64("malice.seed", 1, "seed of the first of them")
)

// jobMalices are the ways in which a rank of a job is malicious, and the settings of the job.
var jobMalices = map[string]struct {
	kind     malicetest.Kind
	settings []string
}{
	"tcp":       {malicetest.Requests, []string{"WEFT_FABRIC=tcp"}},
	"lanes":     {malicetest.Requests, []string{"WEFT_FABRIC=tcp", "WEFT_LANES=3"}},
	"reconnect": {malicetest.Requests, []string{"WEFT_FABRIC=tcp", "WEFT_RECONNECT=on", "WEFT_CHECKSUM=on"}},
	"tls":       {malicetest.Requests, []string{"WEFT_FABRIC=tcp", "WEFT_TLS=on"}},
	"shm":       {malicetest.Requests, []string{"WEFT_FABRIC=shm"}},

	"frames of tcp":       {malicetest.Frames, []string{"WEFT_FABRIC=tcp"}},
	"frames of lanes":     {malicetest.Frames, []string{"WEFT_FABRIC=tcp", "WEFT_LANES=3"}},
	"frames of reconnect": {malicetest.Frames, []string{"WEFT_FABRIC=tcp", "WEFT_RECONNECT=on"}},
	"rings of shm":        {malicetest.Rings, []string{"WEFT_FABRIC=shm"}},
}

const (
	maliceKept = 1 << 20 // WEFT_UNEXPECTED_MAX
	// What a rank has in memory at most: the test binary, what the program uses, channels with their rings,
	// and twice what the garbage collector has to keep, with maliceKept in it. The race detector takes several
	// times as much.
	maliceMemory     = 128 << 20
	maliceMemoryRace = 8 * maliceMemory
	// A peer that is silent is given up after 10 s, and one that stopped before it was connected with a rank
	// that waits for it, after 10 s more; the rest is for a machine that does much else.
	maliceLimit = 2 * time.Minute
)

// TestMaliciousRankOfAJob runs jobs of three or four processes, one of which holds the secret and keeps to no
// rule, and ends, or stops, without a word after a while. Every other rank comes to the end of its program,
// without the malicious one if need be, or to an error that names it, or the launcher ends it and tells that
// the malicious one has lost it. Nothing that the others say to each other is changed; none of them panics,
// waits for ever, or takes more memory than it may.
func TestMaliciousRankOfAJob(t *testing.T) {
	t.Parallel()
	runs := *maliceRuns
	for name := range jobMalices {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sum maliceResult
			for run := range runs {
				seed := *maliceSeed + uint64(run)
				ok := t.Run(fmt.Sprint(seed), func(t *testing.T) { sum.add(runWithMalice(t, name, seed)) })
				if !ok {
					t.Fatalf("run it again with -malice.runs=1 -malice.seed=%d -run '%s'", seed, t.Name())
				}
			}
			t.Logf("%d jobs: %d lies; %d ranks went on, %d ended with an error, and %d since the malicious "+
				"one had lost them, after %d errors; %d MiB at most", runs, sum.lies, sum.wentOn, sum.ended,
				sum.accused, sum.errors, sum.peak>>20)
		})
	}
}

// maliceResult is what has come of jobs.
type maliceResult struct {
	lies, wentOn, ended, accused, errors, peak int
}

func (r *maliceResult) add(s maliceResult) {
	r.lies += s.lies
	r.wentOn += s.wentOn
	r.ended += s.ended
	r.accused += s.accused
	r.errors += s.errors
	r.peak = max(r.peak, s.peak)
}

// honestEnd is what an honest rank tells of itself at its end.
type honestEnd struct {
	Rank   int
	Errors []string // of calls, after which it went on
	End    string   // the error that it ended with, if it did
	Peak   int      // bytes of memory
}

// secondHand is in the error of a collective that another rank has given up, whose own error says why.
const secondHand = "as that rank found"

const maliceSays, honestSays = "malicious: ", "honest: "

func runWithMalice(t *testing.T, name string, seed uint64) (sum maliceResult) {
	n := 3 + int(seed/7%2)
	bad := int(seed % uint64(n))
	job := jobMalices[name]
	env := append([]string{"MALICE_KIND=" + name, fmt.Sprint("MALICE_SEED=", seed),
		fmt.Sprint("MALICE_RANK=", bad),
		fmt.Sprint("WEFT_UNEXPECTED_MAX=", maliceKept), "WEFT_CONNECT_TIMEOUT=10s",
		"WEFT_LOG=error"}, job.settings...)
	var apps []launcher.App
	for rank := range n {
		program := besideMalice
		if rank == bad {
			program = maliciously
		}
		apps = append(apps, launchertest.Ranks(1, program, env...))
	}
	r := launchertest.RunSurvivingFor(t, maliceLimit, apps...)

	ends := map[int]honestEnd{}
	for line := range strings.SplitSeq(r.Out, "\n") {
		if text, ok := strings.CutPrefix(line, maliceSays); ok {
			sum.lies, _ = strconv.Atoi(text)
		} else if text, ok := strings.CutPrefix(line, honestSays); ok {
			var end honestEnd
			require.NoError(t, json.Unmarshal([]byte(text), &end))
			ends[end.Rank] = end
		}
	}
	defer func() {
		if t.Failed() {
			t.Logf("the malicious rank is %d of %d, after %d lies; standard output:\n%s\nstandard error:\n%s",
				bad, n, sum.lies, r.Out, r.Err)
		}
	}()
	require.Positive(t, sum.lies, "the malicious rank has not lied")
	// An honest rank that ends with an error is one that the others lose.
	names := []string{fmt.Sprint("rank ", bad)}
	for rank, end := range ends {
		if end.End != "" {
			require.Contains(t, end.End, fmt.Sprint("rank ", bad), "rank %d has ended", rank)
			names = append(names, fmt.Sprint("rank ", rank))
			sum.ended++
			continue
		}
		sum.wentOn++
	}
	// One of which the malicious rank says that it has lost it is ended, and that is told.
	for rank := range n {
		_, told := ends[rank]
		if !told && strings.Contains(r.Err, fmt.Sprintf("rank %d has lost rank %d ", bad, rank)) {
			ends[rank] = honestEnd{}
			names = append(names, fmt.Sprint("rank ", rank))
			sum.accused++
		}
	}
	for rank := range n {
		if rank == bad {
			continue
		}
		end, told := ends[rank]
		require.True(t, told, "honest rank %d has not come to an end of its own", rank)
		limit := maliceMemory
		if raceDetector {
			limit = maliceMemoryRace
		}
		require.LessOrEqual(t, end.Peak, limit, "bytes of rank %d", rank)
		for _, err := range end.Errors {
			named := slices.ContainsFunc(append(names, secondHand),
				func(name string) bool { return strings.Contains(err, name) })
			require.True(t, named, "rank %d has an error that does not name rank %d: %s", rank, bad, err)
		}
		sum.errors += len(end.Errors)
		sum.peak = max(sum.peak, end.Peak)
	}
	return sum
}

var besideMalice = launchertest.Body("beside malice", func() error {
	end := honestEnd{}
	bad, err := strconv.Atoi(os.Getenv("MALICE_RANK"))
	if err != nil {
		return err
	}
	world, err := mpi.Init(context.Background())
	if err == nil {
		end.Rank = world.Rank()
		err = goOnBeside(world, bad, func(err error) { end.Errors = append(end.Errors, err.Error()) })
		if err == nil {
			err = mpi.Finalize()
		}
	} else if end.Rank, err = strconv.Atoi(os.Getenv("PMI_RANK")); err != nil {
		return err
	}
	if err != nil {
		end.End = err.Error()
	}
	end.Peak = peakMemory()
	text, _ := json.Marshal(end)
	fmt.Printf("%s%s\n", honestSays, text)
	return err
})

// peakMemory is the most that this process has had in memory.
func peakMemory() int {
	status, _ := os.ReadFile("/proc/self/status")
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	if words := strings.Fields(after); len(words) > 0 {
		kibibytes, _ := strconv.Atoi(words[0])
		return kibibytes << 10
	}
	return 0
}

// goOnBeside comes to the end of the program, with all ranks or with those that are left. Errors after which
// it goes on are told.
func goOnBeside(world *mpi.Comm, bad int, tell func(error)) error {
	seed, err := strconv.ParseUint(os.Getenv("MALICE_SEED"), 10, 64)
	if err != nil {
		return err
	}
	for c := world; ; {
		p := besideProgram{c: c, bad: bad, world: world}
		err := p.run(rand.New(rand.NewPCG(seed, 30)))
		well := uint64(1)
		if err != nil {
			var wrong *wrongData
			if errors.As(err, &wrong) {
				return err
			}
			// That a communicator was revoked, another rank has told, or this one itself.
			if !errors.Is(err, mpi.ErrRevoked) {
				tell(err)
			}
			well = 0
			if err := c.Revoke(); err != nil {
				return err
			}
		}
		all, err := c.Agree(well)
		if err == nil && all&1 == 1 {
			return nil
		}
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
			return err
		}
		if c, err = c.Shrink(); err != nil {
			return err
		}
	}
}

// wrongData says that a rank has received from an honest one what that has not sent.
type wrongData struct {
	what string
	from int
}

func (e *wrongData) Error() string {
	return fmt.Sprintf("%s from honest rank %d is wrong", e.what, e.from)
}

// besideProgram is what the ranks of a communicator do beside a malicious one.
type besideProgram struct {
	c, world *mpi.Comm
	bad      int // rank in the world
	round    int
}

func (p *besideProgram) run(random *rand.Rand) error {
	steps := []func(*rand.Rand) error{p.ring, p.ring, p.unexpected, p.anySource, p.sums, p.sums, p.exchange,
		p.window}
	for p.round = range 3 {
		for _, i := range random.Perm(len(steps)) {
			// each step with numbers of its own, which are the same at all ranks
			own := rand.New(rand.NewPCG(random.Uint64(), 1))
			if err := steps[i](own); err != nil {
				return err
			}
		}
	}
	return nil
}

// honest reports whether a rank of the communicator is.
func (p *besideProgram) honest(rank int) bool {
	return p.c.Group().Translate([]int{rank}, p.world.Group())[0] != p.bad
}

// all reports whether no rank of the communicator is malicious.
func (p *besideProgram) all() bool {
	for rank := range p.c.Size() {
		if !p.honest(rank) {
			return false
		}
	}
	return true
}

// besideValue is element i of what a rank sends.
func besideValue(rank, round, i int) int64 { return int64(rank+1)<<40 | int64(round)<<32 | int64(i) }

func (p *besideProgram) data(n int) []int64 {
	data := make([]int64, n)
	for i := range data {
		data[i] = besideValue(p.c.Rank(), p.round, i)
	}
	return data
}

func (p *besideProgram) right(what string, got []int64, from int) error {
	if !p.honest(from) {
		return nil
	}
	for i, v := range got {
		if v != besideValue(from, p.round, i) {
			return &wrongData{fmt.Sprintf("element %d (%#x) of %d of %s", i, v, len(got), what), from}
		}
	}
	return nil
}

func besideLength(random *rand.Rand) int {
	return []int{1, 10, 100, 1000, 5000, 40_000, 120_000}[random.IntN(7)]
}

// ring has each rank send to the next, messages of all lengths.
func (p *besideProgram) ring(random *rand.Rand) error {
	n, c := besideLength(random), p.c
	got := make([]int64, n)
	left := (c.Rank() + c.Size() - 1) % c.Size()
	_, err := mpi.Sendrecv(c, p.data(n), (c.Rank()+1)%c.Size(), 1, got, left, 1)
	return firstError(err, p.right("a message", got, left))
}

// unexpected has each rank send many messages before anybody receives, which then are taken in another order.
func (p *besideProgram) unexpected(random *rand.Rand) error {
	const messages = 24
	c := p.c
	right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	lengths := make([]int, messages)
	requests := make([]mpi.Request, 0, messages)
	var first error
	for i := range lengths {
		lengths[i] = besideLength(random) / (1 + i)
		r, err := mpi.Isend(c, p.data(lengths[i]), right, 10+i)
		if first = firstError(first, err); err == nil {
			requests = append(requests, r)
		}
	}
	for _, i := range random.Perm(messages) {
		got := make([]int64, lengths[i])
		if _, err := mpi.Recv(c, got, left, 10+i); err != nil {
			first = firstError(first, err)
			break
		}
		first = firstError(first, p.right("an unexpected message", got, left))
	}
	if first != nil {
		c.Revoke() // or the sends might wait for ever
	}
	return firstError(first, mpi.Waitall(requests))
}

// anySource has each rank send one message to all others.
func (p *besideProgram) anySource(random *rand.Rand) error {
	c, n := p.c, besideLength(random)
	data := p.data(n)
	var requests []mpi.Request
	var first error
	for rank := range c.Size() {
		if rank != c.Rank() {
			r, err := mpi.Isend(c, data, rank, 100+p.round)
			if first = firstError(first, err); err == nil {
				requests = append(requests, r)
			}
		}
	}
	for range c.Size() - 1 {
		got := make([]int64, n)
		status, err := mpi.Recv(c, got, mpi.AnySource, 100+p.round)
		if err != nil {
			first = firstError(first, err)
			break
		}
		first = firstError(first, p.right("a message from any source", got, status.Source))
	}
	if first != nil {
		c.Revoke()
	}
	return firstError(first, mpi.Waitall(requests))
}

// sums adds up numbers of all ranks, several times, so that all ways of doing it are taken.
func (p *besideProgram) sums(random *rand.Rand) error {
	n := besideLength(random)
	for range 6 {
		sum := make([]int64, n)
		if err := mpi.Allreduce(p.c, p.data(n), sum, mpi.Sum[int64]()); err != nil {
			return err
		}
		if !p.all() {
			continue
		}
		for i, v := range sum {
			want := int64(0)
			for rank := range p.c.Size() {
				want += besideValue(rank, p.round, i)
			}
			if v != want {
				return &wrongData{"a sum", p.c.Rank()}
			}
		}
	}
	return nil
}

// exchange has all ranks tell all others what they have.
func (p *besideProgram) exchange(random *rand.Rand) error {
	n, c := besideLength(random)/4+1, p.c
	for range 3 {
		all := make([]int64, n*c.Size())
		if err := mpi.Allgather(c, p.data(n), all); err != nil {
			return err
		}
		if err := mpi.Bcast(c, all[:n], random.IntN(c.Size())); err != nil {
			return err
		}
		if err := mpi.Alltoall(c, all, make([]int64, len(all))); err != nil {
			return err
		}
	}
	return mpi.Barrier(c)
}

// window has each rank put numbers into the next rank's memory, get them, and add to those of all.
func (p *besideProgram) window(random *rand.Rand) error {
	c, n, heap := p.c, min(besideLength(random), 5000), random.IntN(2) == 0
	win, err := makeWindow(c, 2*n+1, heap)
	if err != nil {
		return err
	}
	err = p.inWindow(win, n)
	if err != nil {
		win.Comm().Revoke()
	}
	return firstError(err, win.Free())
}

func (p *besideProgram) inWindow(win *mpi.Win[int64], n int) error {
	c := p.c
	right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	if err := firstError(win.Fence(), win.Put(p.data(n), right, 0), win.Fence()); err != nil {
		return err
	}
	alone := p.all() // the malicious one may have changed what is in the window
	if alone {
		if err := p.right("a Put", win.Local()[:n], left); err != nil {
			return err
		}
	}
	got := make([]int64, n)
	if err := firstError(win.Get(got, right, 0), win.Fence()); err != nil {
		return err
	}
	if alone {
		if err := p.right("a Get", got, c.Rank()); err != nil {
			return err
		}
	}
	for rank := range c.Size() {
		if err := win.Lock(rank, mpi.Exclusive); err != nil {
			return err
		}
		err := win.Accumulate(make([]int64, n), rank, n, mpi.Sum[int64]())
		if err == nil {
			_, err = win.FetchAndOp(1, rank, 2*n, mpi.Sum[int64]())
		}
		if err := firstError(err, win.Unlock(rank)); err != nil {
			return err
		}
	}
	return nil
}

// maliciously takes part in the program through a device that breaks the rules, and ends without a word.
var maliciously = launchertest.Body("maliciously", func() error {
	seed, err := strconv.ParseUint(os.Getenv("MALICE_SEED"), 10, 64)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed, 98))
	var misdeeds atomic.Pointer[malicetest.Misdeed]
	for i := range fabrics.All {
		open := fabrics.All[i].Open
		fabrics.All[i].Open = func(c fabric.Config) (transport.Device, error) {
			d, err := open(c)
			if err != nil {
				return nil, err
			}
			d, m := jobMalices[os.Getenv("MALICE_KIND")].kind(d, seed)
			m.Tell(func() { fmt.Printf("%s1\n", maliceSays) }) // the launcher may kill this process at once
			misdeeds.Store(&m)
			return d, nil
		}
	}
	world, err := mpi.Init(context.Background())
	if err != nil {
		return err
	}
	lies := (*misdeeds.Load()).Deeds
	until := time.Now().Add(time.Duration(random.IntN(300)) * time.Millisecond)
	floods, way := random.IntN(3) == 0, random.IntN(40)
	go func() {
		for ; time.Now().Before(until) || lies() == 0; time.Sleep(time.Millisecond) {
		}
		fmt.Printf("%s%d\n", maliceSays, lies())
		switch {
		case way == 0: // and the others find it silent
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		case way%2 == 0:
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		os.Exit(1)
	}()
	goOnBeside(world, world.Rank(), func(error) {})
	for i := 0; floods && i < 1000 || lies() == 0; i++ {
		for rank := range world.Size() {
			if r, err := mpi.Isend(world, make([]int64, random.IntN(2000)), rank, 1000+i); err == nil && i%7 == 0 {
				r.Cancel()
			}
		}
	}
	time.Sleep(maliceLimit)
	return errors.New("the malicious rank is still there")
})

func makeWindow(c *mpi.Comm, n int, heap bool) (*mpi.Win[int64], error) {
	if heap {
		return mpi.WinCreate(c, make([]int64, n))
	}
	return mpi.WinAllocate[int64](c, n)
}
