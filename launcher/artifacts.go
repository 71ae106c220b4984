package launcher

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/pprof/profile"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/live"
	"github.com/weft-mpi/weft/internal/outfile"
	"github.com/weft-mpi/weft/internal/plural"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

const (
	// maxArtifacts bounds what all ranks of a job leave with the launcher, in bytes.
	maxArtifacts = 2 << 30
	// maxCallSites bounds the lines of the table of calls.
	maxCallSites = 200
	// stacksBefore is how long before the end of a job by its timeout the ranks are asked where they are, or
	// a tenth of the timeout.
	stacksBefore = time.Second
)

// artifacts are what the ranks have left with the launcher.
type artifacts struct {
	job        *job
	supervisor *supervisor.Supervisor

	of      [snapshot.Artifacts]map[int]*artifact // by rank
	keepAll [snapshot.Artifacts]bool              // not only the latest one of each rank
	size    int

	stacksAt time.Time // when to ask for stacks; zero for never
	told     bool      // where the ranks were at the timeout
}

// artifact is what one rank has left of one kind.
type artifact struct {
	parts    []byte   // of one that is not complete
	tooMuch  bool     // which is dropped
	complete [][]byte // from the first to the latest
}

func (d *artifacts) event(_ time.Time, e agent.Event) {
	if e, is := e.(agent.Artifact); is {
		d.add(e)
	}
}

func (d *artifacts) next() time.Time { return d.stacksAt }

// add takes a part of what a rank leaves. What is too much is dropped, with the artifact that it belongs to.
func (d *artifacts) add(e agent.Artifact) {
	if e.What == 0 || e.What >= snapshot.Artifacts {
		return
	}
	if d.of[e.What] == nil {
		d.of[e.What] = map[int]*artifact{}
	}
	a := d.of[e.What][e.Rank]
	if a == nil {
		a = new(artifact)
		d.of[e.What][e.Rank] = a
	}
	if len(a.parts)+len(e.Data) > snapshot.MaxArtifact || d.size+len(e.Data) > maxArtifacts {
		a.tooMuch = true
	}
	if a.tooMuch {
		d.size -= len(a.parts)
		a.parts, a.tooMuch = nil, !e.Last
		return
	}
	d.size += len(e.Data)
	if a.parts = append(a.parts, e.Data...); !e.Last {
		return
	}
	if !d.keepAll[e.What] {
		for _, old := range a.complete {
			d.size -= len(old)
		}
		a.complete = nil
	}
	a.complete, a.parts = append(a.complete, a.parts), nil
}

// all is what a rank has left that is complete.
func (d *artifacts) all(what snapshot.Artifact, rank int) [][]byte {
	if a := d.of[what][rank]; a != nil {
		return a.complete
	}
	return nil
}

