package mpitest

import (
	"bytes"
	"fmt"
	"strings"
)

// output receives what a rank writes, in place of standard error: mistakes that checking mode has found fail
// the test, and everything else is logged.
type output struct{ rank *rank }

const (
	ownPrefix   = "weft: "
	checkPrefix = "check: rank "
)

// Write takes one line or more.
func (o *output) Write(text []byte) (int, error) {
	for line := range bytes.Lines(text) {
		o.line(strings.TrimRight(string(line), "\n"))
	}
	return len(text), nil
}

func (o *output) line(text string) {
	j := o.rank.job
	text = strings.TrimPrefix(text, ownPrefix)
	if mistake, is := strings.CutPrefix(text, checkPrefix); is {
		_, mistake, _ = strings.Cut(mistake, ": ")
		j.mu.Lock()
		o.rank.lines = append(o.rank.lines, mistake)
		j.mu.Unlock()
		return
	}
	j.log(fmt.Sprintf("rank %d: %s", o.rank.number, text))
}

// log logs a line; in one of many runs, only if the run has failed.
func (j *job) log(text string) {
	j.t.Helper()
	if j.explored != nil {
		j.explored.log(text)
	} else {
		j.t.Log(text)
	}
}
