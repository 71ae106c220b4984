package top

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/live"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a screen with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// job is a job at a second of its life.
func job(second int) *live.Job {
	up := time.Duration(second) * time.Second
	n := uint64(second)
	j := &live.Job{PID: 4711, Name: "solver", Size: 6, Up: up + time.Second/2, Every: time.Second}
	j.Ranks = []live.Rank{
		{Host: "alpha", State: live.Waiting, Call: "Allreduce on world, at solver.go:36", For: 2 * time.Millisecond,
			Asleep: up / 2, Sent: 60 * n * n, SentBytes: 960_000 * n * n, Memory: 5_000_000, Registered: 700_000,
			Phases: []int{3, 2}},
		{Host: "alpha", State: live.Stuck, Call: "Recv from 2, tag 5, at solver.go:41", For: 95 * time.Second,
			Asleep: up, Memory: 5_600_000, Phases: []int{5}},
		{Host: "alpha", State: live.Working, Call: "in no call of weft, at solver.go:47", Sent: 25_000 * n,
			SentBytes: 200_000 * n, Memory: 812_000_000, Phases: []int{0, 5}},
		{Host: "beta\x1b[31m", State: live.Working, Call: "in no call of weft, at \x07evil.go:1", Sent: 600 * n,
			SentBytes: 9_600_000_000 * n, Memory: 9000, Lanes: 9, LanesLost: 1},
		{Host: "beta\x1b[31m", State: live.Silent},
		{Host: "beta\x1b[31m", State: live.Ended, Memory: 100},
	}
	for i := range j.Ranks {
		j.Ranks[i].Rank = i
		if j.Ranks[i].Memory > 0 {
			j.Ranks[i].Up = up
		}
	}
	return j
}

// spread is a job at a second of its life of which rank 0 uses three endpoints, the last from second 11 on, and
// rank 2 two.
func spread(second int) *live.Job {
	j := job(second)
	n := uint64(second)
	j.Ranks[0].SentBy = []uint64{10 * n * n, 50 * n * n}
	if second > 10 {
		j.Ranks[0].SentBy = append(j.Ranks[0].SentBy, 40)
	}
	j.Ranks[2].SentBy = []uint64{0, 25_000 * n}
	return j
}

// beginning is a job at a second of its life in which rank 2 has not come to Init, rank 3 has no process yet,
// and the others wait in Init for both. In the next one all are in the program.
func beginning(second int) *live.Job {
	up := time.Duration(second) * time.Second
	j := &live.Job{PID: 4711, Name: "solver", Size: 4, Up: up, Every: time.Second}
	in := live.Rank{Host: "alpha", State: live.Starting, Call: "Init, at solver.go:24", For: up}
	j.Ranks = []live.Rank{in, in, {Host: "alpha", State: live.Silent}, {Host: "alpha", State: live.Starting}}
	for i := range j.Ranks {
		j.Ranks[i].Rank = i
	}
	return j
}

// begun is the job of beginning, later.
func begun(second int) *live.Job {
	j := beginning(second)
	for i := range j.Ranks {
		j.Ranks[i] = live.Rank{Rank: i, Host: "alpha", State: live.Waiting, Call: "Barrier on world, at solver.go:30",
			For: time.Second / 4, Up: time.Second / 2, Asleep: time.Second / 4, Sent: 3, SentBytes: 24, Memory: 1_000_000}
	}
	return j
}

