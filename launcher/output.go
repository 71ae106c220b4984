package launcher

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weft-mpi/weft/internal/printable"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// lastLineWithin is how long the launcher's own last line may take.
const lastLineWithin = 200 * time.Millisecond

// output shows what the ranks of a job write, line by line.
type output struct {
	sinks   [agent.Streams]*sink // where both are one file, such as a terminal, they are one sink
	changed chan struct{}        // told when a sink has written something
	buffers [][agent.Streams]lineBuffer
	files   [][agent.Streams]*os.File // by rank: of ranks of other hosts, with --output-dir
	paused  [agent.Streams]bool
	failed  [agent.Streams]bool

	ending bool // the job has failed: what ranks say now is compared
	stderr stderrAggregator
	ended  []bool // by rank: it writes no more

	fileErr     error                // of a file that could not be written
	promptAfter time.Duration        // 0: unfinished lines are not shown
	unfinished  map[*lineBuffer]bool // those that hold the beginning of a line that may be a prompt
}

func newOutput(out, err *os.File) (*output, error) {
	o := &output{changed: make(chan struct{}, 1), unfinished: make(map[*lineBuffer]bool)}
	a, errA := out.Stat()
	b, errB := err.Stat()
	var failure error
	if o.sinks[agent.Stdout], failure = newSink("standard output", out, o.changed); failure != nil {
		return nil, failure
	}
	o.sinks[agent.Stderr] = o.sinks[agent.Stdout]
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		if o.sinks[agent.Stderr], failure = newSink("standard error", err, o.changed); failure != nil {
			o.sinks[agent.Stdout].stop()
			return nil, failure
		}
	}
	return o, nil
}

// expect prepares for the ranks of the job. A rank that is alone has nobody's lines to mix with.
func (o *output) expect(ranks int, job *Job) {
	o.buffers = make([][agent.Streams]lineBuffer, ranks)
	o.ended, o.ending = make([]bool, ranks), false
	maxLine := job.MaxLine
	if maxLine == 0 {
		maxLine = DefaultMaxLine
	}
	for r := range o.buffers {
		for kind := range o.buffers[r] {
			b := &o.buffers[r][kind]
			b.sink, b.maxLine = o.sinks[kind], maxLine
			if job.Label {
				b.label = fmt.Sprintf("[%d] ", r)
			}
		}
	}
	o.promptAfter = promptAfter
	if ranks == 1 {
		o.promptAfter = promptAfterTerminal
	}
	for _, s := range o.sinks {
		if sys.IsTerminal(s.fd) {
			o.promptAfter = promptAfterTerminal
		}
	}
}

// notice tells the user something, on a line of its own.
func (o *output) notice(text string, args ...any) {
	o.sinks[agent.Stderr].put(nil, []byte(printable.Text("weft: "+fmt.Sprintf(text, args...))+"\n"))
}

// problem tells the user of an error, each line of it as weft's.
func (o *output) problem(err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		o.notice("%s", line)
	}
}

// openFiles opens the files for the output of ranks of other hosts. Ranks of this host write theirs
// themselves.
func (o *output) openFiles(j *job) (err error) {
	if j.Output == "" {
		return nil
	}
	o.files = make([][agent.Streams]*os.File, len(j.programOf))
	for id, n := range j.nodeOf {
		for stream := range agent.Stream(agent.Streams) {
			if n.remote == nil {
				continue
			}
			if o.files[id][stream], err = os.Create(j.outputFile(id, stream)); err != nil {
				return err
			}
		}
	}
	return nil
}

// add takes what a rank has written.
func (o *output) add(now time.Time, e agent.Output) {
	if o.files != nil && o.files[e.Rank][e.Stream] != nil {
		if _, err := o.files[e.Rank][e.Stream].Write(e.Data); err != nil && o.fileErr == nil {
			o.fileErr = err
		}
		return
	}
	if o.holds(now, e) {
		return
	}
	b := &o.buffers[e.Rank][e.Stream]
	b.add(now, e.Data)
	if n := len(b.pending); n > 0 && n <= maxPrompt && !b.sink.regular {
		o.unfinished[b] = true
	} else {
		delete(o.unfinished, b)
	}
}

// end takes note that a rank writes no more.
func (o *output) end(rank int) {
	o.ended[rank] = true
	for kind := range o.buffers[rank] {
		b := &o.buffers[rank][kind]
		b.flush()
		delete(o.unfinished, b)
	}
}

// promptDue is when showPrompts is due; zero if it is not.
func (o *output) promptDue() (due time.Time) {
	for b := range o.unfinished {
		if at := b.since.Add(o.promptAfter); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return due
}

// showPrompts shows the unfinished lines that nothing has followed for some time.
func (o *output) showPrompts(now time.Time) {
	for b := range o.unfinished {
		if !now.Before(b.since.Add(o.promptAfter)) {
			b.flush()
			delete(o.unfinished, b)
		}
	}
}

// flow returns commands for ranks to wait, or to go on, according to how much is not written yet.
func (o *output) flow() (commands []agent.Command) {
	for kind, s := range o.sinks {
		n, _ := s.state()
		if on := n > maxUnwritten || o.paused[kind] && n > minUnwritten; on != o.paused[kind] {
			o.paused[kind] = on
			commands = append(commands, agent.Pause{Stream: agent.Stream(kind), On: on})
		}
	}
	return commands
}

// unwritten is how many bytes wait to be written.
func (o *output) unwritten() int {
	n, _ := o.sinks[agent.Stdout].state()
	n += o.stderr.size
	if o.sinks[agent.Stderr] != o.sinks[agent.Stdout] {
		m, _ := o.sinks[agent.Stderr].state()
		n += m
	}
	return n
}

// failure returns the error of a sink that can no longer be written, once for each sink.
func (o *output) failure() (stream string, err error) {
	if err = o.fileErr; err != nil {
		o.fileErr = nil
		return "the folder for output", err
	}
	for kind, s := range o.sinks {
		if _, err := s.state(); err != nil && !o.failed[kind] {
			for other := range o.sinks {
				o.failed[other] = o.failed[other] || o.sinks[other] == s
			}
			return s.name, err
		}
	}
	return "", nil
}

// flush waits for a time until everything is written.
func (o *output) flush(limit time.Duration) {
	for _, s := range o.sinks {
		s.flush(limit)
	}
}

// drop gives up what is not written, and says so where somebody still reads.
func (o *output) drop() {
	o.showStderr()
	out, err := o.sinks[agent.Stdout], o.sinks[agent.Stderr]
	if n, _ := out.state(); n > 0 && out != err {
		o.notice("%d bytes of standard output were dropped: nobody took them", n)
	}
	err.flush(lastLineWithin)
}

// close ends the writing.
func (o *output) close() {
	for _, files := range o.files {
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
	}
	o.sinks[agent.Stdout].stop()
	if o.sinks[agent.Stderr] != o.sinks[agent.Stdout] {
		o.sinks[agent.Stderr].stop()
	}
}
