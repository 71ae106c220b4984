package chaostest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// Harness is what jobs are run with.
type Harness struct {
	Weft    string   // the command
	Program string   // what the ranks are: it must call Play
	Environ []string // added to the ranks' environment
	Dir     string   // for the files of jobs, each of which has a folder there; other users can reach it
}

// NewHarness builds weft's command into a folder that other users can reach, too.
func NewHarness(dir string) (Harness, error) {
	sys.UnignoreForChildren()
	if err := os.Chmod(dir, 0o755); err != nil {
		return Harness{}, err
	}
	h := Harness{Weft: filepath.Join(dir, "weft"), Dir: filepath.Join(dir, "jobs")}
	if err := os.Mkdir(h.Dir, 0o755); err != nil {
		return h, err
	}
	// With the profile its dependencies would be compiled anew, which tests have compiled without.
	out, err := exec.Command("go", "build", "-pgo=off", "-ldflags=-w", "-o", h.Weft,
		"github.com/weft-mpi/weft/cmd/weft").CombinedOutput()
	if err != nil {
		return h, fmt.Errorf("building weft: %w\n%s", err, out)
	}
	return h, os.Chmod(h.Weft, 0o755)
}

// CopyProgram copies a program to where any user can execute it.
func CopyProgram(from, to string) (string, error) {
	b, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	return to, errors.Join(os.WriteFile(to, b, 0o755), os.Chmod(to, 0o755))
}

// deadline is how long a job may take. Only a hang takes that long, on however loaded a machine.
const deadline = 4 * time.Minute

// An outcome is what became of a job.
type outcome struct {
	status    int // as a shell would tell it: 128+n where signal n ended the command
	out, errs string
	struck    bool // by what the harness did
	hung      bool
	notes     map[string][]int // of the ranks: process ids by what they noted
	left      []string         // what should not be there any more
	starved   int              // processes that the kernel has killed for want of memory in the job's group
}

// Run runs the job of a plan. The error tells all that is wrong with its end.
func (h Harness) Run(p Plan) error {
	o, err := h.run(p)
	if err != nil {
		return fmt.Errorf("%s: the harness: %w", p, err)
	}
	if wrong := p.check(o); len(wrong) > 0 {
		return fmt.Errorf("%s\n  %s\n  status %d, standard error:\n%s", p, strings.Join(wrong, "\n  "),
			o.status, indent(o.errs))
	}
	return nil
}

