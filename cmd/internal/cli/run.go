package cli

import (
	"errors"
	"fmt"
	"net/netip"
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
	"github.com/weft-mpi/weft/transport/fabrics"
)

const runHelp = `Start N ranks of PROGRAM, on this machine or on several hosts, and wait for their end.

PROGRAM is a command in PATH, a file, or a Go package. A Go package is a folder with Go files or a file
that ends in .go; weft run builds it first, into the user's cache folder, and does not link it again
until it changes. A relative name is relative to the current folder, not to --wdir. Several programs,
separated by ':', make one job.

The exit status is that of the first rank to fail, or 128+n if signal n ended it, and 0 if none failed.
It is 124 after --timeout, 127 if the program is not found, 126 if it cannot be executed, 1 if it does
not build, a host cannot be reached or --stuck-action has ended the job, and 2 if the command line is
invalid. The first failure ends the job, and one line on standard error says which rank failed, and how.

A job that hangs explains itself. When a deadlock is certain, and when no message has moved for the time
of --stuck, a report on standard error says in which call each rank waits, for which rank, and at which
source line.

Signals: INT, TERM, HUP, USR1, USR2, CONT and TSTP go to the ranks. QUIT (kill -QUIT, or Ctrl-\) prints
the report described above, and the job goes on. A second QUIT within two seconds, or the first one if no
rank uses weft, goes to the ranks: each rank that is a Go program writes the stacks of its goroutines and
ends. A second TERM, or a second INT within a second, kills the ranks. weft run reports a rank that is
stopped by something else.

Lines of different ranks never mix, up to the length of --max-line. The beginning of a line is shown if
nothing follows it for 100 ms (on a terminal, or from a single rank) or for a second (elsewhere); in a
file it is written only with the rest of the line. If the output cannot be written, the job fails with
status 1. If its reader goes away, the job ends with status 141. If its reader takes nothing for 2 s while
the job ends, the remaining output is dropped.

weft run uses the processors that the affinity mask and the control group allow. Each rank gets its share
of the cores, or --cores-per-rank, with all their hardware threads, and GOMAXPROCS is set to their
number. If the number of ranks is a multiple of the number of cores, the ranks are bound evenly, unless
another weft run of the same user has bound its ranks to some of these cores. --bind-to core gives each
rank one core, and none to which another weft run of the same user has bound its ranks; numa and socket
spread the ranks over the machine; from a list such as 0-3,8, each rank in turn gets one processor.
--cq-cores auto gives each rank one more core, which makes progress while the rank computes, if there are
twice as many cores as ranks; a list names one such core for each rank. No rank runs on these cores.`

