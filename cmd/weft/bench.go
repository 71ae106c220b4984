package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-mpi/weft/bench"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/launcher"
)

const benchHelp = `Measure with one of the micro-benchmarks, in the loops and tables of OSU's.

Alone it starts its own ranks on this machine; under a launcher, weft's or another with PMI, it is one of the ranks. Standard output
holds the table and nothing else.`

// newBench is the command of the micro-benchmarks, each a command of its own below it.
func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bench NAME [options]",
		Short:   "Measure latency, bandwidth, collectives, memory, start-up",
		Long:    benchHelp,
		Example: "  weft bench latency\n  weft bench bw -m 64K:4M\n  weft bench allreduce -n 4 -c\n  weft run -n 2 weft bench latency",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("no benchmark is called %q; there are %s", args[0], strings.Join(benchNames(), ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New("which benchmark? there are " + strings.Join(benchNames(), ", "))
		},
	}
	for _, b := range bench.All {
		cmd.AddCommand(newBenchmark(b))
	}
	return cmd
}

func benchNames() []string {
	var names []string
	for _, b := range bench.All {
		names = append(names, b.Name)
	}
	return names
}

func newBenchmark(b *bench.Benchmark) *cobra.Command {
	o := bench.Default
	var sizes, fabric, alloc string
	ranks := count(b.Start)
	cmd := &cobra.Command{Use: b.Name + " [options]", Short: b.Short, Args: cobra.NoArgs}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.VarP(&ranks, "np", "n", "number of ranks to start")
	flags.StringVar(&fabric, "fabric", "", "`auto|tcp`: what carries the messages")
	flags.StringVarP(&sizes, "message-size", "m", "", "`[MIN:]MAX` sizes in bytes; K and M are understood")
	flags.IntVarP(&o.Iterations, "iterations", "i", o.Iterations, "timed iterations of each size; 0: as OSU has them")
	flags.IntVarP(&o.Warmup, "warmup", "x", o.Warmup, "iterations before these; -1: as OSU has them")
	flags.IntVarP(&o.Window, "window-size", "W", o.Window, "messages under way in bw and bibw")
	flags.BoolVarP(&o.Validate, "validation", "c", false, "check every byte, in a column more")
	flags.BoolVarP(&o.Full, "full", "f", false, "print minimum, maximum and iterations too")
	flags.StringVar(&alloc, "alloc", "heap", "`heap`: what the buffers are")
	flags.IntVar(&o.Digits, "digits", o.Digits, "decimals of a figure")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if o.Min, o.Max, err = parseSizes(sizes); err != nil {
			return err
		}
		if alloc != "heap" {
			return fmt.Errorf("--alloc %s: buffers are ordinary slices (heap)", alloc)
		}
		if inJob() {
			err := b.Run(cmd.Context(), o, os.Stdout)
			if err != nil {
				fmt.Fprintf(os.Stderr, "weft: %v\n", err)
				return exitStatus(1)
			}
			return nil
		}
		if err := b.Check(o, int(ranks)); err != nil {
			return err
		}
		job := launcher.Job{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Stdin: launcher.InputNone}
		switch fabric {
		case "":
		case "auto", "tcp":
			job.Env = []string{setting.Fabric.Name + "=" + fabric}
		default:
			return fmt.Errorf("--fabric: %q is neither auto nor tcp", fabric)
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		job.Apps = []launcher.App{{Ranks: int(ranks), Program: self, Args: os.Args[1:]}}
		return run(cmd, job)
	}
	return cmd
}

// inJob tells whether a launcher has started this process as a rank.
func inJob() bool {
	for _, name := range []string{"WEFT_RANK", "PMI_RANK", "PMI_FD", "PMI_PORT", "PMIX_RANK", "SLURM_STEP_ID"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// parseSizes reads [MIN:]MAX. An empty text is the benchmark's own range.
func parseSizes(text string) (low, high int, err error) {
	if text == "" {
		return bench.Default.Min, bench.Default.Max, nil
	}
	first, second, both := strings.Cut(text, ":")
	if high, err = parseSize(first); err == nil && both {
		low = high
		high, err = parseSize(second)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("-m %q: %w", text, err)
	}
	return low, high, nil
}

func parseSize(text string) (int, error) {
	shift := 0
	switch {
	case strings.HasSuffix(text, "K"), strings.HasSuffix(text, "k"):
		shift = 10
	case strings.HasSuffix(text, "M"), strings.HasSuffix(text, "m"):
		shift = 20
	}
	digits := text
	if shift > 0 {
		digits = text[:len(text)-1]
	}
	n, err := strconv.ParseUint(digits, 10, 31-shift)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a size, such as 8, 64K or 4M", text)
	}
	return int(n) << shift, nil
}
