package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher"
)

const runHelp = `Start N ranks of PROGRAM on this machine and wait for their end.

PROGRAM is a command in PATH, a file, or a Go package: a folder with Go files, or a file that ends in .go, is built first.
A relative name counts from the current folder, whatever --wdir says. Several programs, with ':' between them, make one job.

The exit status is that of the first rank to fail, or 128+n if signal n ended it, and 0 if none failed; 124 after --timeout;
127 when the program is not found, 126 when it cannot be executed, 1 when it does not build; 2 when the command line makes no
sense. The first failure ends the job, and one line on standard error says which rank failed, and how.

Processors are those that the affinity mask and the control group allow. --bind-to core gives each rank a core with all its
hardware threads, and none that another weft run on this machine has given to its ranks; numa and socket spread the ranks over the
machine; a list such as 0-3,8 is dealt out, a processor to each rank in turn. --cq-cores auto gives each rank a core besides, which
makes progress while the rank computes, where there are twice as many cores as ranks; a list names one for each rank. They do
nothing else: no rank runs there.`

// newRun is the command that starts a job.
func newRun() *cobra.Command {
	var all jobOptions
	var first appOptions
	cmd := &cobra.Command{
		Use:     "run [options] PROGRAM [ARG…] [: [options] PROGRAM [ARG…]]…",
		Short:   "Start a program as the ranks of a job",
		Long:    runHelp,
		Example: "  weft run -n 4 ./examples/heat\n  weft run -n 2 -l hostname\n  weft run -n 1 ./coordinator : -n 3 ./worker --fast",
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := all.job()
			if err != nil {
				return err
			}
			if job.Apps, err = apps(cmd, &first, args); err != nil {
				return err
			}
			return run(cmd, job)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().SortFlags = false
	first.define(cmd.Flags())
	all.define(cmd.Flags())
	return cmd
}

func run(cmd *cobra.Command, job launcher.Job) error {
	err := launcher.Run(cmd.Context(), job)
	var failure *launcher.Failure
	if err != nil && !errors.As(err, &failure) {
		fmt.Fprintf(os.Stderr, "weft: %v\n", err)
	}
	if err != nil {
		return exitStatus(launcher.ExitStatus(err))
	}
	return nil
}

// appOptions are the options that each program of a job has for itself.
type appOptions struct {
	ranks count
	env   []string
	dir   string
}

func (o *appOptions) define(flags *pflag.FlagSet) {
	flags.VarP(&o.ranks, "np", "n", "number of ranks; without it as many as there are usable cores")
	flags.StringArrayVarP(&o.env, "x", "x", nil, "`NAME[=VALUE]` in the ranks' environment; NAME alone must be set here")
	flags.StringVar(&o.dir, "wdir", "", "`folder` to start the ranks in")
}

// app is the program that these options and the words after them ask for.
func (o *appOptions) app(words []string) (launcher.App, error) {
	app := launcher.App{Ranks: int(o.ranks), Dir: o.dir}
	if len(words) == 0 {
		return app, errors.New("no program to run; write weft run -n 4 PROGRAM")
	}
	app.Program, app.Args = words[0], words[1:]
	for _, v := range o.env {
		name, _, hasValue := strings.Cut(v, "=")
		value, set := os.LookupEnv(name)
		switch {
		case name == "":
			return app, fmt.Errorf("-x %q: no name before the '='", v)
		case hasValue:
			app.Env = append(app.Env, v)
		case set:
			app.Env = append(app.Env, name+"="+value)
		default:
			return app, fmt.Errorf("-x %s: not set here; write -x %s=VALUE", name, name)
		}
	}
	if app.Ranks == 0 {
		machine, err := topology.Read()
		if err != nil {
			return app, err
		}
		app.Ranks = machine.UsableCores()
	}
	return app, nil
}

// apps reads the programs of the job: words is what follows the first one's options.
func apps(cmd *cobra.Command, first *appOptions, words []string) ([]launcher.App, error) {
	var out []launcher.App
	options := first
	for {
		end := slices.Index(words, ":")
		if end < 0 {
			end = len(words)
		}
		app, err := options.app(words[:end])
		if err != nil {
			return nil, err
		}
		out = append(out, app)
		if end == len(words) {
			return out, nil
		}
		flags := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
		flags.SetInterspersed(false)
		options = new(appOptions)
		options.define(flags)
		if words, err = respell(flags, words[end+1:]); err != nil {
			return nil, fmt.Errorf("%w (after a ':' only -n, -x and --wdir can stand)", err)
		}
		if err := flags.Parse(words); err != nil {
			return nil, err
		}
		words = flags.Args()
	}
}

// jobOptions are the options of the job as a whole.
type jobOptions struct {
	bind, cq, stdin, fabric, iface, launcher, output, phases string
	timeout                                                  timeLimit
	lanes                                                    laneCount
	label, verbose, report, stats, tls, reconnect            bool
}

func (o *jobOptions) define(flags *pflag.FlagSet) {
	flags.StringVar(&o.bind, "bind-to", "", "`none|core|numa|socket|CPULIST`: what each rank is kept on; core if there are enough")
	flags.StringVar(&o.cq, "cq-cores", "none", "`none|auto|CPULIST`: cores that serve completion queues, one for each rank")
	flags.BoolVar(&o.report, "report-bindings", false, "tell where each rank is: process id, processors, and its completion handler's")
	flags.StringVar(&o.fabric, "fabric", "", "`auto|shm|tcp`: what carries the messages")
	flags.StringVar(&o.phases, "phases", "", "`LIST` of slot sizes in bytes that a channel starts with and can grow to, such as 640,16448,65600")
	flags.BoolVar(&o.stats, "stats", false, "have each rank tell the counters of its channels at the end")
	flags.StringVar(&o.iface, "iface", "", "`LIST` of network interfaces, by name or CIDR, such as eth0,eth1 or 10.0.0.0/8; lanes use them all")
	flags.Var(&o.lanes, "lanes", "TCP connections to each peer, 1 to 8, which share its messages and stand in for each other; without it 1")
	flags.BoolVar(&o.reconnect, "reconnect", false, "make a lost connection anew also where it was the only lane, in place of giving the peer up")
	flags.BoolVar(&o.tls, "tls", false, "encrypt connections between ranks with TLS 1.3")
	flags.BoolVarP(&o.label, "label", "l", false, "put [rank] before every line of output")
	flags.StringVar(&o.output, "output-dir", "", "write each rank's output to `folder`/rank.N.out and rank.N.err instead")
	flags.StringVar(&o.stdin, "stdin", "0", "`all|none|RANK`: who reads standard input")
	flags.Var(&o.timeout, "timeout", "end the job after this `duration`, such as 90s or 2h; a bare number is in seconds")
	flags.StringVar(&o.launcher, "launcher", "local", "`local`: how ranks are started")
	flags.BoolVar(&o.verbose, "verbose", false, "tell what is started")
}

func (o *jobOptions) job() (launcher.Job, error) {
	job := launcher.Job{
		Label: o.label, Output: o.output, Timeout: time.Duration(o.timeout), Verbose: o.verbose, Report: o.report,
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
	}
	var err error
	if o.bind != "" {
		if job.Binding, err = launcher.ParseBinding(o.bind); err != nil {
			return job, fmt.Errorf("--bind-to: %w", err)
		}
	}
	if job.CQCores, err = launcher.ParseCQCores(o.cq); err != nil {
		return job, fmt.Errorf("--cq-cores: %w", err)
	}
	if job.Stdin, err = launcher.ParseInput(o.stdin); err != nil {
		return job, fmt.Errorf("--stdin: %w", err)
	}
	if o.launcher != "local" {
		return job, fmt.Errorf("--launcher %s: ranks are started on this machine only; leave it out", o.launcher)
	}
	switch o.fabric {
	case "":
	case "auto", "shm", "tcp":
		job.Env = append(job.Env, setting.Fabric.Name+"="+o.fabric)
	default:
		return job, fmt.Errorf("--fabric: %q is neither auto nor shm nor tcp", o.fabric)
	}
	if o.phases != "" {
		phases, err := channel.ParsePhases(o.phases)
		if err == nil {
			err = channel.Config{Phases: phases}.Check()
		}
		if err != nil {
			return job, fmt.Errorf("--phases %s: %w", o.phases, err)
		}
		job.Env = append(job.Env, setting.Phases.Name+"="+o.phases)
	}
	if o.stats {
		job.Env = append(job.Env, setting.Statistics.Name+"=1")
	}
	if o.tls {
		job.Env = append(job.Env, setting.TLS.Name+"=on")
	}
	if o.iface != "" {
		job.Env = append(job.Env, setting.Interface.Name+"="+o.iface)
	}
	if o.lanes > 0 {
		job.Env = append(job.Env, setting.Lanes.Name+"="+o.lanes.String())
	}
	if o.reconnect {
		job.Env = append(job.Env, setting.Reconnect.Name+"=on")
	}
	return job, nil
}

// count is a number of ranks.
type count int

func (c *count) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("the number of ranks is a whole number above 0")
	}
	*c = count(n)
	return nil
}

func (c *count) String() string {
	if *c == 0 {
		return ""
	}
	return strconv.Itoa(int(*c))
}

func (c *count) Type() string { return "N" }

// laneCount is a number of lanes; 0 leaves it to the setting.
type laneCount int

func (l *laneCount) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > setting.MostLanes {
		return fmt.Errorf("the number of lanes is a whole number from 1 to %d", setting.MostLanes)
	}
	*l = laneCount(n)
	return nil
}

func (l *laneCount) String() string {
	if *l == 0 {
		return ""
	}
	return strconv.Itoa(int(*l))
}

func (l *laneCount) Type() string { return "N" }

// timeLimit is a duration that may also be a number of seconds, as other launchers take it.
type timeLimit time.Duration

func (t *timeLimit) Set(text string) error {
	d, err := time.ParseDuration(text)
	if seconds, numErr := strconv.ParseUint(text, 10, 31); numErr == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d <= 0 {
		return errors.New("not a duration above zero, such as 90s or 2h")
	}
	*t = timeLimit(d)
	return nil
}

func (t *timeLimit) String() string {
	if *t == 0 {
		return ""
	}
	return time.Duration(*t).String()
}

func (t *timeLimit) Type() string { return "duration" }
