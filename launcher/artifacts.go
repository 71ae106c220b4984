package launcher

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
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
	// maxArtifacts is the maximum size of the artifacts of all ranks together, in bytes.
	maxArtifacts = 2 << 30
	// maxCallSites is the maximum number of lines of the table of calls.
	maxCallSites = 200
	// stacksBefore is how long before the job's timeout the ranks are asked for their stacks, or a tenth of
	// the timeout if that is less.
	stacksBefore = time.Second
)

// artifacts are what the ranks have sent to the launcher: profiles, call sites, traces and stacks.
type artifacts struct {
	job        *job
	supervisor *supervisor.Supervisor

	of      [snapshot.Artifacts]map[int]*artifact // by rank
	keepAll [snapshot.Artifacts]bool              // not only the latest one of each rank
	size    int

	stacksAt time.Time // when to ask for stacks; zero for never
	told     bool      // where the ranks were at the timeout
}

// artifact is what one rank has sent of one kind.
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

// add adds a part of a rank's artifact. An artifact that is too large is dropped.
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

// all returns the complete artifacts of a rank.
func (d *artifacts) all(what snapshot.Artifact, rank int) [][]byte {
	if a := d.of[what][rank]; a != nil {
		return a.complete
	}
	return nil
}

// latest returns the last of all; nil if there is none.
func (d *artifacts) latest(what snapshot.Artifact, rank int) []byte {
	if all := d.all(what, rank); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// tell shows the user the artifacts when the job is over. It returns an error if one could not be written.
func (d *artifacts) tell() (lost *Failure) {
	if d.job.Report {
		for _, line := range d.callReport() {
			d.job.output.Notice("%s", line)
		}
	}
	if d.job.Trace != "" {
		lost = d.tellTrace()
	}
	if d.job.Profile == "" {
		return lost
	}
	missing, err := d.writeProfile()
	switch {
	case err != nil:
		lost = d.lose("profile", err)
	case len(missing) == len(d.job.programs.of):
		d.job.output.Notice("no rank has left a profile: none has called Init, or all were killed")
	default:
		d.job.output.Notice("the profile of %s is in %s%s; go tool pprof shows it",
			plural.Count(len(d.job.programs.of)-len(missing), "rank"), d.job.ProfileFile, without(missing))
	}
	return lost
}

// without is the end of a line about all ranks: the ranks of which something is missing, if there are any.
func without(missing []int) string {
	if len(missing) == 0 {
		return ""
	}
	return ", without " + deadlock.Ranks(missing)
}

// lose reports a file that could not be written, which makes the job fail.
func (d *artifacts) lose(what string, err error) *Failure {
	f := &Failure{How: OutputLost, Rank: -1, Detail: fmt.Sprintf("the %s cannot be written: %v", what, err)}
	d.job.output.Notice("%v", f)
	return f
}

// writeProfile writes one file with the profiles of all ranks, whose samples are labelled with rank and host.
// It returns the ranks without a profile.
func (d *artifacts) writeProfile() (missing []int, err error) {
	var all []*profile.Profile
	for id := range d.job.programs.of {
		known := len(all)
		for _, data := range d.all(snapshot.Profile, id) {
			p, err := profile.ParseData(data)
			if err != nil {
				continue
			}
			for _, s := range p.Sample {
				if s.Label == nil {
					s.Label = map[string][]string{}
				}
				s.Label["rank"], s.Label["host"] = []string{fmt.Sprint(id)}, []string{d.job.nodes.of[id].name}
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
	return missing, outfile.Write(d.job.ProfileFile, merged.Write)
}

// callReport returns the table of calls by rank and call site, the longest first.
func (d *artifacts) callReport() []string {
	type row struct {
		rank int
		snapshot.CallSite
	}
	var rows []row
	var missing []int
	for id := range d.job.programs.of {
		var sites []snapshot.CallSite
		if json.Unmarshal(d.latest(snapshot.CallSites, id), &sites) != nil {
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

// expectTimeout sets the time at which the ranks are asked for their stacks.
func (d *artifacts) expectTimeout(now time.Time) {
	if d.job.Timeout > 0 {
		d.stacksAt = now.Add(d.job.Timeout - min(stacksBefore, d.job.Timeout/10))
	}
}

// tick asks the ranks for their stacks when the job is close to its timeout. After the timeout, tick prints
// what each rank did, and writes the stacks to files if there is an output folder.
func (d *artifacts) tick(now time.Time) {
	j, s := d.job, d.supervisor
	if !d.stacksAt.IsZero() && !now.Before(d.stacksAt) {
		d.stacksAt = time.Time{}
		var ranks []int
		for id := range j.live.ranks {
			if s.Process(id).Running() {
				j.live.ranks[id].asked = true
				ranks = append(ranks, id)
			}
		}
		j.nodes.do(agent.Ask{Ranks: ranks, Question: snapshot.AskSample},
			agent.Ask{Ranks: ranks, Question: snapshot.AskStacks})
	}
	if cause := s.Cause(); cause == nil || cause.How != TimedOut || d.told {
		return
	}
	d.told = true
	told := false
	for id := range j.live.ranks {
		r := j.live.describe(id)
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
		file, err := d.writeStacks(id)
		if err != nil {
			text += fmt.Sprintf("; its stacks: %v", err)
		} else if file != "" {
			text += "; its stacks are in " + file
		}
		j.output.Notice("rank %d was %s", id, text)
	}
	if j.OutputDir == "" && told {
		j.output.Notice("--output-dir FOLDER would keep the stacks of each rank's goroutines there, and " +
			"its latest events")
	}
}

// writeStacks writes the stacks of a rank's goroutines into the output folder. It returns no name if there is
// no such folder, or the rank has not answered.
func (d *artifacts) writeStacks(id int) (string, error) {
	stacks := d.latest(snapshot.Stacks, id)
	if d.job.OutputDir == "" || stacks == nil {
		return "", nil
	}
	name := d.job.rankFile(id, "stacks")
	return name, os.WriteFile(name, stacks, 0o666)
}
