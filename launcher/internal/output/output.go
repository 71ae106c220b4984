// Package output shows what the ranks of a job write, line by line. It never waits for its reader.
package output

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weft-mpi/weft/internal/printable"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// lastLineWithin is the time for writing the launcher's own last line.
const lastLineWithin = 200 * time.Millisecond

// Output shows what the ranks of a job write.
type Output struct {
	sinks   [agent.Streams]*sink // one sink for both if they are one file, such as a terminal
	changed chan struct{}        // signaled when a sink has written something
	buffers [][agent.Streams]lineBuffer
	files   [][agent.Streams]*os.File // by rank: the destination of its output, instead of a sink
	paused  [agent.Streams]bool
	failed  [agent.Streams]bool

	// the job has failed: what ranks write to standard error is held back, to show equal texts once
	ending bool
	stderr stderrAggregator
	ended  []bool // by rank: it writes no more

	fileErr     error                // of a file that could not be written
	promptAfter time.Duration        // after which an unfinished line is shown; set by Expect
	unfinished  map[*lineBuffer]bool // buffers with the beginning of a line that may be a prompt
}

// New returns an Output that writes to out and err, which may be one file, such as a terminal.
func New(out, err *os.File) (*Output, error) {
	o := &Output{changed: make(chan struct{}, 1), unfinished: make(map[*lineBuffer]bool)}
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

// Options say how lines are shown.
type Options struct {
	MaxLine int  // lines of different ranks never mix up to this many bytes; 0 means DefaultMaxLine
	Label   bool // "[rank] " goes before every line
}

// Expect prepares for the output of a number of ranks. Of a single rank, whose lines cannot mix with those of
// others, unfinished lines are shown as soon as on a terminal.
func (o *Output) Expect(ranks int, how Options) {
	o.buffers = make([][agent.Streams]lineBuffer, ranks)
	o.files = make([][agent.Streams]*os.File, ranks)
	o.ended, o.ending = make([]bool, ranks), false
	if how.MaxLine == 0 {
		how.MaxLine = DefaultMaxLine
	}
	for r := range o.buffers {
		for kind := range o.buffers[r] {
			b := &o.buffers[r][kind]
			b.sink, b.maxLine = o.sinks[kind], how.MaxLine
			if how.Label {
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

// ToFile sends what a rank writes to one of its streams to a file instead. Close closes the file.
func (o *Output) ToFile(rank int, stream agent.Stream, file *os.File) { o.files[rank][stream] = file }

// Notice prints a notice on a line of its own.
func (o *Output) Notice(text string, args ...any) {
	o.sinks[agent.Stderr].put(nil, []byte(printable.Text("weft: "+fmt.Sprintf(text, args...))+"\n"))
}

// Problem prints an error, each line with weft's prefix.
func (o *Output) Problem(err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		o.Notice("%s", line)
	}
}

// Add handles output of a rank.
func (o *Output) Add(now time.Time, e agent.Output) {
	if file := o.files[e.Rank][e.Stream]; file != nil {
		if _, err := file.Write(e.Data); err != nil && o.fileErr == nil {
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

// End notes that a rank writes no more.
func (o *Output) End(rank int) {
	o.ended[rank] = true
	for kind := range o.buffers[rank] {
		b := &o.buffers[rank][kind]
		b.flush()
		delete(o.unfinished, b)
	}
}

// promptDue returns when showPrompts is due; zero if it is not.
func (o *Output) promptDue() (due time.Time) {
	for b := range o.unfinished {
		if at := b.since.Add(o.promptAfter); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return due
}

// showPrompts shows unfinished lines that have not grown for some time.
func (o *Output) showPrompts(now time.Time) {
	for b := range o.unfinished {
		if !now.Before(b.since.Add(o.promptAfter)) {
			b.flush()
			delete(o.unfinished, b)
		}
	}
}

// Changed is signaled when something was written.
func (o *Output) Changed() <-chan struct{} { return o.changed }

// Due returns when Tick has something to show; zero for nothing.
func (o *Output) Due() time.Time {
	prompts, held := o.promptDue(), o.stderr.due()
	if prompts.IsZero() || !held.IsZero() && held.Before(prompts) {
		return held
	}
	return prompts
}

// Tick shows what was held back and is due. last says that the ranks write no more.
func (o *Output) Tick(now time.Time, last bool) {
	o.showStderrWhenDue(now, last)
	o.showPrompts(now)
}

// Flow returns commands for ranks to pause or resume, depending on how much is not written yet.
func (o *Output) Flow() (commands []agent.Command) {
	for kind, s := range o.sinks {
		n, _ := s.state()
		if on := n > maxUnwritten || o.paused[kind] && n > minUnwritten; on != o.paused[kind] {
			o.paused[kind] = on
			commands = append(commands, agent.Pause{Stream: agent.Stream(kind), On: on})
		}
	}
	return commands
}

// Unwritten returns the number of bytes that wait to be written.
func (o *Output) Unwritten() int {
	n, _ := o.sinks[agent.Stdout].state()
	n += o.stderr.size
	if o.sinks[agent.Stderr] != o.sinks[agent.Stdout] {
		m, _ := o.sinks[agent.Stderr].state()
		n += m
	}
	return n
}

// Failure returns an error of writing that it has not returned yet: of a sink that can no longer be written,
// once for each sink, or of a file in the output folder, each time that one occurs.
func (o *Output) Failure() (stream string, err error) {
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

// Flush waits for a time until everything is written.
func (o *Output) Flush(limit time.Duration) {
	for _, s := range o.sinks {
		s.flush(limit)
	}
}

// Drop drops unwritten output, and says so if somebody still reads.
func (o *Output) Drop() {
	o.showStderr()
	out, err := o.sinks[agent.Stdout], o.sinks[agent.Stderr]
	if n, _ := out.state(); n > 0 && out != err {
		o.Notice("%d bytes of standard output were dropped: nobody took them", n)
	}
	err.flush(lastLineWithin)
}

// Close ends the writing.
func (o *Output) Close() {
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
