package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/gdamore/tcell/v3"
	"github.com/spf13/cobra"

	"github.com/weft-mpi/weft/cmd/internal/top"
	"github.com/weft-mpi/weft/internal/live"
	"github.com/weft-mpi/weft/internal/printable"
	"github.com/weft-mpi/weft/internal/sys"
)

const topHelp = `Show once a second what each rank of a running job does.

JOB is the process id of weft run, or the name of the job's first program. Without JOB, weft top shows
the only job of this user on this host, or lists all of them. Up to eight processes of the same user, on
the host of weft run, can watch a job at the same time. A job that nobody watches is not slowed down.

RANK, HOST   the rank and its host
STATE        starting: its process does not run yet, or it is in Init;
             working: at least one of its goroutines computes;
             waiting: all of its goroutines wait in calls of weft;
             stuck: it is proven that it waits for ever; finalizing, finished, stopped, ended;
             no answer: its program does not use weft, has not reached Init, or gets no processor time
MSG/S        messages that it sent in the last second; BYTES/S is their size
WAIT         the share of the last second that its goroutines slept in calls; two goroutines that
             always wait make 200%
MEMORY       bytes of the Go runtime and of the channels' buffers
PHASES       3x1 2x2: three channels are in phase 1, with the slots they began with, two in phase 2
LANES        network connections that carry data, and the number of those that were lost
ENDPOINTS    messages that it sent in the last second on each of its endpoints, from endpoint 0 on; only
             where a rank uses several. A communicator NAME@2 lives on endpoint 2
FOR, CALL    how long it has waited, in which call, for which rank, and at which source line

The keys r h s m b w M p l e f c sort by a column (w: WAIT, M: MEMORY, f: FOR); the same key again reverses
the order. / shows only lines that contain a word, and Escape ends that. Space pauses, arrows scroll, q
quits. If standard output is not a terminal, weft top prints the table as plain lines each time, until
the job ends; a script that needs it only once calls weft top --once.`

// newTop returns the command that shows a running job.
func newTop() *cobra.Command {
	var once, asJSON bool
	cmd := &cobra.Command{
		Use:   "top [JOB]",
		Short: "Show what the ranks of a running job do",
		Long:  topHelp,
		Args:  words("job", 0, 1),

		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON && !once {
				return usageErrorf("--json prints one table: add --once")
			}
			w, err := chooseJob(cmd.OutOrStdout(), args)
			if w == nil || err != nil {
				return err
			}
			defer w.Close()
			if err := watch(cmd.Context(), w, once, asJSON); err != nil {
				warn(err.Error())
				return exitStatus(1)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print the table once, after one second, and exit")
	cmd.Flags().BoolVar(&asJSON, "json", false, "with --once: print it as JSON, with totals since Init")
	return cmd
}

// chooseJob finds the job to watch. If there are several, it lists them and returns none.
func chooseJob(out io.Writer, args []string) (*live.Watcher, error) {
	all, refused := live.Find()
	var chosen []*live.Watcher
	for _, w := range all {
		if len(args) == 0 || args[0] == strconv.Itoa(w.Job.PID) || args[0] == w.Job.Name {
			chosen = append(chosen, w)
		} else {
			w.Close()
		}
	}
	switch {
	case len(chosen) == 1:
		return chosen[0], nil
	case len(chosen) == 0:
		text := "no job of this user runs on this host"
		if refused != nil {
			text = refused.Error()
		} else if len(args) > 0 {
			text = fmt.Sprintf("no job of this user on this host has the process id or the name %q", args[0])
		}
		warn(text)
		return nil, exitStatus(1)
	}
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tRANKS\tPROGRAM")
	for _, c := range chosen {
		c.Close()
		fmt.Fprintf(w, "%d\t%d\t%s\n", c.Job.PID, c.Job.Size, printable.Line(c.Job.Name))
	}
	w.Flush()
	_, err := out.Write(b.Bytes())
	return nil, err
}

// watch shows a job until it ends or the user leaves.
func watch(ctx context.Context, w *live.Watcher, once, asJSON bool) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := w.Start(); err != nil {
		return fmt.Errorf("job %d: %w", w.Job.PID, err)
	}
	jobs, failed := make(chan *live.Job), make(chan error, 1)
	go func() {
		defer close(jobs)
		for {
			j, err := w.Next()
			if err != nil {
				failed <- err
				return
			}
			select {
			case jobs <- j:
			case <-ctx.Done():
				return
			}
		}
	}()
	if terminal := sys.IsTerminal(int(os.Stdout.Fd())); once || !terminal {
		if !once {
			warn("standard output is no terminal: the table comes once a second until the job ends; --once " +
				"prints it once")
		}
		if err := printJobs(ctx, os.Stdout, jobs, once, asJSON); err != nil || once {
			return err
		}
	} else if err := showJobs(ctx, jobs); err != nil {
		return err
	}
	select {
	case err := <-failed:
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("job %d: %w", w.Job.PID, err)
		}
		fmt.Fprintf(os.Stderr, "weft: job %d has ended\n", w.Job.PID)
	default:
	}
	return nil
}

