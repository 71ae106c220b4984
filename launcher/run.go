package launcher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/pmi"
)

const (
	defaultGrace = 2 * time.Second
	// overdueAfter is how long a rank's process may be gone before its PMI connection is closed for it: a process that has
	// left the rank's group may hold the other end.
	overdueAfter = 300 * time.Millisecond
	// lingerAfter is how long a rank may live after its PMI connection has ended without Finalize.
	lingerAfter = time.Second
	// killTimeout is how long a killed process may take to end. The kernel may keep it for ever.
	killTimeout = 10 * time.Second
	// insist is within how much time a second interrupt kills.
	insist = time.Second
)

// Run starts the job and returns when it is over and nothing of it is left. The error says why the job could not be started, and is
// a *RequestError or a *ProgramError where the caller is to blame; or it is the *Failure of a rank, of which standard error
// has been told as soon as it was known. When ctx ends, the job is ended.
func Run(ctx context.Context, job Job) error {
	if err := job.check(); err != nil {
		return err
	}
	j, err := newRunning(job)
	if err != nil {
		return err
	}
	defer j.clean()
	if err := j.prepare(ctx); err != nil {
		return err
	}
	return j.loop(ctx)
}

// ExitStatus is the status that a command which ran a job should exit with, given what Run returned.
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

// An event is what the goroutines around the loop tell it.
type event struct {
	kind   eventKind
	rank   *rank
	status syscall.WaitStatus
	err    error
}

type eventKind uint8

const (
	rankEnded    eventKind = iota // its process, with this status
	rankSilent                    // its PMI connection, with this error if it was a bad end
	rankDrained                   // its output is through
	rankOverdue                   // its process has ended some time ago
	rankLingers                   // its PMI connection has ended some time ago
	barrierMoved                  // a rank has come to a barrier or finalized
	allStarted                    // no further rank will be started; with the error that kept it from that
)

// running is a job under way. Its fields belong to the loop unless they say otherwise.
type running struct {
	job     Job
	id      string
	host    string
	secret  [secretSize]byte
	out     *sink
	err     *sink
	null    *os.File
	input   *input // nil when no copying is needed
	keeper  *keeper
	reaper  *sys.Reaper
	service *pmi.Service
	conns   []net.Conn
	place   placement
	claims  *claims
	machine *topology.Machine
	ranks   []*rank
	byPID   sync.Map // of each started rank
	temp    string   // the folder of what was built; empty when nothing was

	events  chan event
	done    chan struct{} // closed when the loop is over
	release chan struct{} // closed when the starting thread may end
	halt    atomic.Bool   // no further rank is to be started

	started   bool
	startErr  error
	verdict   verdict
	cause     *Failure
	forwarded map[syscall.Signal]bool
	settle    <-chan time.Time // when the best explanation so far is the cause
	grace     <-chan time.Time // when SIGKILL follows SIGTERM
	giveUp    <-chan time.Time // when what SIGKILL has not ended is left to the kernel
	killed    bool
	lastInt   time.Time
}

func newRunning(job Job) (*running, error) {
	j := &running{
		job: job, secret: newSecret(), forwarded: make(map[syscall.Signal]bool), claims: newClaims(claimPrefix),
		events: make(chan event, 64), done: make(chan struct{}), release: make(chan struct{}),
	}
	if j.job.Grace == 0 {
		j.job.Grace = defaultGrace
	}
	var id [16]byte
	rand.Read(id[:])
	j.id = hex.EncodeToString(id[:])
	if j.host, _ = os.Hostname(); j.host == "" {
		j.host = "this host"
	}
	var err error
	if j.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	j.out, j.err = j.sinks()
	if j.keeper, err = startKeeper(j.id); err != nil {
		j.null.Close()
		return nil, err
	}
	return j, nil
}

