package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-mpi/weft/bench"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/transport/fabrics"
)

const tuneHelp = `Compare every algorithm of the collectives, and every way of messages (Send, up to 4 MiB
without -m), with the one that weft chooses by itself.

It prints the chosen algorithm or way, and the best one. "slower" marks a choice that takes more than 1.1
times as long, and "unclear" one of which the figures say so but vary too much. With --table it writes
rules for the collectives that are slower, for WEFT_COLL=FILE. For messages it prints the setting that
forces the better way. Without a launcher it starts its own ranks on this machine.`

const consistencyHelp = `Check the times of collectives against one another: an Allreduce takes at most
1.1 times as long as Reduce and Bcast, an Allgather no longer than Gather and Bcast, a Barrier no longer
than an Allreduce of 8 bytes, and one more element or rank costs at most half as much again.

The exit status is 1 if one of these does not hold.`

// newTuning returns the command that tunes collectives.
func newTuning() *cobra.Command {
	var o bench.TuneOptions
	cmd := comparing(&cobra.Command{
		Use:   "tune [options]",
		Short: "find the best ways of messages, and the best algorithms of collectives, for WEFT_COLL",
		Long:  tuneHelp,
		Example: "  weft bench tune -n 4 --table coll.json\n" +
			"  weft run -n 16 weft bench tune --limit 10m --table coll.json\n" +
			"  WEFT_COLL=coll.json weft run -n 16 ./program",
	}, &o, bench.Tune)
	flags := cmd.Flags()
	flags.StringVar(&o.Table, "table", "", "`FILE.json`: write the rules, for WEFT_COLL")
	flags.BoolVar(&o.All, "all", false, "print the times of all algorithms")
	flags.StringSliceVar(&o.Collectives, "collectives", nil,
		"`NAME,…`: as in package mpi, such as Allreduce,Bcast; Send is for messages between two ranks "+
			"(default: Send, and all that have several algorithms)")
	return cmd
}

// newConsistency returns the command that compares collectives with one another.
func newConsistency() *cobra.Command {
	var o bench.TuneOptions
	return comparing(&cobra.Command{
		Use:   "consistency [options]",
		Short: "check that no collective takes longer than others that do its work",
		Long:  consistencyHelp,
	}, &o, bench.Consistency)
}

// comparing makes cmd a command that compares collectives, as a rank or, without a launcher, alone.
func comparing(cmd *cobra.Command, o *bench.TuneOptions,
	compare func(context.Context, bench.TuneOptions, bench.Invocation, io.Writer) error) *cobra.Command {
	*o = bench.DefaultTune
	var sizes sizeRange
	var fabric carrier
	ranks := 2
	cmd.Args = noWords
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.VarP(number{&ranks, 1, maxNumber}, "np", "n",
		"number of ranks to start if there is no launcher (default 2)")
	flags.Var(&fabric, "fabric", "`NAME`: fabric that carries the messages: "+fabrics.Help())
	flags.DurationVar(&o.Limit, "limit", o.Limit, "approximate `TIME` that it takes")
	flags.VarP(&sizes, "message-size", "m",
		"`[MIN:]MAX`: message sizes in bytes, with suffixes K and M (default 8:1M)")
	flags.Var(rankCounts{&o.Ranks}, "ranks",
		"`N,…`: numbers of ranks of the communicators (default: the powers of two below the job's size, and "+
			"that size)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if sizes.given {
			o.Min, o.Max, o.MaxMessage = max(sizes.low, 1), sizes.high, sizes.high
		}
		if inJob() {
			by := bench.Invocation{}
			if fabric != "" {
				by.Settings = map[string]string{setting.Fabric.Name: string(fabric)}
			}
			return tell(compare(cmd.Context(), *o, by, os.Stdout))
		}
		if err := o.Check(ranks); err != nil {
			return tell(err)
		}
		return runSelf(cmd, ranks, os.Args[1:])
	}
	return cmd
}

// runSelf runs this executable as the ranks of a job on this machine, with words as arguments.
func runSelf(cmd *cobra.Command, ranks int, words []string) error {
	job, err := selfJob(ranks, words)
	if err != nil {
		return err
	}
	return run(cmd, job)
}

// selfJob returns such a job.
func selfJob(ranks int, words []string) (launcher.Job, error) {
	self, err := os.Executable()
	return launcher.Job{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Stdin: launcher.InputNone,
		CoresPerRank: 1, Apps: []launcher.App{{Ranks: ranks, Program: self, Args: words}}}, err
}

// rankCounts is a list of numbers of ranks.
type rankCounts struct{ to *[]int }

func (r rankCounts) Set(text string) error {
	*r.to = nil
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 2 {
			return fmt.Errorf("%q is no number of ranks from 2 up", word)
		}
		*r.to = append(*r.to, n)
	}
	if len(*r.to) == 0 {
		return errors.New("no number of ranks")
	}
	return nil
}

func (rankCounts) String() string { return "" }
func (rankCounts) Type() string   { return "ranks" }