// latest is the last one of all; nil where there is none.
func (d *artifacts) latest(what snapshot.Artifact, rank int) []byte {
	if all := d.all(what, rank); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// tellArtifacts shows the user what the ranks have left, when the job is over. It returns what of it could
// not be written, nil as a rule.
func (j *job) tellArtifacts() (lost *Failure) {
	if j.CallReport {
		for _, line := range j.callReport() {
			j.output.Notice("%s", line)
		}
	}
	defer j.output.Flush(flushTimeout)
	if j.Trace != "" {
		lost = j.tellTrace()
	}
	if j.Profile == "" {
		return lost
	}
	missing, err := j.writeProfile()
	switch {
	case err != nil:
		lost = j.lose("profile", err)
	case len(missing) == len(j.programOf):
		j.output.Notice("no rank has left a profile: none has called Init, or all were killed")
	default:
		text := ""
		if len(missing) > 0 {
			text = fmt.Sprintf(", without %s", deadlock.Ranks(missing))
		}
		j.output.Notice("the profile of %s is in %s%s; go tool pprof shows it",
			plural.Count(len(j.programOf)-len(missing), "rank"), j.ProfileFile, text)
	}
	return lost
}

// lose tells of a file that could not be written, which makes the job fail.
func (j *job) lose(what string, err error) *Failure {
	f := &Failure{How: OutputLost, Rank: -1, Detail: fmt.Sprintf("the %s cannot be written: %v", what, err)}
	j.output.Notice("%v", f)
	return f
}

// writeProfile writes one file of the profiles of all ranks, whose samples are labelled with rank and host.
// It returns the ranks that have none.
func (j *job) writeProfile() (missing []int, err error) {
	var all []*profile.Profile
	for id := range j.programOf {
		known := len(all)
		for _, data := range j.artifacts.all(snapshot.Profile, id) {
			p, err := profile.ParseData(data)
			if err != nil {
				continue
			}
			for _, s := range p.Sample {
				if s.Label == nil {
					s.Label = map[string][]string{}
				}
				s.Label["rank"], s.Label["host"] = []string{fmt.Sprint(id)}, []string{j.nodeOf[id].name}
			}
			all = append(all, p)
		}
		if len(all) == known {
			missing = append(missing, id)
		}
	}
	if len(all) == 0 {
		return missing, nil
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return missing, err
	}
	return missing, outfile.Write(j.ProfileFile, merged.Write)
}

// callReport is the table of calls by rank and place, the longest first.
func (j *job) callReport() []string {
	type row struct {
		rank int
		snapshot.CallSite
	}
	var rows []row
	var missing []int
	for id := range j.programOf {
		var sites []snapshot.CallSite
		if json.Unmarshal(j.artifacts.latest(snapshot.CallSites, id), &sites) != nil {
			missing = append(missing, id)
		}
		for _, s := range sites {
			rows = append(rows, row{id, s})
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(-cmp.Compare(a.Time, b.Time), cmp.Compare(a.rank, b.rank), cmp.Compare(a.Site, b.Site))
	})
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RANK\tCALL\tSITE\tCOUNT\tBYTES\tTIME\tWAITING")
	for _, r := range rows[:min(len(rows), maxCallSites)] {
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%v\t%v\n", r.rank, r.Call, r.Site, r.Count, r.Bytes,
			r.Time.Round(time.Microsecond), r.Waiting.Round(time.Microsecond))
	}
	w.Flush()
	lines := append([]string{"calls by rank and place, the longest first"},
		strings.Split(strings.TrimSpace(b.String()), "\n")...)
	if n := len(rows) - maxCallSites; n > 0 {
		lines = append(lines, fmt.Sprintf("%s more", plural.Count(n, "place")))
	}
	if len(missing) > 0 {
		lines = append(lines, fmt.Sprintf("without %s", deadlock.Ranks(missing)))
	}
	return lines
}

// expectTimeout settles when the ranks are asked where they are.
func (j *job) expectTimeout(now time.Time) {
	if j.Timeout > 0 {
		j.artifacts.stacksAt = now.Add(j.Timeout - min(stacksBefore, j.Timeout/10))
	}
}

// tick asks the ranks where they are when the job has almost taken too long, and tells it when it has.
func (d *artifacts) tick(now time.Time) {
	j, s := d.job, d.supervisor
	if !d.stacksAt.IsZero() && !now.Before(d.stacksAt) {
		d.stacksAt = time.Time{}
		var ranks []int
		for id := range j.live.ranks {
			if r := &j.live.ranks[id]; r.pid != 0 && !r.ended {
				r.asked = true
				ranks = append(ranks, id)
			}
		}
		j.do(agent.Ask{Ranks: ranks, Question: snapshot.AskSample},
			agent.Ask{Ranks: ranks, Question: snapshot.AskStacks})
	}
	if cause := s.Cause(); cause == nil || cause.How != TimedOut || d.told {
		return
	}
	d.told = true
	told := false
	for id := range j.live.ranks {
		r := j.live.ranks[id].describe()
		if r.State == live.Ended || r.State == live.Silent {
			continue // the cause names the ranks that still run
		}
		told = true
		text := string(r.State)
		if r.Call != "" {
			text += ", " + r.Call
			if since := r.For.Round(100 * time.Millisecond); since > 0 {
				text += fmt.Sprintf(", for %v", since)
			}
		}
		file, err := j.writeStacks(id)
		if err != nil {
			text += fmt.Sprintf("; its stacks: %v", err)
		} else if file != "" {
			text += "; its stacks are in " + file
		}
		j.output.Notice("rank %d was %s", id, text)
	}
	if j.Output == "" && told {
		j.output.Notice("--output-dir FOLDER would keep the stacks of each rank's goroutines there, and " +
			"its latest events")
	}
}

// writeStacks writes the stacks of a rank's goroutines into the folder for output. It returns no name where
// there is no such folder, or the rank has not told.
func (j *job) writeStacks(id int) (string, error) {
	stacks := j.artifacts.latest(snapshot.Stacks, id)
	if j.Output == "" || stacks == nil {
		return "", nil
	}
	width := len(fmt.Sprint(len(j.programOf) - 1))
	name := filepath.Join(j.Output, fmt.Sprintf("rank.%0*d.stacks", width, id))
	return name, os.WriteFile(name, stacks, 0o666)
}
