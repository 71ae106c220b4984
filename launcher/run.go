package launcher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/printable"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/build"
	"github.com/weft-mpi/weft/launcher/internal/local"
	"github.com/weft-mpi/weft/launcher/internal/output"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

const (
	defaultGrace = 2 * time.Second
	secretSize   = 32
	// timerSlack is the timer slack of a rank that has one core, or shares cores with others. Go's system
	// monitor sleeps for 20 µs at a time, for the first milliseconds after anything has blocked: with the
	// system's slack it uses a seventh of the rank's only core, and the monitors of many ranks take most time
	// slices of the cores that they share (ADR 0069).
	timerSlack = time.Millisecond
	// flushTimeout bounds the wait, at the end of a job or of an attempt, until all output is written.
	flushTimeout = 2 * time.Second
)

// Failure is the cause of a job's failure: the first one in time, as far as can be known. Its fields are:
//
//	How     How
//	Rank    int            // the failed rank; -1 for none
//	PID     int            // its process
//	Host    string         // where it ran
//	Program string         // its program
//	Status  int            // exit status of Exited and Aborted; for Stopped, of the rank that has failed
//	Signal  syscall.Signal // of Killed, Interrupted, Stopped
//	Detail  string         // the rest of the message, for failures that those above do not describe
//
// Error returns the line that Run has printed, and ExitStatus the status with which a launcher should exit.
type Failure = supervisor.Failure

// How says how a job failed.
type How = supervisor.How

const (
	Exited     = supervisor.Exited     // the rank ended with a status other than 0
	Killed     = supervisor.Killed     // a signal ended the rank
	Unfinished = supervisor.Unfinished // the rank ended with status 0 between Init and Finalize
	Stranded   = supervisor.Stranded   // another rank waits in a barrier that this one can no longer join
	Aborted    = supervisor.Aborted    // the rank asked for the end of the job
	Disturbed  = supervisor.Disturbed  // the rank broke the PMI protocol
	Silent     = supervisor.Silent     // the rank left PMI without Finalize, and goes on
	// a signal stopped the rank, and meanwhile another one failed, or waited for it in a barrier for long
	Stopped     = supervisor.Stopped
	Interrupted = supervisor.Interrupted // a signal that the launcher passed on ended the rank
	TimedOut    = supervisor.TimedOut    // the job exceeded Job.Timeout
	Cancelled   = supervisor.Cancelled   // the context of Run ended
	OutputLost  = supervisor.OutputLost  // output could not be written
	ReaderGone  = supervisor.ReaderGone  // the reader of the output has closed it
	Deadlocked  = supervisor.Deadlocked  // nothing can release the ranks, or nothing has moved (StuckAction)
	HostLost    = supervisor.HostLost    // the rank's host is lost, and the job goes on without the rank
	AgentLost   = supervisor.AgentLost   // a host is lost, and with it all that is known of its ranks
	RanksLost   = supervisor.RanksLost   // the job has gone on without some of its ranks, to its end
)

// Watchdog runs the watchdog if this process is the watchdog's, and does not return then; otherwise it
// returns at once. The main function of a program that calls Run must call it first: the watchdog is the
// program itself, started again.
func Watchdog() { local.WatchdogMain() }

// Run runs the job, and returns when it is over and nothing of it is left. The error says why the job could
// not be started (a *RequestError or a *ProgramError if the caller is to blame), or it is the *Failure that
// ended the job, which has been printed on standard error as soon as it was known. When ctx ends, the job is
// ended.
//
// While it runs, Run handles the signals that end, stop and continue programs.
func Run(ctx context.Context, spec Job) error {
	if err := spec.check(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	for _, s := range passedOn {
		// Signals that were ignored when the launcher was started, as by nohup, stay ignored.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	past := new(history)
	for {
		again, err := runOnce(ctx, spec, past, signals)
		if !again {
			return err
		}
	}
}

// showPlan shows the plan, if no rank is to be started.
func (j *job) showPlan() error {
	if j.Out == nil {
		return nil
	}
	if j.JSON {
		return display{&j.nodes, &j.programs}.writeMap(j.Out)
	}
	_, err := fmt.Fprintln(j.Out, printable.Text(display{&j.nodes, &j.programs}.picture()))
	return err
}

// tellStep reports how long after the beginning a step was done.
func (j *job) tellStep(text string, args ...any) {
	if j.Verbose {
		j.output.Notice("%7.1f ms  %s", float64(time.Since(j.began).Microseconds())/1000,
			fmt.Sprintf(text, args...))
	}
}

// ExitStatus returns the status with which a command that ran a job should exit, given what Run returned.
func ExitStatus(err error) int {
	var failure *Failure
	var program *ProgramError
	var request *RequestError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failure):
		return failure.ExitStatus()
	case errors.As(err, &program):
		return program.Status
	case errors.As(err, &request):
		return 2
	}
	return 1
}