// sinks are the ends of standard output and error. Where both are one file, such as a terminal, they are one sink, so that an
// unfinished line of one is not continued by the other.
func (j *running) sinks() (out, err *sink) {
	file := func(f *os.File) *os.File {
		if f == nil {
			return j.null
		}
		return f
	}
	out, err = &sink{file: file(j.job.Out)}, &sink{file: file(j.job.Err)}
	a, err1 := out.file.Stat()
	b, err2 := err.file.Stat()
	if err1 == nil && err2 == nil && os.SameFile(a, b) {
		return out, out
	}
	return out, err
}

// notice tells the user something, on a line of its own.
func (j *running) notice(text string, args ...any) {
	j.err.write(nil, fmt.Appendf(nil, "weft: "+text+"\n", args...))
}

// prepare finds the programs, places the ranks, and makes what they share.
func (j *running) prepare(ctx context.Context) (err error) {
	if err := j.placeRanks(); err != nil {
		return err
	}
	for i := range j.job.Apps {
		app := &j.job.Apps[i]
		file, err := program(ctx, app.Program, j.err.file, j.tempDir)
		if err != nil {
			return err
		}
		for range app.Ranks {
			j.ranks = append(j.ranks, &rank{id: len(j.ranks), app: app, file: file})
		}
	}
	if j.job.Output != "" {
		if err := os.MkdirAll(j.job.Output, 0o777); err != nil {
			return requestErrorf("the folder for output: %v", err)
		}
	}
	if j.reaper, err = sys.NewReaper(); err != nil {
		return err
	}
	for _, note := range j.place.notes {
		j.notice("%s", note)
	}
	n := len(j.ranks)
	if in := j.job.In; in != nil && (j.job.Stdin == InputAll || j.job.Stdin >= 0 && sys.IsTerminal(int(in.Fd()))) {
		if j.input, err = newInput(int(in.Fd())); err != nil {
			return err
		}
	}
	config := pmi.Config{
		KVSName: "weft_" + j.id[:8],
		Appnum:  make([]int, n),
		Preset:  []string{"PMI_process_mapping", fmt.Sprintf("(vector,(0,1,%d))", n)},
	}
	for r, app := 0, 0; app < len(j.job.Apps); app++ {
		for range j.job.Apps[app].Ranks {
			config.Appnum[r] = app
			r++
		}
	}
	j.conns = make([]net.Conn, n)
	j.service = pmi.NewService(config, j.conns)
	return nil
}

// placeRanks decides where the ranks run, and claims the processors that they get for themselves.
func (j *running) placeRanks() (err error) {
	if j.machine, err = topology.Read(); err != nil {
		return err
	}
	in := placing{machine: j.machine, taken: make(map[int]bool), binding: j.job.Binding, cq: j.job.CQCores}
	for _, app := range j.job.Apps {
		in.ranks += app.Ranks
	}
	for {
		if j.place, err = place(in); err != nil {
			return err
		}
		known := len(in.taken)
		for _, cpu := range j.claims.hold(j.place.claims) {
			in.taken[cpu] = true
		}
		if len(in.taken) == known {
			return nil
		}
	}
}

// tempDir is the folder for what is built. It goes away with the job, even if the launcher is killed.
func (j *running) tempDir() (string, error) {
	if j.temp == "" {
		name := filepath.Join(os.TempDir(), "weft-"+j.id)
		j.keeper.remove(name)
		if err := os.Mkdir(name, 0o700); err != nil {
			return "", err
		}
		j.temp = name
	}
	return os.MkdirTemp(j.temp, "")
}

// clean undoes what newRunning and prepare have done, after the last process has ended.
func (j *running) clean() {
	close(j.done)
	close(j.release)
	killMarked(j.id)
	for _, r := range j.ranks {
		if j.input != nil {
			j.input.remove(r.id)
		}
		if r.pid == 0 {
			for _, s := range r.streams {
				s.pipe.Close()
			}
		}
	}
	if j.input != nil {
		j.input.close()
	}
	for _, c := range j.conns {
		if c != nil {
			c.Close()
		}
	}
	if j.reaper != nil {
		j.reaper.Close()
	}
	j.claims.drop()
	if j.temp != "" {
		os.RemoveAll(j.temp)
	}
	j.keeper.dismiss()
	j.null.Close()
}