// newRun returns the command that starts a job.
func newRun() *cobra.Command {
	var all jobOptions
	var first appOptions
	var showVersion bool
	cmd := &cobra.Command{
		Use:   "run [options] PROGRAM [ARG…] [: [options] PROGRAM [ARG…]]…",
		Short: "Start a program as the ranks of a job",
		// what others call it
		SuggestFor: []string{"exec", "start", "launch", "mpirun", "mpiexec", "srun"},
		Long:       runHelp + "\n\n" + foreignHelp(),
		Example: "  weft run -n 4 ./examples/heat\n  weft run -n 2 -l hostname\n  weft run -n 1 " +
			"./coordinator : -n 3 ./worker --fast",
		RunE: func(cmd *cobra.Command, args []string) error {
			if showVersion {
				return printVersion(cmd)
			}
			job, err := all.job()
			if err == nil {
				job.Apps, err = apps(cmd, &first, args)
			}
			if err != nil {
				return usageError{err}
			}
			if hint := misplacedRanks(&job.Apps[0]); hint != "" {
				warn(hint)
			}
			if job.Hosts == nil {
				if err := fillRanks(job.Apps, job.CoresPerRank); err != nil {
					return err
				}
			}
			err = run(cmd, job)
			if hint := misplacedHosts(cmd.Flags(), job.Apps); hint != "" && err != nil {
				warn(hint)
			}
			return err
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().SortFlags = false
	addGroup(cmd, "Ranks", "weft run -n 4 -x MODE=fast ./program", first.define)
	addGroup(cmd, "Hosts", "weft run --host a:4,b:4 --stage ./program", all.defineHosts)
	addGroup(cmd, "Cores", "weft run -n 4 --bind-to core --report-bindings ./program", all.defineCores)
	addGroup(cmd, "Output", "weft run -n 4 --label --timeout 90s ./program", all.defineOutput)
	addGroup(cmd, "Network", "weft run --host a,b --iface eth0,eth1 --lanes 4 ./program", all.defineNetwork)
	addGroup(cmd, "Failures", "weft run --hostfile hosts --restarts 3 --min 6 ./program", all.defineFailures)
	addGroup(cmd, "Measuring", "weft run -n 4 --trace job.pftrace ./program", all.defineMeasuring)
	cmd.Flags().BoolVarP(&showVersion, "version", "v", false, "print the version")
	return cmd
}

func run(cmd *cobra.Command, job launcher.Job) error {
	job.Sole = true
	err := launcher.Run(cmd.Context(), job)
	var failure *launcher.Failure
	if err != nil && !errors.As(err, &failure) {
		warn(err.Error())
	}
	if err != nil {
		return exitStatus(launcher.ExitStatus(err))
	}
	return nil
}

// appOptions are the options of each program of a job.
type appOptions struct {
	ranks int
	env   []string
	dir   string
}

func (o *appOptions) define(flags *pflag.FlagSet) {
	flags.VarP(number{&o.ranks, 1, maxNumber}, "np", "n",
		"number of ranks (default: the number of usable cores, or of slots with --host)")
	flags.StringArrayVarP(&o.env, "x", "x", nil,
		"`NAME[=VALUE]`: what to set in the ranks' environment; NAME alone passes on the value that is "+
			"set here")
	flags.StringVar(&o.dir, "wdir", "", "`FOLDER`: where to start the ranks")
}

// app returns the program described by these options and the words after them.
func (o *appOptions) app(words []string) (launcher.App, error) {
	app := launcher.App{Ranks: o.ranks, Dir: o.dir}
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
	return app, nil
}

// misplacedRanks returns what to say if no number of ranks is given, and the program's arguments begin with
// one.
func misplacedRanks(app *launcher.App) string {
	if app.Ranks > 0 || len(app.Args) == 0 {
		return ""
	}
	option, value, inOne := strings.Cut(app.Args[0], "=")
	words := app.Args[0]
	if !inOne && len(app.Args) > 1 {
		value = app.Args[1]
		words += " " + value
	}
	if _, err := strconv.Atoi(value); err != nil || !slices.Contains([]string{"-n", "-np", "--np"}, option) {
		return ""
	}
	return fmt.Sprintf("%s is an argument of %s; a number of ranks stands before the program: "+
		"weft run %[1]s %[2]s", words, app.Program)
}

// misplacedHosts returns what to say of a job that has failed, if no hosts are given, and an argument of a
// program names some. Programs may well have such an option, so nothing is said of a job that succeeds; and
// -H and -f stand for too much else.
func misplacedHosts(flags *pflag.FlagSet, apps []launcher.App) string {
	if flags.Changed("host") || flags.Changed("hostfile") {
		return ""
	}
	for _, app := range apps {
		for _, arg := range app.Args {
			option, _, _ := strings.Cut(arg, "=")
			name := strings.TrimPrefix(strings.TrimPrefix(option, "-"), "-")
			if len(name) < 2 || name == option {
				continue
			}
			if other, ok := aliases[name]; ok {
				name = other
			}
			if name == "host" || name == "hostfile" {
				return fmt.Sprintf("%s is an argument of %s; if it is meant for weft run, it stands before "+
					"the program: weft run --%s … %[2]s", option, app.Program, name)
			}
		}
	}
	return ""
}

// fillRanks sets the missing numbers of ranks: usable cores divided by cores per rank.
func fillRanks(apps []launcher.App, coresPerRank int) error {
	for i := range apps {
		if apps[i].Ranks > 0 {
			continue
		}
		machine, err := topology.Read()
		if err != nil {
			return err
		}
		apps[i].Ranks = max(1, machine.UsableCores()/max(coresPerRank, 1))
	}
	return nil
}

// apps parses the programs of the job; words are the arguments after the first program's options.
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
		if words, err = respell(flags, words[end+1:], warn); err != nil {
			return nil, fmt.Errorf("%w (after a ':' only -n, -x and --wdir can stand)", err)
		}
		if err := flags.Parse(words); err != nil {
			return nil, optionError(err)
		}
		words = flags.Args()
	}
}