// passedOn are the signals that are passed on to the ranks. SIGURG is not one of them: the Go runtime uses it
// for itself.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGTSTP,
}

// job is a running job: it connects the supervisor with the agents and the user.
type job struct {
	Job
	past    past
	id      string
	began   time.Time
	host    string
	null    *os.File
	output  *output.Output
	input   *input // nil where ranks get the launcher's own descriptor, or none
	local   *local.Agent
	planner *planner

	programs  programs
	nodes     nodes
	live      liveView
	hang      hangWatch
	records   records
	artifacts artifacts
	observers []observer // live, hang, records and artifacts
	notYet    int        // nodes whose ranks have not all been started
	events    chan agent.Event
	over      chan struct{} // closed when no more events are wanted
}

func newJob(spec Job, earlier *history) (_ *job, err error) {
	j := &job{
		Job: spec, began: time.Now(),
		events: make(chan agent.Event), over: make(chan struct{}),
	}
	j.Apps = slices.Clone(spec.Apps)
	j.past = past{history: earlier, spec: &j.Job}
	j.programs.apps = j.Apps
	j.OutputDir = earlier.outputFolder(spec.OutputDir)
	// Each CPU profile of a rank begins where the previous one ended.
	j.artifacts.keepAll[snapshot.Profile] = spec.Profile == "cpu"
	j.programs.dir, _ = os.Getwd()
	if j.Grace == 0 {
		j.Grace = defaultGrace
	}
	var id [16]byte
	rand.Read(id[:])
	j.id = hex.EncodeToString(id[:])
	if j.host, _ = os.Hostname(); j.host == "" {
		j.host = "this host"
	}
	if j.planner, err = newPlanner(); err != nil {
		return nil, err
	}
	if j.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	orNull := func(f *os.File) *os.File {
		if f == nil {
			return j.null
		}
		return f
	}
	if j.output, err = output.New(orNull(j.Out), orNull(j.Err)); err != nil {
		j.null.Close()
		return nil, err
	}
	j.past.output = j.output
	if j.local, err = local.New(local.Options{Job: j.id, Stdin: j.In, Sole: j.Sole}); err != nil {
		j.output.Close()
		j.null.Close()
		return nil, err
	}
	return j, nil
}

// close undoes newJob and prepare, after the last process has ended.
func (j *job) close() {
	close(j.over)
	j.live.server.Close()
	closeAll(j.nodes.all)
	j.local.Close()
	if j.input != nil {
		j.input.close()
	}
	j.planner.locks.Release()
	j.output.Flush(flushTimeout)
	j.output.Close()
	j.null.Close()
}

// prepareOrSignal prepares the job, unless a signal or the end of ctx comes first.
func (j *job) prepareOrSignal(ctx context.Context, signals <-chan os.Signal) error {
	ctx, release := j.past.withTimeout(ctx)
	defer release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	prepared := make(chan error, 1)
	go func() { prepared <- j.prepare(ctx) }()
	var interrupted *Failure
	for {
		select {
		case err := <-prepared:
			var end *Failure
			if errors.As(context.Cause(ctx), &end) {
				j.output.Notice("%s", end)
				return end
			}
			return err
		case s := <-signals:
			switch sig := s.(syscall.Signal); {
			case sig == syscall.SIGTSTP:
				suspend()
			case supervisor.Terminating(sig) && interrupted == nil:
				interrupted = &Failure{How: Interrupted, Rank: -1, Signal: sig}
				cancel(interrupted)
			}
		}
	}
}

