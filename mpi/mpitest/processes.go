package mpitest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/transport/fabrics"
)

// The variables of a process that Processes has started.
const (
	processVariable = "MPITEST_PROCESS" // the test that it runs
	callVariable    = "MPITEST_CALL"    // the number of the call of Processes in that test, from 1
	errorsVariable  = "MPITEST_ERRORS"  // the folder for the errors of the ranks
)

// The launcher starts the test binary also as the watchdog of its ranks.
func init() { launcher.Watchdog() }

// stuckAfter is the time without progress after which the launcher reports what the ranks do, without a
// proof.
const stuckAfter = time.Minute

// calls counts the calls of Processes of each test, by the test's name.
var (
	callsMu sync.Mutex
	calls   = map[string]int{}
)

// Processes runs body as a job of n ranks that are processes of this host, as weft run starts them. Each is
// the test binary, which runs the calling test up to this call, and then body instead of the rest. So the
// test must behave the same in every process until then, and its effects occur n more times. Errors and
// output of the ranks are reported as by Run. A proven deadlock ends the job. Coverage and the race detector
// see each process alone, and the coverage of the ranks is lost.
//
// Of the options, Config and Fabric apply; the fabric is "auto" by default.
func Processes(t *testing.T, n int, body Body, opts ...Option) {
	t.Helper()
	o, err := chosen(t, "Processes", n, body, opts)
	if err != nil {
		t.Fatal(err)
	}
	o.fabric = cmp.Or(o.fabric, fabrics.Auto)
	callsMu.Lock()
	calls[t.Name()]++
	call := strconv.Itoa(calls[t.Name()])
	callsMu.Unlock()
	j := newJob(t, n, body, defaultSeed, o)
	switch name, isRank := os.LookupEnv(processVariable); {
	case !isRank:
		j.start(call)
	case name == t.Name() && os.Getenv(callVariable) == call:
		j.playProcess()
	}
}

// playProcess runs a rank that is a process. It does not return.
func (j *job) playProcess() {
	rank := 0
	err := mpi.Run(context.Background(), func(ctx context.Context, world *mpi.Comm) error {
		rank = world.Rank()
		r := j.ranks[rank]
		return j.body(context.WithValue(ctx, rankKey{}, r), world)
	}, j.ranks[0].conf...) // the same for all ranks
	if err == nil {
		os.Exit(0)
	}
	if !errors.Is(err, mpi.ErrAborted) && !errors.Is(err, mpi.ErrProcFailed) {
		file := filepath.Join(os.Getenv(errorsVariable), strconv.Itoa(rank))
		if os.WriteFile(file, []byte(err.Error()), 0o600) == nil {
			os.Exit(1)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// start starts the ranks as processes, and fails the test if they fail.
func (j *job) start(call string) {
	j.t.Helper()
	program, err := os.Executable()
	if err != nil {
		j.t.Fatal(err)
	}
	folder := j.t.TempDir()
	var pattern []string
	for part := range strings.SplitSeq(j.t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	job := launcher.Job{
		Apps: []launcher.App{{Ranks: len(j.ranks), Program: program,
			Args: []string{"-test.run=" + strings.Join(pattern, "/"), "-test.v", "-test.count=1"},
			Env: []string{processVariable + "=" + j.t.Name(), callVariable + "=" + call,
				errorsVariable + "=" + folder, strings.TrimSpace("GORACE=" + os.Getenv("GORACE") +
					" atexit_sleep_ms=0")}}},
		Env:   []string{"WEFT_CORES_PER_RANK=0"}, // tests of other packages run on the same cores
		Stuck: stuckAfter, StuckAction: launcher.AbortStuck, Stdin: launcher.InputNone,
	}
	if deadline, bounded := j.t.Deadline(); bounded {
		job.Timeout = max(time.Until(deadline)-beforeDeadline, time.Second)
	}
	r, w, err := os.Pipe()
	if err != nil {
		j.t.Fatal(err)
	}
	said := make(chan string)
	go func() {
		text, _ := io.ReadAll(r)
		r.Close()
		said <- string(text)
	}()
	job.Out, job.Err = w, w
	failure := launcher.Run(j.t.Context(), job)
	w.Close()
	text := withoutTestLines(<-said)
	var lines []string
	for rank := range j.ranks {
		if text, err := os.ReadFile(filepath.Join(folder, strconv.Itoa(rank))); err == nil {
			lines = append(lines, fmt.Sprintf("rank %d: %s", rank, text))
		}
	}
	if text != "" {
		j.t.Log(text)
	}
	switch {
	case len(lines) > 0:
		j.t.Fatal(strings.Join(lines, "\n"))
	case failure != nil:
		j.t.Fatal(failure)
	}
}

// withoutTestLines removes package testing's lines about the test's beginning.
func withoutTestLines(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "=== ") {
			kept = append(kept, line)
		}
	}
	return strings.TrimRight(strings.Join(kept, ""), "\n")
}