// jobOptions are the options of the job as a whole.
type jobOptions struct {
	bind, cq, stdin, fabric, iface, launcher, output, phases string
	host, hostfile                                           given
	mapBy, starter, agentPath                                string
	fanOut, endpoints                                        int
	timeout                                                  timeLimit
	stuck                                                    stuckLimit
	stuckAction                                              string
	survive                                                  bool
	restarts                                                 int
	min                                                      int
	profile, trace                                           string
	report                                                   bool
	cores                                                    int
	lanes                                                    int
	maxLine                                                  int
	label, verbose, reportBindings, stats, tls, reconnect    bool
	dryRun, json, stage                                      bool
}

// defineHosts defines the options that say where the ranks run, and what starts them there.
func (o *jobOptions) defineHosts(flags *pflag.FlagSet) {
	flags.Var(&o.host, "host",
		"`LIST`: hosts to run on, such as a:4,b:4; a host without :N has as many slots as cores")
	flags.Var(&o.hostfile, "hostfile", "`FILE`: one host per line, as \"name:4\" or \"name slots=4\"")
	flags.StringVar(&o.mapBy, "map-by", "",
		"`core|node|ppr:N:node`: fill a host's slots first, one rank to each host in turn, or N to each")
	flags.Var((*perNode)(&o.mapBy), "ppn", "number of ranks on each host: --map-by ppr:N:node")
	flags.StringVar(&o.launcher, "launcher", "",
		"`local|ssh|slurm|sge|lsf|pbs`: what starts weft on other hosts (default: what is detected)")
	flags.StringVar(&o.starter, "starter", "",
		"`COMMAND`: what starts weft on another host, which it names as {host} (default: ssh)")
	flags.StringVar(&o.agentPath, "agent-path", "",
		"`FILE`: path of weft on the other hosts (default: the same as here)")
	flags.Var(number{&o.fanOut, 1, maxNumber}, "fan-out",
		"number of hosts on which weft run, and each agent, starts agents directly (default 64)")
	flags.BoolVar(&o.stage, "stage", false,
		"copy programs to the hosts that do not have them, and remove the copies afterwards")
}

// defineCores defines the options that bind ranks to cores.
func (o *jobOptions) defineCores(flags *pflag.FlagSet) {
	flags.StringVar(&o.bind, "bind-to", "",
		"`none|core|numa|socket|CPULIST`: what each rank is bound to (default: core, if there are enough)")
	flags.Var(number{&o.cores, 1, maxNumber}, "cores-per-rank",
		"number of cores for each rank (default: its share of the free cores, or 1 with --bind-to core)")
	flags.StringVar(&o.cq, "cq-cores", "none",
		"`none|auto|CPULIST`: cores that serve completion queues, one for each rank or, where they suffice, "+
			"for each endpoint of each rank")
	flags.Var(endpoints{&o.endpoints}, "endpoints",
		"number of endpoints of each rank, 1 to 8, or auto for one for each core that every rank has "+
			"(default: WEFT_ENDPOINTS, or auto)")
	flags.BoolVar(&o.reportBindings, "report-bindings", false,
		"print the process id and the processors of each rank, and those of its completion handlers")
}

// defineOutput defines the options of standard input, of output, and of what weft itself prints.
func (o *jobOptions) defineOutput(flags *pflag.FlagSet) {
	flags.BoolVarP(&o.label, "label", "l", false, "put [rank] before every line of output")
	flags.Var((*size)(&o.maxLine), "max-line",
		"length up to which lines are kept whole, such as 4M (default 1M)")
	flags.StringVar(&o.output, "output-dir", "",
		"write each rank's output to `FOLDER`/rank.N.out and rank.N.err instead")
	flags.StringVar(&o.stdin, "stdin", "0", "`all|none|RANK`: who reads standard input")
	flags.BoolVar(&o.verbose, "verbose", false, "print each step of the start with its time")
	flags.BoolVar(&o.dryRun, "dry-run", false,
		"find hosts and programs, print which cores of which host the ranks would get, and start no rank")
	flags.BoolVar(&o.json, "json", false, "with --dry-run: print the map as JSON")
}

// defineNetwork defines the options that say how messages travel.
func (o *jobOptions) defineNetwork(flags *pflag.FlagSet) {
	flags.StringVar(&o.fabric, "fabric", "",
		"`NAME`: fabric that carries the messages: "+fabrics.Help())
	flags.StringVar(&o.phases, "phases", "",
		"`LIST`: slot sizes in bytes that a channel starts with and can grow to, such as 640,16448,65600")
	flags.StringVar(&o.iface, "iface", "",
		"`LIST`: network interfaces, by name or CIDR, such as eth0,eth1 or 10.0.0.0/8; lanes use them all")
	flags.Var(number{&o.lanes, 1, setting.MaxLanes}, "lanes",
		"number of TCP connections to each peer, 1 to 8, which share its messages; if one is lost, the "+
			"others resend what it carried (default 1)")
	flags.BoolVar(&o.reconnect, "reconnect", false,
		"reconnect when the only connection to a peer is lost, instead of giving the peer up")
	flags.BoolVar(&o.tls, "tls", false, "encrypt connections between ranks with TLS 1.3")
}