// suspend stops this process, as SIGTSTP would have. The shell waits for that.
func suspend() { syscall.Kill(os.Getpid(), syscall.SIGSTOP) }

// prepare finds the hosts and the programs, and places the ranks.
func (j *job) prepare(ctx context.Context) (err error) {
	if err := j.past.waitUntilFree(ctx); err != nil {
		return err
	}
	if err := j.setUpNodes(ctx); err != nil {
		return err
	}
	j.tellStep("%s", j.nodes.extent())
	if err := j.findPrograms(ctx); err != nil {
		return err
	}
	j.tellStep("programs are found")
	if err := j.planAll(ctx); err != nil {
		return err
	}
	j.tellStep("every host has planned for its ranks")
	if j.DryRun {
		return nil
	}
	if j.OutputDir != "" {
		if err := os.MkdirAll(j.OutputDir, 0o777); err != nil {
			return requestErrorf("the folder for output: %v", err)
		}
	}
	for _, text := range setting.Unknown(j.environment()) {
		if j.past.isNews(text) {
			j.output.Notice("%s", text)
		}
	}
	// Inside another weft job the variable is that job's.
	if os.Getenv(cqCoresVariable) != "" && os.Getenv("WEFT_JOB") == "" {
		j.output.Notice("%s in the environment is ignored: --cq-cores says which cores the ranks get",
			cqCoresVariable)
	}
	for _, n := range j.nodes.all {
		if len(n.ranks) > 0 && n.plan.CoresPerRank == 0 {
			j.tellStep("host %s: %d ranks share cores, and wait for messages without spinning", n.name,
				len(n.ranks))
		}
		for _, note := range n.plan.Notes {
			if n.remote != nil {
				note = "host " + n.name + ": " + note
			}
			if j.past.isNews(note) {
				j.output.Notice("%s", note)
			}
		}
	}
	j.output.Expect(len(j.programs.of), output.Options{MaxLine: j.MaxLine, Label: j.Label})
	if err := j.openOutputFiles(); err != nil {
		return err
	}
	if j.In != nil && j.copiesInput() {
		if j.input, err = newInput(j.In); err != nil {
			return err
		}
	}
	return nil
}

// openOutputFiles opens the files for the output of ranks of other hosts. Ranks of this host write theirs
// themselves.
func (j *job) openOutputFiles() error {
	if j.OutputDir == "" {
		return nil
	}
	for id, n := range j.nodes.of {
		for stream := range agent.Stream(agent.Streams) {
			if n.remote == nil {
				continue
			}
			file, err := os.Create(j.outputFile(id, stream))
			if err != nil {
				return err
			}
			j.output.ToFile(id, stream, file)
		}
	}
	return nil
}

// copiesInput reports whether the launcher must copy its standard input to ranks, rather than pass its
// descriptor on.
func (j *job) copiesInput() bool {
	if j.Stdin < 0 {
		return j.Stdin == InputAll
	}
	return j.nodes.of[j.Stdin].remote != nil || sys.IsTerminal(int(j.In.Fd()))
}

// findPrograms finds the programs' files, and builds those that are Go packages.
func (j *job) findPrograms(ctx context.Context) error {
	for i := range j.Apps {
		file, found := j.past.found(i)
		if !found {
			var err error
			if file, err = j.findProgram(ctx, &j.Apps[i]); err != nil {
				return err
			}
		}
		j.programs.files = append(j.programs.files, file)
		if j.Stage {
			hash, err := build.ContentHash(file)
			if err != nil {
				return &ProgramError{Status: 126, What: err.Error()}
			}
			j.programs.hashes = append(j.programs.hashes, hash)
		}
		for range j.Apps[i].Ranks {
			j.programs.of = append(j.programs.of, i)
		}
	}
	j.past.files = j.programs.files
	return nil
}

// findProgram finds a program's file. If other hosts have ranks, each host looks for the working folder
// itself, and for the file, unless it can be copied.
func (j *job) findProgram(ctx context.Context, app *App) (string, error) {
	if len(j.nodes.all) > 1 {
		if !build.IsGo(app.Program) && !j.Stage {
			return absolute(app.Program)
		}
	} else if err := app.checkDir(); err != nil {
		return "", err
	}
	return build.Program(ctx, app.Program, j.errFile(), j.local.TempDir)
}

