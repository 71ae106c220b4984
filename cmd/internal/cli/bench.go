package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-mpi/weft/bench"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport/fabrics"
)

const benchHelp = `Run a micro-benchmark, with the loops and the tables of the OSU benchmarks.

Without a launcher, weft bench starts its own ranks on this machine. Under weft run, or another launcher
with PMI, it is one of the ranks. Standard output holds the table and nothing else.`

// newBench returns the command of the micro-benchmarks, of which these are commands of their own below it.
func newBench(benchmarks []*bench.Benchmark) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench NAME [options]",
		Short: "Measure latency, bandwidth, collectives, memory, start-up",
		Long:  benchHelp,
		Example: "  weft bench latency\n  weft bench bw -m 64K:4M\n  weft bench allreduce -n 4 -c\n  " +
			"weft bench bw --json bw.json --plot bw.html --compare osu_bw.txt\n  weft run -n 2 weft " +
			"bench latency",
		Args: subcommand("benchmark"),
		RunE: func(*cobra.Command, []string) error {
			return usageErrorf("which benchmark? weft bench --help lists all")
		},
	}
	for _, b := range benchmarks {
		cmd.AddCommand(newBenchmark(b))
	}
	cmd.AddCommand(newTuning(), newConsistency(), newComparison())
	return cmd
}

func newBenchmark(b *bench.Benchmark) *cobra.Command {
	o := bench.Default
	var sizes sizeRange
	var fabric carrier
	ranks := b.Start
	cmd := &cobra.Command{Use: b.Name + " [options]", Short: b.Short}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.VarP(number{&ranks, 1, maxNumber}, "np", "n",
		fmt.Sprintf("number of ranks to start if there is no launcher (default %d)", ranks))
	flags.Var(&fabric, "fabric", "`NAME`: fabric that carries the messages: "+fabrics.Help())
	flags.VarP(&sizes, "message-size", "m",
		"`[MIN:]MAX`: message sizes in bytes, with suffixes K and M (default: those of OSU)")
	flags.VarP(number{&o.Iterations, 1, maxNumber}, "iterations", "i",
		"timed iterations of each size (default: those of OSU)")
	flags.VarP(number{&o.Warmup, 0, maxNumber}, "warmup", "x",
		"warm-up iterations before them (default: those of OSU)")
	flags.VarP(number{&o.Window, 1, maxNumber}, "window-size", "W",
		"messages in a window, in benchmarks that have one (default 64)")
	flags.Var(number{&o.Vector, 1, maxNumber}, "vector",
		"elements of the vector that each message of bw, bibw and mbw_mr is sent and received as "+
			"(default 1)")
	flags.BoolVarP(&o.Validate, "validation", "c", false,
		"check every byte, and print the result in one more column")
	flags.BoolVarP(&o.Full, "full", "f", false, "also print minimum, maximum and iterations")
	flags.BoolVarP(&o.Tails, "tail-lat", "z", false, "also print percentiles of single iterations")
	flags.BoolVar(&o.Rewrite, "rewrite", false,
		"rewrite the send buffers before every iteration, with the clock stopped")
	flags.Var(bufferKind{&o.Registered}, "alloc",
		"`heap|registered`: whether the buffers are ordinary slices or memory of mpi.Alloc")
	if b.OneSided {
		flags.StringVar(&o.Sync, "sync", o.Sync,
			"`flush|lock|fence`: what completes an operation on a window, in put_latency and the like")
	}
	if b.Strided {
		flags.StringVar(&o.Shape, "shape", o.Shape,
			"`"+strings.Join(bench.Shapes, "|")+"`: which elements of an array strided moves")
		flags.StringVar(&o.Call, "call", o.Call,
			"`"+strings.Join(bench.Calls, "|")+"`: how strided moves them")
	}
	if b.Threaded {
		flags.Var(number{&o.Threads, 1, maxNumber}, "threads",
			"pairs of goroutines, each pair on a communicator of its own (default 2 in rate_mt; none in "+
				"latency_mt, where two goroutines of rank 1 wait for the messages of one)")
	}
	if b.Sparse {
		flags.Var(number{&o.Degree, 1, maxNumber}, "degree",
			"ranks that each rank sends to (default 4, or all others if they are fewer)")
	}
	flags.Var(number{&o.Digits, 0, maxNumber}, "digits", "decimal places of a figure (default 2)")
	flags.StringVar(&o.Report, reportFlag, "",
		"`FILE`: write all figures, the machine, the versions and the options")
	flags.StringVar(&o.Plot, "plot", "", plotUsage)
	flags.StringArrayVar(&o.Compare, "compare", nil,
		"`FILE...`: tables, of --json or of OSU, to compare with this one and to add to the plot")
	var by bench.Invocation
	flags.StringVar(&by.Profile, "cpuprofile", "",
		"`FILE`: CPU profiles, one for each rank, FILE.0 and so on, for go tool pprof")
	var progress bool
	flags.BoolVar(&progress, progressFlag, false, "")
	flags.StringArrayVar(&o.Beside, besideFlag, nil, "")
	hide(flags, progressFlag, besideFlag)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 && len(o.Compare) == 0 {
			return usageErrorf("%s takes no argument: %q; files to compare with follow --compare", b.Name,
				args[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.Compare = append(o.Compare, args...)
		if sizes.given {
			o.Min, o.Max = sizes.low, sizes.high
		}
		if inJob() {
			return measure(cmd, b, o, by, fabric, progress)
		}
		if err := b.Check(o, ranks); err != nil {
			return tell(err)
		}
		words := os.Args[1:]
		if sys.IsTerminal(int(os.Stderr.Fd())) && !sys.IsTerminal(int(os.Stdout.Fd())) {
			// Among the arguments of bench, for after a "--" it would be a file. A table on a terminal is
			// its own progress.
			words = withOptions(words, b.Name, []string{"--" + progressFlag})
		}
		return runBeside(cmd, b, ranks, string(fabric), words)
	}
	return cmd
}

const plotUsage = "`FILE.svg|FILE.png|FILE.html`: plot of the table"

// progressFlag tells ranks that their standard error is a terminal, which they cannot find out themselves.
const progressFlag = "progress"

// besideFlag passes ranks the report of an earlier job, for comparison.
const besideFlag = "beside"

// reportFlag names the file for the report of a job.
const reportFlag = "json"

// hide takes flags that the command gives to its own jobs out of the help text.
func hide(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := flags.MarkHidden(name); err != nil {
			panic(err)
		}
	}
}

// newComparison returns the command that compares saved tables.
func newComparison() *cobra.Command {
	digits, plot := bench.Default.Digits, ""
	cmd := &cobra.Command{
		Use:   "compare FILE FILE...",
		Short: "compare tables that were measured before, of --json or of OSU",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, files []string) error {
			return tell(bench.Compare(files, digits, plot, os.Stdout))
		},
	}
	cmd.Flags().Var(number{&digits, 0, maxNumber}, "digits", "decimal places of a figure (default 2)")
	cmd.Flags().StringVar(&plot, "plot", "", plotUsage)
	return cmd
}

