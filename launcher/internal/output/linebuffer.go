package output

import (
	"bytes"
	"time"
)

const (
	// DefaultMaxLine is the length up to which lines of different ranks never mix by default.
	DefaultMaxLine = 1 << 20
	// The beginning of a line, such as a prompt, is shown after promptAfterTerminal on a terminal or in a job
	// of one rank, and after promptAfter otherwise, if it is no longer than maxPrompt. In a file it waits for
	// its end.
	promptAfterTerminal = 100 * time.Millisecond
	promptAfter         = time.Second
	maxPrompt           = 4 << 10
)

// A lineBuffer holds back the unfinished line of one rank's stream until it is complete.
type lineBuffer struct {
	sink    *sink
	label   string // goes before each line
	maxLine int
	pending []byte    // the beginning of a line
	since   time.Time // time of the latest addition to pending
}

// add takes output of the rank, and passes on complete lines. The buffer owns the data.
func (b *lineBuffer) add(now time.Time, data []byte) {
	if end := bytes.LastIndexByte(data, '\n') + 1; end > 0 {
		if len(b.pending) == 0 {
			b.sink.put(b, data[:end:end])
		} else {
			b.pending = append(b.pending, data[:end]...)
			b.flush()
		}
		data = data[end:]
	}
	if len(data) > 0 {
		b.pending = append(b.pending, data...)
		b.since = now
	}
	if len(b.pending) > b.maxLine {
		b.flush()
	}
}

// flush passes on what is pending.
func (b *lineBuffer) flush() {
	b.sink.put(b, b.pending)
	b.pending = nil // the sink owns it now
}

// labelled puts the label before every line, except before the first if that continues one.
func labelled(text []byte, label string, continued bool) []byte {
	out := make([]byte, 0, len(text)+len(label)*(bytes.Count(text, []byte{'\n'})+1))
	for line := range bytes.Lines(text) {
		if !continued {
			out = append(out, label...)
		}
		continued = false
		out = append(out, line...)
	}
	return out
}