// defineFailures defines the options for what happens when a rank fails or hangs.
func (o *jobOptions) defineFailures(flags *pflag.FlagSet) {
	flags.Var(&o.timeout, "timeout",
		"end the job after this `TIME`, such as 90s or 2h; a bare number is in seconds")
	o.stuck = defaultStuck
	flags.Var(&o.stuck, "stuck",
		"report what the ranks wait for when no message has moved for this `TIME`; 0 for never")
	flags.StringVar(&o.stuckAction, "stuck-action", "report",
		"`report|abort|abort-unmoved`: whether a certain deadlock is only reported, or also ends the job; "+
			"abort-unmoved ends it without proof, too, when no message has moved for as long as --stuck")
	flags.BoolVar(&o.survive, "survive", false,
		"go on when a rank fails: calls that need it return an error, and the other ranks may go on")
	flags.Var(number{&o.restarts, 0, maxNumber}, "restarts",
		"maximum number of times to start the job again, on the remaining hosts, when a rank or a host "+
			"is lost")
	flags.Var(number{&o.min, 1, maxNumber}, "min",
		"with --restarts: the minimum number of ranks when the remaining hosts have fewer slots (default: "+
			"the number of ranks does not change)")
}

// defineMeasuring defines the options for what the ranks measure.
func (o *jobOptions) defineMeasuring(flags *pflag.FlagSet) {
	flags.BoolVar(&o.stats, "stats", false, "print the counters of each rank's channels at the end")
	flags.BoolVar(&o.report, "report", false,
		"print at the end how often each rank made calls at each source line, and how long they took")
	flags.StringVar(&o.profile, "profile", "",
		"`cpu|heap|block|mutex[=FILE]`: profile the ranks into one file (default: weft.KIND.pprof), for "+
			"go tool pprof")
	flags.StringVar(&o.trace, "trace", "",
		"`FILE`: write a trace of all ranks, in Perfetto's format; weft show sums it up")
}

// check returns an error if one option makes another useless.
func (o *jobOptions) check() error {
	if o.label && o.output != "" {
		return errors.New("--label marks the ranks' lines where they come together, and with " +
			"--output-dir each rank has files " +
			"of its own: leave one out")
	}
	if o.survive && o.restarts > 0 {
		return errors.New("--survive goes on without the ranks that are lost, and --restarts starts all of " +
			"them again: leave one out")
	}
	if o.json && !o.dryRun {
		return errors.New("--json prints the map of --dry-run: add --dry-run")
	}
	if o.min > 0 && o.restarts == 0 {
		return errors.New("--min says how many ranks there are at least after a restart: add --restarts")
	}
	return nil
}

// checkNetwork returns an error if an option concerns the network and no connection goes over it, and warns
// if there may be none.
func (o *jobOptions) checkNetwork(hosts int) error {
	if hosts > 1 && isLoopback(o.iface) {
		warn(fmt.Sprintf("--iface %s: ranks of other hosts cannot be reached at a loopback interface",
			o.iface))
	}
	var concern []string
	for _, option := range []struct {
		name  string
		given bool
	}{{"--tls", o.tls}, {"--lanes", o.lanes > 1}, {"--reconnect", o.reconnect}} {
		if option.given {
			concern = append(concern, option.name)
		}
	}
	if len(concern) == 0 {
		return nil
	}
	names, verb := strings.Join(concern, ", "), "concerns"
	if len(concern) > 1 {
		verb = "concern"
	}
	var network []string
	for _, f := range fabrics.All {
		switch {
		case !f.Local && f.Name == o.fabric:
			return nil
		case f.Local && f.Name == o.fabric:
			return fmt.Errorf("%s %s connections over a network, and with --fabric %s there are none: "+
				"leave one out", names, verb, f.Name)
		case !f.Local:
			network = append(network, f.Name)
		}
	}
	if hosts > 1 {
		return nil
	}
	warn(fmt.Sprintf("%s %s only connections over a network, and ranks of one host use shared memory "+
		"where they can; --fabric %s has all of them use the network", names, verb,
		strings.Join(network, " or ")))
	return nil
}