// screenOf is what a terminal shows.
func screenOf(term vt.MockTerm, width, height int) string {
	var b strings.Builder
	for y := range height {
		var line strings.Builder
		for x := range width {
			if c := term.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)}).C; c != "" {
				line.WriteString(c)
			} else {
				line.WriteByte(' ')
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// onTerminal shows jobs on an emulated terminal, has keys typed, and returns its screen at the end.
func onTerminal(t *testing.T, width, height int, jobs []*live.Job, typed ...string) string {
	t.Helper()
	term := vt.NewMockTerm(vt.MockOptSize{X: vt.Col(width), Y: vt.Row(height)})
	screen, err := tcell.NewTerminfoScreenFromTty(term)
	require.NoError(t, err)
	require.NoError(t, screen.Init())
	defer screen.Fini()
	var v View
	for _, j := range jobs {
		v.Show(j)
	}
	for _, k := range typed {
		require.False(t, v.Key(k, height))
	}
	v.draw(screen)
	require.NoError(t, term.Drain())
	return screenOf(term, width, height)
}

func TestScreen(t *testing.T) {
	two := []*live.Job{job(10), job(11)}
	for _, c := range []struct {
		name          string
		width, height int
		jobs          []*live.Job
		keys          []string
	}{
		{"nothing_yet", 100, 5, nil, nil},
		{"first", 120, 14, two[:1], nil},
		{"rates", 120, 14, two, nil},
		{"by_bytes", 120, 14, two, []string{"b"}},
		{"endpoints", 150, 14, []*live.Job{spread(10), spread(11)}, nil},
		{"by_endpoints", 150, 14, []*live.Job{spread(10), spread(11)}, []string{"e"}},
		{"without_endpoints", 120, 14, two, []string{"e"}}, // no such column
		{"by_memory_reversed", 120, 14, two, []string{"M", "M"}},
		{"typing", 120, 14, two, []string{"/", "W", "o", "r", "x", Backspace}},
		{"filtered", 120, 14, two, []string{"/", "b", "e", "t", "a", Enter, "s"}},
		{"filter_left", 120, 14, two, []string{"/", "q", Escape, " "}},
		{"scrolled", 60, 8, two, []string{Down, End, Up}},
		{"tiny", 20, 2, two, []string{PageDown}},
		{"starting", 120, 10, []*live.Job{beginning(3)}, nil},
		{"starting_filtered", 120, 10, []*live.Job{beginning(3)}, []string{"/", "i", "n", "i", "t", Enter, "s"}},
		{"started", 120, 10, []*live.Job{beginning(3), begun(4)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			golden(t, c.name, onTerminal(t, c.width, c.height, c.jobs, c.keys...))
		})
	}
}

// A line is red where a rank cannot go on or does not answer, and faint where it has ended. One that is in Init
// is neither: it waits for the others, as a job does that begins.
func TestLines_StyleOfEachState(t *testing.T) {
	for state, want := range map[live.State]Style{live.Starting: Normal, live.Working: Normal, live.Waiting: Normal,
		live.Finalizing: Normal, live.Stuck: Alarm, live.Silent: Alarm, live.Stopped: Alarm, live.Ended: Faint,
		live.Finished: Faint} {
		var v View
		v.Show(&live.Job{Size: 1, Ranks: []live.Rank{{State: state}}})
		lines := v.Lines(10)
		require.Contains(t, lines[4].Text, string(state))
		require.Equal(t, want, lines[4].Style, state)
	}
}

func TestPlain(t *testing.T) {
	var v View
	v.Show(job(10))
	v.Show(job(11))
	golden(t, "plain", strings.Join(v.Plain(), "\n")+"\n")
}

// Keys reach the view, and q ends it.
func TestShow_Keys(t *testing.T) {
	term := vt.NewMockTerm(vt.MockOptSize{X: 120, Y: 14})
	screen, err := tcell.NewTerminfoScreenFromTty(term)
	require.NoError(t, err)
	require.NoError(t, screen.Init())
	defer screen.Fini()
	jobs := make(chan *live.Job)
	over := make(chan struct{})
	go func() {
		defer close(over)
		Show(t.Context(), screen, jobs)
	}()
	jobs <- job(10)
	term.KeyTap(vt.KeyB)
	require.Eventually(t, func() bool {
		select {
		case jobs <- job(11): // one more, so that the key has been seen when the next one is taken
		case <-over:
		}
		return strings.Contains(screenOf(term, 120, 14), "sorted by bytes/s")
	}, 2*time.Minute, time.Millisecond)
	term.KeyTap(vt.KeyQ)
	<-over
}

func TestShow_EndsWithTheJobOrItsContext(t *testing.T) {
	term := vt.NewMockTerm()
	screen, err := tcell.NewTerminfoScreenFromTty(term)
	require.NoError(t, err)
	require.NoError(t, screen.Init())
	defer screen.Fini()
	jobs := make(chan *live.Job)
	close(jobs)
	Show(t.Context(), screen, jobs)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Show(ctx, screen, nil)
}

func TestShort(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 999: "999", 9999: "9999", 10_000: "10k", 9_999_499: "9999k",
		12_345_678: "12M", 1e18: "1000000T"} {
		require.Equal(t, want, short(n))
	}
}
