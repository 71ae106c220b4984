package bench

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

// tiny are options of a real run: small sizes, and the first of the large ones.
func tiny(b *Benchmark) Options {
	o := options(func(o *Options) { o.Max, o.Iterations, o.Warmup, o.Window, o.Full = 16384, 3, 1, 4, true })
	o.Validate = b.measureSize != nil
	return o
}

// rewritten are some of the sizes with all that can be measured besides.
func rewritten(b *Benchmark) Options {
	o := someSizes(b)
	o.Rewrite, o.Tails = b.measureSize != nil, b.spec.tails
	return o
}

// someSizes are the larger ones of tiny, where a benchmark runs again with other options.
func someSizes(b *Benchmark) Options {
	o := tiny(b)
	if b.measureSize != nil {
		o.Min = 4096
	}
	return o
}

// ways are the options with which a benchmark runs on so many ranks: with all sizes on the fewest that it runs on.
// Runs of phases, memory and overlap take long. Shapes of views and calls take turns.
func ways(b *Benchmark, ranks int) []Options {
	switch b.spec {
	case connections, footprints:
		return []Options{tiny(b)}
	case collectiveOverlaps, reductionOverlaps:
		return []Options{someSizes(b)}
	case gaps, changes:
		o := tiny(b)
		o.Iterations = 1
		return []Options{o}
	}
	list := []Options{tiny(b), rewritten(b)}
	if !testlength.Whole() && ranks > 2 && b.Check(tiny(b), ranks-1) == nil {
		return list[1:]
	}
	if b.Threaded {
		o := rewritten(b)
		o.Threads = 3
		list = append(list, o)
	}
	if b.spec == packings {
		for i := range max(len(Shapes), len(Calls)) {
			o := someSizes(b)
			o.Shape, o.Call = Shapes[i%len(Shapes)], Calls[i%len(Calls)]
			list = append(list, o)
		}
	}
	return list
}

// runs tells whether a benchmark runs on so many ranks. TestReads_R2_BytesCopied has the settings that reads
// needs. Those that three ranks can run do not run on four, but for grids, which have two dimensions there.
func runs(b *Benchmark, o Options, ranks int) bool {
	if !testlength.Whole() && ranks == 4 && b.Check(o, 3) == nil && !strings.Contains(b.Name, "neighbor") {
		return false
	}
	return b.spec != copies && b.Check(o, ranks) == nil
}

var realBody = worldBody("real", func(world *mpi.Comm) error {
	for _, b := range All {
		if !runs(b, tiny(b), world.Size()) {
			continue
		}
		for _, o := range ways(b, world.Size()) {
			s := newSession(b, o, world, os.Stdout, instruments{now: mpi.Wtime, date: time.Now,
				pattern: pattern, resident: resident, warmUp: time.Millisecond})
			if own, fatal := s.outcome(); own != nil || fatal != nil {
				return fmt.Errorf("%s: %w", b.Name, errors.Join(own, fatal))
			}
			s.out.printf("== %s\n", b.Name)
		}
	}
	return nil
}, "WEFT_SHRINK_AFTER=100ms", "WEFT_EAGER_MAX=1G")

func TestEveryBenchmarkOnRealRanks(t *testing.T) {
	run := map[string]int{}
	figure := regexp.MustCompile(`^[0-9]+( +[0-9]+\.[0-9]{2}){1,4}( +3)? +Pass(( +[0-9]+\.[0-9]{2}){5})?$`)
	for _, ranks := range testlength.InShort([]int{1, 2, 3, 4}, []int{2}) {
		r := launch(t, group{ranks, realBody})
		require.NoError(t, r.Failure, r.Err)
		require.Empty(t, told(r))
		tables := r.Out
		for _, b := range All {
			for _, o := range ways(b, ranks) {
				table, rest, found := strings.Cut(tables, "== "+b.Name+"\n")
				require.Equal(t, runs(b, o, ranks), found, "%s on %d ranks:\n%s", b.Name, ranks,
					tables)
				if !found {
					continue
				}
				tables = rest
				run[b.Name]++
				require.Equal(t, o.Tails, strings.Contains(table, " Tail "), table)
				if b.measureSize == nil {
					continue
				}
				rows := strings.Split(strings.TrimSpace(table[strings.LastIndex(table, "# Size"):]), "\n")[1:]
				n, _ := b.sizes(o)
				for _, row := range rows {
					require.Regexp(t, figure, row)
					require.True(t, strings.HasPrefix(row, fmt.Sprintf("%-10d", n)), row)
					n *= 2
				}
				require.Equal(t, 2*16384, n, table)
			}
		}
		require.Empty(t, tables)
	}
	for _, b := range All {
		if b.spec == copies || testing.Short() && !runs(b, tiny(b), 2) {
			continue
		}
		require.NotZero(t, run[b.Name], "%s was not run", b.Name)
	}
}

// The counters of a process are all that tells of allocations on the other goroutines of a rank too. What is
// not per message may allocate: the difference between two runs tells.
var frugal = worldBody("frugal", func(world *mpi.Comm) error {
	for _, name := range []string{"latency", "bw", "bibw", "mbw_mr", "barrier", "bcast", "reduce",
		"allreduce", "gather"} {
		allocated := func(iterations int) (uint64, error) {
			o := options(func(o *Options) {
				o.Min, o.Max, o.Iterations, o.Warmup, o.Tails = 8, 8,
					iterations, 10, true
			})
			s := newSession(find(name), o, world, os.Stdout,
				instruments{now: mpi.Wtime, date: time.Now, pattern: pattern})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if own, fatal := s.outcome(); own != nil || fatal != nil {
				return 0, fmt.Errorf("%s: %w", name, errors.Join(own, fatal))
			}
			runtime.ReadMemStats(&after)
			return after.Mallocs - before.Mallocs, nil
		}
		const few, many = 10, 1010
		base, err := allocated(few)
		if err != nil {
			return err
		}
		all, err := allocated(many)
		if err != nil {
			return err
		}
		if more := int64(all) - int64(base); more >= many-few {
			return fmt.Errorf("%s: %d allocations in %d iterations more", name, more, many-few)
		}
	}
	return nil
})

func TestTheMeasuredLoopsAllocateNothing(t *testing.T) {
	testlength.NotInShort(t)
	r := launch(t, group{2, frugal})
	require.NoError(t, r.Failure, r.Err)
}