// isLoopback reports whether a list of interfaces and networks has a loopback one.
func isLoopback(list string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(name string) bool {
		network, err := netip.ParsePrefix(strings.TrimSpace(name))
		return strings.TrimSpace(name) == "lo" || err == nil && network.Addr().IsLoopback()
	})
}

func (o *jobOptions) job() (launcher.Job, error) {
	job := launcher.Job{
		Label: o.label, OutputDir: o.output, Timeout: time.Duration(o.timeout), Verbose: o.verbose,
		ReportBindings: o.reportBindings, MaxLine: o.maxLine, DryRun: o.dryRun, JSON: o.json,
		Stage: o.stage, FanOut: o.fanOut,
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Stuck: time.Duration(o.stuck), Survive: o.survive,
		Restarts: o.restarts, Min: o.min,
	}
	var err error
	if job.StuckAction, err = launcher.ParseStuckAction(o.stuckAction); err != nil {
		return job, fmt.Errorf("--stuck-action %q: %w", o.stuckAction, err)
	}
	if err := o.check(); err != nil {
		return job, err
	}
	if err := o.measurements(&job); err != nil {
		return job, err
	}
	if o.bind != "" {
		if job.BindTo, err = launcher.ParseBinding(o.bind); err != nil {
			return job, fmt.Errorf("--bind-to: %w", err)
		}
	}
	job.CoresPerRank, job.Endpoints = o.cores, o.endpoints
	if job.CQCores, err = launcher.ParseCQCores(o.cq); err != nil {
		return job, fmt.Errorf("--cq-cores: %w", err)
	}
	if job.Stdin, err = launcher.ParseInput(o.stdin); err != nil {
		return job, fmt.Errorf("--stdin: %w", err)
	}
	if err := o.hosts(&job); err != nil {
		return job, err
	}
	if err := o.checkNetwork(len(job.Hosts)); err != nil {
		return job, err
	}
	settings, err := o.settings()
	job.Env = append(job.Env, settings...)
	return job, err
}

// settings returns the ranks' settings for these options, as NAME=VALUE.
func (o *jobOptions) settings() (env []string, err error) {
	set := func(s *setting.Setting, value string) { env = append(env, s.Name+"="+value) }
	if o.fabric != "" {
		if err := fabrics.Check(o.fabric); err != nil {
			return nil, fmt.Errorf("--fabric: %w", err)
		}
		set(setting.Fabric, o.fabric)
	}
	if o.phases != "" {
		phases, err := channel.ParsePhases(o.phases)
		if err == nil {
			err = channel.Config{Phases: phases}.Check()
		}
		if err != nil {
			return nil, fmt.Errorf("--phases %s: %w", o.phases, err)
		}
		set(setting.Phases, o.phases)
	}
	if o.stats {
		set(setting.Statistics, "1")
	}
	if o.tls {
		set(setting.TLS, "on")
	}
	if o.iface != "" {
		set(setting.Interface, o.iface)
	}
	if o.lanes > 0 {
		set(setting.Lanes, strconv.Itoa(o.lanes))
	}
	if o.reconnect {
		set(setting.Reconnect, "on")
	}
	return env, nil
}

// traceMemory is the memory for a rank's trace, unless WEFT_TRACE sets it.
const traceMemory = "16M"

// profiles are the values of --profile.
var profiles = []string{"cpu", "heap", "block", "mutex"}

// measurements parses the options for what the ranks measure and report at their end.
func (o *jobOptions) measurements(job *launcher.Job) error {
	if job.Report = o.report; o.report {
		job.Env = append(job.Env, setting.Report.Name+"=1")
	}
	if job.Trace = o.trace; o.trace != "" && os.Getenv(setting.Trace.Name) == "" {
		job.Env = append(job.Env, setting.Trace.Name+"="+traceMemory)
	}
	if o.profile == "" {
		return nil
	}
	kind, file, named := strings.Cut(o.profile, "=")
	if !slices.Contains(profiles, kind) {
		return fmt.Errorf("--profile %q: it is %s, and =FILE may follow", o.profile,
			strings.Join(profiles, ", "))
	}
	if !named {
		file = "weft." + kind + ".pprof"
	}
	job.Profile, job.ProfileFile = kind, file
	job.Env = append(job.Env, setting.Profile.Name+"="+kind)
	return nil
}