// measure runs a benchmark as a rank.
func measure(cmd *cobra.Command, b *bench.Benchmark, o bench.Options, by bench.Invocation, fabric carrier,
	progress bool) error {
	if fabric != "" {
		by.Settings = map[string]string{setting.Fabric.Name: string(fabric)}
	}
	by.Version, by.Command = version(), slices.DeleteFunc(slices.Clone(os.Args), func(arg string) bool {
		return arg == "--"+progressFlag || strings.HasPrefix(arg, "--"+besideFlag+"=")
	})
	if progress || sys.IsTerminal(int(os.Stderr.Fd())) && !sys.IsTerminal(int(os.Stdout.Fd())) {
		by.Progress = os.Stderr
	}
	return tell(b.Run(cmd.Context(), o, by, os.Stdout))
}

// tell prints the result of a rank, if it has one.
func tell(err error) error {
	if err == nil {
		return nil
	}
	warn(err.Error())
	if _, nonsense := errors.AsType[*bench.OptionError](err); nonsense {
		return usage
	}
	return exitStatus(1)
}

// inJob reports whether a launcher started this process as a rank.
func inJob() bool {
	for _, name := range []string{"WEFT_RANK", "PMI_RANK", "PMI_FD", "PMI_PORT", "PMIX_RANK",
		"OMPI_COMM_WORLD_RANK", "SLURM_STEP_ID", "JOB_COMPLETION_INDEX", "AWS_BATCH_JOB_NODE_INDEX",
		"FLUX_TASK_RANK", "ALPS_APP_PE", "PALS_RANKID", "JSM_NAMESPACE_RANK"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return os.Getenv("RANK") != "" && os.Getenv("WORLD_SIZE") != "" // torchrun's
}

// carrier is the value of --fabric.
type carrier string

func (c *carrier) Set(text string) error {
	if err := fabrics.Check(text); err != nil {
		return err
	}
	*c = carrier(text)
	return nil
}

func (c *carrier) String() string { return string(*c) }
func (*carrier) Type() string     { return "fabric" }

// bufferKind is the value of --buffers.
type bufferKind struct{ registered *bool }

func (a bufferKind) Set(text string) error {
	if text != "heap" && text != "registered" {
		return errors.New("neither heap nor registered")
	}
	*a.registered = text == "registered"
	return nil
}

func (bufferKind) String() string { return "" }
func (bufferKind) Type() string   { return "kind" }

// sizeRange is a value [MIN:]MAX.
type sizeRange struct {
	low, high int
	given     bool
}

func (r *sizeRange) Set(text string) (err error) {
	low, high, both := strings.Cut(text, ":")
	if !both {
		low, high = "", text
	}
	if r.low = bench.Default.Min; both {
		if err = (*size)(&r.low).Set(low); err != nil {
			return err
		}
	}
	if err = (*size)(&r.high).Set(high); err != nil {
		return err
	}
	if r.low > r.high {
		return fmt.Errorf("the smallest size, %d, is above the largest, %d", r.low, r.high)
	}
	r.given = true
	return nil
}

func (r *sizeRange) String() string { return "" }
func (*sizeRange) Type() string     { return "[MIN:]MAX" }