// errFile returns the standard error of programs that the launcher runs for itself.
func (j *job) errFile() *os.File {
	if j.Err == nil {
		return j.null
	}
	return j.Err
}

// start tells the agents to start their ranks.
func (j *job) start() {
	secret := make([]byte, secretSize)
	rand.Read(secret)
	j.notYet = len(j.nodes.all)
	mapping := j.nodes.processMapping()
	for _, n := range j.nodes.all {
		n.agent.Do(j.startCommand(n, secret, mapping))
	}
}

// startCommand returns the Start command for the agent of a node.
func (j *job) startCommand(n *node, secret []byte, mapping string) agent.Start {
	start := agent.Start{
		Secret: slices.Clone(secret), Ranks: make([]agent.Rank, len(n.ranks)),
		PMI: pmi.Config{
			KVSName: "weft_" + j.id[:8], Size: len(j.programs.of), Survive: j.Survive,
			Preset: []string{"PMI_process_mapping", mapping,
				pmi.EndpointsKey, strconv.Itoa(n.plan.Endpoints)},
		},
	}
	if n.plan.OwnCore || n.plan.CoresPerRank == 0 {
		start.TimerSlack = timerSlack
	}
	environ := local.Inherited()
	for i, id := range n.ranks {
		program := j.programs.of[id]
		app, to := &j.Apps[program], &start.Ranks[i]
		*to = agent.Rank{
			ID: id, App: program, Name: app.name(), Path: j.programs.files[program], Args: app.Args,
			Dir: app.Dir, Env: rankEnv(environ, &j.Job, numbers{id, len(j.programs.of), i, len(n.ranks),
				j.past.restarts}, n.plan, app),
			Stdin: j.stdinOf(id),
		}
		if n.plan.CPUs != nil {
			to.CPUs = n.plan.CPUs[i]
		}
		if n.plan.Files != nil {
			to.Path = n.plan.Files[program]
		}
		if n.remote != nil {
			to.Dir = j.programs.dirOn(n, program)
			addSettings(to, environ)
		} else if j.OutputDir != "" {
			for stream := range to.Files {
				to.Files[stream] = j.outputFile(id, agent.Stream(stream))
			}
		}
	}
	return start
}

// addSettings passes weft's settings in the launcher's environment to a rank of another host. Other variables
// of weft, such as a rank's number, belong to another job.
func addSettings(to *agent.Rank, environ []string) {
	for _, v := range environ {
		if isForwarded(v) && !slices.ContainsFunc(to.Env, sameVariable(v)) {
			to.Env = append(to.Env, v)
		}
	}
}

// outputFile returns the file for a rank's stream, with --output-dir.
func (j *job) outputFile(id int, stream agent.Stream) string {
	return j.rankFile(id, [...]string{"out", "err"}[stream])
}

// rankFile returns a file of a rank in the output folder.
func (j *job) rankFile(id int, end string) string {
	width := len(fmt.Sprint(len(j.programs.of) - 1))
	return filepath.Join(j.OutputDir, fmt.Sprintf("rank.%0*d.%s", width, id, end))
}

func (j *job) stdinOf(id int) agent.Stdin {
	switch {
	case j.In == nil || j.Stdin != InputAll && int(j.Stdin) != id:
		return agent.StdinNone
	case j.input == nil:
		return agent.StdinInherit
	}
	j.input.to[id] = true
	return agent.StdinFed
}

// newSupervisor returns the supervisor of the job, which begins now, or began with its first attempt.
func (j *job) newSupervisor() *supervisor.Supervisor {
	if j.past.began.IsZero() {
		j.past.began = time.Now()
	}
	n := len(j.programs.of)
	config := supervisor.Config{
		Ranks: make([]supervisor.Rank, n), Grace: j.Grace, Timeout: j.Timeout, Survive: j.Survive,
	}
	for number, node := range j.nodes.all {
		for _, id := range node.ranks {
			program := j.Apps[j.programs.of[id]].name()
			config.Ranks[id] = supervisor.Rank{Program: program, Host: node.name, Agent: number}
		}
	}
	return supervisor.New(j.past.began, config)
}
