package output

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// said plays what ranks write to standard error, of a job that has failed already or not, and gives what is
// shown.
func said(t *testing.T, how Options, failed bool, ranks int, play func(say func(rank int, text string))) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "stderr")
	file, err := os.Create(name)
	require.NoError(t, err)
	defer file.Close()
	o, err := New(file, file)
	require.NoError(t, err)
	o.Expect(ranks, how)
	if failed {
		o.HoldStderr()
	}
	play(func(rank int, text string) {
		o.Add(time.Now(), agent.Output{Rank: rank, Stream: agent.Stderr, Data: []byte(text)})
	})
	require.Equal(t, o.stderr.size > 0, !o.stderr.due().IsZero())
	require.GreaterOrEqual(t, o.Unwritten(), o.stderr.size)
	for r := range ranks {
		o.End(r)
	}
	o.showStderrWhenDue(time.Now(), true)
	require.Zero(t, o.stderr.size)
	o.Flush(2 * time.Minute)
	o.Close()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// What ranks say alike when their job has failed is shown once, with who says it; all else as it is.
func TestAggregate_WhatIsAlikeIsShownOnce(t *testing.T) {
	each := func(text string) func(func(int, string)) {
		return func(say func(int, string)) {
			for _, r := range []int{3, 0, 2, 1} {
				say(r, text)
			}
		}
	}
	const line, stack = "no such file\n", "panic: no\n\nmain.main()\n"
	for name, c := range map[string]struct {
		how    Options
		failed bool
		play   func(func(int, string))
		want   string
	}{
		"before the failure": {Options{}, false, each(line), strings.Repeat(line, 4)},
		"a line":             {Options{}, true, each(line), "ranks 0-3: " + line},
		"without its end":    {Options{}, true, each("no"), "ranks 0-3: no"},
		"with labels":        {Options{Label: true}, true, each(stack), "[0-3] panic: no\n[0-3] \n[0-3] main.main()\n"},
		"several lines":      {Options{}, true, each(stack), "ranks 0-3:\n" + stack},
		"in pieces": {Options{}, true, func(say func(int, string)) {
			say(0, "no such")
			say(1, "no such file")
			say(0, " file\n")
			say(1, "\n")
		}, "ranks 0-1: " + line},
		"some of them": {Options{}, true, func(say func(int, string)) {
			say(1, line)
			say(2, "another\n")
			say(3, line)
		}, "ranks 1,3: " + line + "another\n"},
		"errors that name their rank": {Options{}, true, func(say func(int, string)) {
			say(0, "mpi: rank 0: Barrier on world: no\n")
			say(1, "mpi: rank 1: Barrier on world: no\n")
			say(2, "mpi: rank 0 (world rank 2): Barrier on world: no\n")
			say(3, "mpi: rank 1: Barrier on world: no\n")
		}, "ranks 0-2: mpi: Barrier on world: no\nmpi: rank 1: Barrier on world: no\n"},
		"errors of Init, before the failure": {Options{}, false, func(say func(int, string)) {
			say(0, "log\n")
			say(1, "mpi: Init: no\n")
			say(0, "mpi: Init: no\n")
			say(1, "bye\n")
			say(0, "bye\n")
		}, "log\nranks 0-1:\nmpi: Init: no\nbye\n"},
		"of one": {Options{}, true, func(say func(int, string)) { say(2, line) }, line},
		"too much": {Options{}, true, func(say func(int, string)) {
			say(0, line)
			say(1, line+strings.Repeat("x", maxAggregated)+"\n")
			say(2, line)
		}, line + line + strings.Repeat("x", maxAggregated) + "\n" + line},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, said(t, c.how, c.failed, 4, c.play))
		})
	}
}

// A rank that goes on writing while the job ends is heard all the time.
func TestAggregate_IsHeldForAMomentOnly(t *testing.T) {
	var l stderrAggregator
	now := time.Now()
	require.True(t, l.due().IsZero())
	require.True(t, l.hold(now, 0, []byte("a")))
	require.Equal(t, now.Add(aggregateQuiet), l.due())
	for at := now; at.Before(now.Add(aggregateWithin)); at = at.Add(aggregateQuiet / 2) {
		require.True(t, l.hold(at, 0, []byte("a")))
	}
	require.Equal(t, now.Add(aggregateWithin), l.due())
}