func indent(text string) string {
	const maxBytes = 4000
	if len(text) > maxBytes {
		text = text[:maxBytes/2] + "\n…\n" + text[len(text)-maxBytes/2:]
	}
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// job is a job that runs.
type job struct {
	plan  Plan
	dir   string
	notes string
	group string // its control group, where it has one of its own
	cmd   *exec.Cmd
	ended chan struct{}
	out   *reader
	errs  *reader
}

func (h Harness) run(p Plan) (o outcome, err error) {
	j := &job{plan: p, ended: make(chan struct{})}
	if j.dir, err = os.MkdirTemp(h.Dir, fmt.Sprintf("job-%d-", p.Seed)); err != nil {
		return o, err
	}
	defer os.RemoveAll(j.dir)
	j.notes = filepath.Join(j.dir, "notes")
	temp := filepath.Join(j.dir, "tmp")
	for _, dir := range []string{j.dir, j.notes, temp} {
		if err := errors.Join(os.MkdirAll(dir, 0o777), os.Chmod(dir, 0o777)); err != nil {
			return o, err
		}
	}
	j.cmd = exec.Command(h.Weft, h.arguments(p)...)
	release, err := j.limit()
	if err != nil {
		return o, err
	}
	defer release()
	j.cmd.Env = append(os.Environ(), append(h.Environ, seedVariable+"="+strconv.FormatUint(p.Seed, 10),
		notesVariable+"="+j.notes,
		"TMPDIR="+temp, "WEFT_PEER_TIMEOUT=4s")...)
	closeFiles, err := j.connect()
	if err != nil {
		return o, err
	}
	err = j.cmd.Start()
	closeFiles()
	if err != nil {
		return o, err
	}
	o = j.watch(temp)
	o.starved = killedForMemory(j.group)
	return o, nil
}

func (h Harness) arguments(p Plan) []string {
	args := append([]string{"run", "-n", strconv.Itoa(p.Ranks), "--bind-to", "none"}, p.Fabric.options()...)
	if p.Label {
		args = append(args, "--label")
	}
	switch p.Fault {
	case Timeout, StalledReader:
		args = append(args, "--timeout", "2s")
	}
	return append(args, h.Program)
}

// connect makes the command's standard output and error.
func (j *job) connect() (closeTheirs func(), err error) {
	out, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	errs, errsW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	j.cmd.Stdout, j.cmd.Stderr = outW, errsW
	j.out, j.errs = newReader(out), newReader(errs)
	if j.plan.Fault == FullDisk {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		outW.Close()
		outW, j.cmd.Stdout = full, full
	}
	return func() { outW.Close(); errsW.Close() }, nil
}

// watch brings the harness's fault about, and waits for the job's end.
func (j *job) watch(temp string) (o outcome) {
	go func() {
		j.cmd.Wait()
		close(j.ended)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	struck := make(chan bool, 1)
	go j.errs.readAll()
	go func() { struck <- j.disturb(ctx) }()
	select {
	case <-j.ended:
	case <-ctx.Done():
		o.hung = true
		j.explainHang()
		syscall.Kill(j.cmd.Process.Pid, syscall.SIGKILL)
		<-j.ended
	}
	cancel()
	o.struck = <-struck
	o.left = j.leftOver(temp, endsWithin)
	j.killLeftOver()
	j.out.readAll()
	<-j.errs.done
	<-j.out.done
	o.out, o.errs = j.out.text(), j.errs.text()
	o.notes = j.readNotes()
	status := j.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if o.status = status.ExitStatus(); status.Signaled() {
		o.status = 128 + int(status.Signal())
	}
	return o
}

// disturb does what the plan has the harness do, and reports whether it could.
func (j *job) disturb(ctx context.Context) bool {
	switch j.plan.Fault {
	case ClosedReader:
		line := j.out.readLine()
		j.out.file.Close()
		return line
	case StalledReader:
		return true // check looks at what was written
	}
	if j.plan.Fault != StalledSignal {
		go j.out.readAll()
	}
	pid := j.cmd.Process.Pid
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-j.ended:
		case <-ctx.Done():
		}
		return false
	}
	switch j.plan.Fault {
	case Signal:
		return wait(j.plan.After) && syscall.Kill(pid, j.plan.Signal) == nil
	case StalledSignal:
		for j.out.unread() < maxOfAPipe {
			if !wait(time.Millisecond) {
				return false
			}
		}
		return wait(100*time.Millisecond) && syscall.Kill(pid, j.plan.Signal) == nil
	case SignalTwice:
		sent := 0
		for j.wantNotes(ctx, "pid", j.plan.Ranks) && wait(200*time.Millisecond) &&
			syscall.Kill(pid, j.plan.Signal) == nil {
			sent++
		}
		return sent >= 2
	case KillLauncher:
		return wait(j.plan.After) && syscall.Kill(pid, syscall.SIGKILL) == nil
	case KillRank:
		if !j.wantNotes(ctx, fmt.Sprintf("pid.%d", j.plan.Victim), 1) || !wait(j.plan.After) {
			return false
		}
		for name, pids := range j.readNotes() {
			if name == fmt.Sprintf("pid.%d", j.plan.Victim) {
				return syscall.Kill(pids[0], syscall.SIGKILL) == nil
			}
		}
	case KillWatchdog:
		if !j.wantNotes(ctx, "waits", 1) {
			return false
		}
		defer os.WriteFile(filepath.Join(j.notes, goOn), nil, 0o666)
		// The watchdog takes its name when it gets to run.
		for wait(time.Millisecond) {
			for _, child := range sys.ChildrenOf(pid) {
				if strings.HasPrefix(child.Name, "rank-") {
					return syscall.Kill(child.PID, syscall.SIGKILL) == nil
				}
			}
		}
	}
	return false
}

// wantNotes waits until the ranks have left so many notes whose names begin so.
func (j *job) wantNotes(ctx context.Context, name string, n int) bool {
	for {
		files, _ := filepath.Glob(filepath.Join(j.notes, name+".*"))
		if len(files) >= n {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-j.ended:
			return false
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// readNotes are the process ids that ranks have noted, by what and by what and who.
func (j *job) readNotes() map[string][]int {
	notes := make(map[string][]int)
	files, _ := os.ReadDir(j.notes)
	for _, f := range files {
		parts := strings.Split(f.Name(), ".")
		pid, err := strconv.Atoi(parts[len(parts)-1])
		if len(parts) != 3 || err != nil {
			continue
		}
		notes[parts[0]] = append(notes[parts[0]], pid)
		notes[parts[0]+"."+parts[1]] = append(notes[parts[0]+"."+parts[1]], pid)
	}
	return notes
}

// A reader reads the command's output, and keeps the beginning and counts the rest.
type reader struct {
	file *os.File
	once sync.Once
	done chan struct{}

	mu   sync.Mutex
	kept bytes.Buffer
	size int
}

func newReader(file *os.File) *reader { return &reader{file: file, done: make(chan struct{})} }

const keepOutput = 1 << 20

// maxOfAPipe is as many unread bytes as a pipe holds that has room for no more lines of a flooding rank.
const maxOfAPipe = 44_000

// unread is how many bytes wait to be read.
func (r *reader) unread() (n int) {
	if conn, err := r.file.SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { n = sys.Unread(int(fd)) })
	}
	return n
}

// readLine reads until a line has ended.
func (r *reader) readLine() bool {
	b := make([]byte, 1)
	for {
		if _, err := r.file.Read(b); err != nil {
			return false
		}
		r.add(b)
		if b[0] == '\n' {
			return true
		}
	}
}

func (r *reader) readAll() {
	r.once.Do(func() {
		defer close(r.done)
		defer r.file.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := r.file.Read(b)
			r.add(b[:n])
			if err != nil {
				return
			}
		}
	})
}

func (r *reader) add(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.size += len(b)
	io.CopyN(&r.kept, bytes.NewReader(b), int64(max(0, min(len(b), keepOutput-r.kept.Len()))))
}

func (r *reader) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept.String()
}