// tell hands the loop an event, unless the loop is over.
func (j *running) tell(e event) {
	select {
	case j.events <- e:
	case <-j.done:
	}
}

func (j *running) later(d time.Duration, e event) { time.AfterFunc(d, func() { j.tell(e) }) }

// start starts the ranks on a thread of its own, which lives as long as they do: the kernel kills them when it ends.
func (j *running) start() {
	runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
	err := j.startAll()
	j.tell(event{kind: allStarted, err: err})
	<-j.release
}

// timerSlack is by how much the timers of a rank with a core of its own may be late. Go's system monitor sleeps for 20 µs at a time, for the
// first milliseconds after anything has blocked: with the system's slack it takes a seventh of the only core that the rank has (ADR 0009).
const timerSlack = time.Millisecond

func (j *running) startAll() error {
	if j.place.ownCore {
		if err := sys.SetTimerSlack(timerSlack); err != nil {
			return fmt.Errorf("timer slack: %w", err)
		}
	}
	base := append(inherited(), j.job.Env...)
	for _, r := range j.ranks {
		if j.halt.Load() {
			return nil
		}
		if err := j.startOne(r, base); err != nil {
			return err
		}
	}
	return nil
}

func (j *running) startOne(r *rank, base []string) error {
	files, err := j.connect(r)
	if err != nil {
		return err
	}
	defer files.closeAll()
	if j.place.cpus != nil {
		if err := sys.SetAffinity(j.place.cpus[r.id]); err != nil {
			return fmt.Errorf("binding rank %d: %w", r.id, err)
		}
		defer sys.SetAffinity(j.machine.CPUs)
	}
	child := sys.Child{
		Path: r.file, Args: append([]string{r.app.Program}, r.app.Args...), Dir: r.app.Dir, Files: files.theirs,
		Env:      rankEnv(base, j.id, r.id, len(j.ranks), &j.place, r.app),
		OwnGroup: true, DiesWithThread: true,
	}
	// Until pid is set nobody signals the rank, so a signal that comes now must wait for it.
	r.mu.Lock()
	r.pid, err = child.Start()
	r.mu.Unlock()
	if err != nil {
		return startError(r, err)
	}
	j.keeper.watch(r.pid)
	j.byPID.Store(r.pid, r)
	go j.serve(r)
	go j.carry(r)
	if err := j.reaper.Watch(r.pid); err != nil {
		j.tell(event{kind: rankEnded, rank: r, status: r.bury(j.keeper)})
		return err
	}
	if j.job.Verbose {
		j.notice("rank %d has pid %d: %s", r.id, r.pid, strings.Join(append([]string{r.file}, r.app.Args...), " "))
	}
	if j.job.Report {
		j.notice("rank %d: pid %d on %s, %s, %s", r.id, r.pid, j.host, j.place.boundTo(r.id), j.place.handledOn(r.id))
	}
	return nil
}

// startError tells why the kernel would not execute a program that seemed fit.
func startError(r *rank, err error) error {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return &ProgramError{126, r.app.Program + ": not a program for this machine, nor a script that begins with #!"}
	case errors.Is(err, syscall.ENOENT):
		return &ProgramError{127, r.app.Program + ": its interpreter (the file after #!, or the dynamic loader) does not exist"}
	case errors.Is(err, syscall.EACCES):
		return &ProgramError{126, r.app.Program + ": " + err.Error()}
	case errors.Is(err, syscall.E2BIG):
		return &ProgramError{126, r.app.Program + ": arguments and environment are too long"}
	case errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("rank %d cannot be started: %w: the limit of processes is reached (ulimit -u)", r.id, err)
	}
	return fmt.Errorf("rank %d cannot be started: %w", r.id, err)
}