// printJobs prints the table each time, or once, when there are rates of a second.
func printJobs(ctx context.Context, out io.Writer, jobs <-chan *live.Job, once, asJSON bool) error {
	var v top.View
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case j, more := <-jobs:
			if !more && once {
				return errors.New("the job has ended")
			} else if !more {
				return nil
			}
			if asJSON {
				return writeJSON(out, factsOf(j))
			}
			v.Show(j)
		}
		if once && n == 0 {
			continue
		}
		_, err := io.WriteString(out, strings.Join(v.Plain(), "\n")+"\n\n")
		if err != nil || once {
			return err
		}
	}
}

// jobFacts describe a job for programs. Times are in seconds; counters are totals since the rank's Init.
type jobFacts struct {
	Job   int         `json:"job"` // the process id of weft run
	Name  string      `json:"name"`
	Size  int         `json:"size"`
	Up    float64     `json:"up"`
	Ranks []rankFacts `json:"ranks"`
}

type rankFacts struct {
	Rank       int        `json:"rank"`
	Host       string     `json:"host"`
	PID        int        `json:"pid"`
	State      live.State `json:"state"`
	Call       string     `json:"call,omitempty"`
	For        float64    `json:"for"`
	Up         float64    `json:"up"`
	Asleep     float64    `json:"asleep"`
	Sent       uint64     `json:"sent"`
	SentBytes  uint64     `json:"sent_bytes"`
	SentBy     []uint64   `json:"sent_by_endpoint,omitempty"` // where several are in use
	Memory     uint64     `json:"memory"`
	Registered uint64     `json:"registered"`
	Phases     []int      `json:"phases,omitempty"` // channels in each
	Lanes      int        `json:"lanes"`
	LanesLost  uint64     `json:"lanes_lost"`
}

func factsOf(j *live.Job) jobFacts {
	f := jobFacts{Job: j.PID, Name: j.Name, Size: j.Size, Up: j.Up.Seconds(), Ranks: []rankFacts{}}
	for _, r := range j.Ranks {
		f.Ranks = append(f.Ranks, rankFacts{Rank: r.Rank, Host: r.Host, PID: r.PID, State: r.State,
			Call: r.Call, For: r.For.Seconds(), Up: r.Up.Seconds(), Asleep: r.Asleep.Seconds(),
			Sent: r.Sent, SentBytes: r.SentBytes, SentBy: r.SentBy,
			Memory: r.Memory, Registered: r.Registered, Phases: r.Phases, Lanes: r.Lanes,
			LanesLost: r.LanesLost})
	}
	return f
}

// showJobs shows the job on the terminal.
func showJobs(ctx context.Context, jobs <-chan *live.Job) error {
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return fmt.Errorf("the terminal: %w; --once prints the table", err)
	}
	defer screen.Fini()
	top.Show(ctx, screen, jobs)
	return nil
}
