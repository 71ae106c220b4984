package deadlock

import (
	"slices"
	"strings"
	"time"

	"github.com/weft-mpi/weft/internal/snapshot"
)

const (
	// debounce is how long the detector waits for further ranks to become quiet before it asks them.
	debounce = 100 * time.Millisecond
	// confirmAfter lies between the two sets of snapshots that prove a deadlock.
	confirmAfter = 400 * time.Millisecond
	// answerWithin is how long a rank may take to answer. A rank that is stopped does not.
	answerWithin = time.Second
	// askAgainAfter is the time after which quiet ranks are asked again: a goroutine of the program that
	// might have acted may have ended without a message.
	askAgainAfter = 5 * time.Second
)

// A Report is a report for the user.
type Report struct {
	Title     string
	Lines     []string
	Proven    bool // nothing will ever release the stuck ranks
	Unmoved   bool // nothing has moved for long
	Requested bool // by the user
	Answers   int  // of ranks
}

// Text returns the report as printed without a launcher.
func (r *Report) Text() string {
	return "weft: " + strings.Join(append([]string{r.Title}, r.Lines...), "\nweft: ") + "\n"
}

// A Detector decides when to ask the ranks of a job for snapshots, and what to report. Its caller passes the
// time, calls Tick whenever Next has passed, and Ready after each call.
type Detector struct {
	after time.Duration // time without progress until a report without proof; 0 for never
	ranks []rank

	asking   purpose
	deadline time.Time // of the answers, while asking
	first    Job       // the first set of snapshots, for comparison with the second
	again    time.Time // when to ask next; zero while nothing is due

	reported  []int // the stuck ranks of the latest report of a deadlock
	unmoved   bool  // a report of no progress has been made, and no rank has moved since
	requested bool  // by the user

	ask     []int
	reports []Report
}

// rank is the state of a rank.
type rank struct {
	quiet    bool
	since    time.Time // quiet since then
	ended    bool
	spoke    bool // it has called Init
	asked    bool
	snapshot *snapshot.Rank // the answer to the latest question, nil while there is none
}

// purpose is why the ranks have been asked.
type purpose uint8

const (
	nothing purpose = iota // idle
	suspect                // are quiet ranks stuck? Leads to confirm or to nothing
	confirm                // are they still? Leads to nothing
	explain                // the user asks what the ranks do; leads to nothing
	unmoved                // no progress for long; leads to nothing
)

// NewDetector returns the detector of a job of n ranks. If no rank has made progress for the duration after,
// it reports that, too; 0 means never.
func NewDetector(n int, after time.Duration) *Detector {
	return &Detector{ranks: make([]rank, n), after: after}
}

// Quiet records that a rank waits and does not move.
func (d *Detector) Quiet(now time.Time, id int) {
	r := &d.ranks[id]
	if r.ended {
		return
	}
	r.spoke = true
	if !r.quiet {
		r.quiet, r.since = true, now
	}
	d.askAt(now.Add(debounce))
}

// Moving records that a rank moves.
func (d *Detector) Moving(id int) {
	d.ranks[id].quiet, d.ranks[id].spoke = false, true
	d.reported, d.unmoved = nil, false
}

// Ended records that a rank's process has ended.
func (d *Detector) Ended(now time.Time, id int) {
	r := &d.ranks[id]
	r.ended, r.quiet = true, false
	if slices.ContainsFunc(d.ranks, func(r rank) bool { return r.quiet }) {
		d.askAt(now.Add(debounce))
	}
	d.evaluateIfComplete(now)
}

// Answer handles a rank's snapshot. It drops one that is not of this rank.
func (d *Detector) Answer(now time.Time, id int, s *snapshot.Rank) {
	if r := &d.ranks[id]; r.asked && s.IsOf(id, len(d.ranks)) {
		r.snapshot, r.asked = s, false
		d.evaluateIfComplete(now)
	}
}

// Explain asks all ranks what they do, for the user.
func (d *Detector) Explain(now time.Time) {
	d.requested = true
	if d.asking == nothing {
		d.begin(now, explain, func(*rank) bool { return true })
	}
}

// Stuck returns the ranks of the latest report of a deadlock; none if a rank has moved since.
func (d *Detector) Stuck() []int { return d.reported }

// Next returns when Tick is due; zero if it is not.
func (d *Detector) Next() time.Time {
	if d.asking != nothing {
		return d.deadline
	}
	return d.again
}

// Tick runs the actions that are due.
func (d *Detector) Tick(now time.Time) {
	switch next := d.Next(); {
	case next.IsZero() || now.Before(next):
	case d.asking != nothing:
		d.evaluate(now)
	case d.first != nil:
		d.again = time.Time{}
		d.begin(now, confirm, func(*rank) bool { return true })
	default:
		d.again = time.Time{}
		d.query(now)
	}
}

// Ready returns the ranks to ask, and the reports to print.
func (d *Detector) Ready() (ask []int, reports []Report) {
	ask, reports = d.ask, d.reports
	d.ask, d.reports = nil, nil
	return ask, reports
}

// askAt schedules asking the ranks at a time, unless it is scheduled earlier.
func (d *Detector) askAt(at time.Time) {
	if d.again.IsZero() || at.Before(d.again) {
		d.again = at
	}
}

// query asks ranks if that may yield something: the quiet ones if they may be stuck, or all if none has moved
// for long.
func (d *Detector) query(now time.Time) {
	switch {
	case !slices.ContainsFunc(d.ranks, func(r rank) bool { return r.quiet }):
	case d.longUnmoved(now):
		d.begin(now, unmoved, func(*rank) bool { return true })
	default:
		d.begin(now, suspect, func(r *rank) bool { return r.quiet })
	}
}

// longUnmoved reports whether a rank has been quiet for so long that a report of no progress may be due.
func (d *Detector) longUnmoved(now time.Time) bool {
	return d.after > 0 && !d.unmoved && slices.ContainsFunc(d.ranks, func(r rank) bool {
		return r.quiet && now.Sub(r.since) >= d.after
	})
}

// begin asks the live ranks for which meant returns true.
func (d *Detector) begin(now time.Time, why purpose, meant func(*rank) bool) {
	d.asking, d.deadline = why, now.Add(answerWithin)
	for id := range d.ranks {
		r := &d.ranks[id]
		r.snapshot = nil
		if r.asked = !r.ended && meant(r); r.asked {
			d.ask = append(d.ask, id)
		}
	}
	d.evaluateIfComplete(now)
}

func (d *Detector) evaluateIfComplete(now time.Time) {
	missing := func(r rank) bool { return r.asked && !r.ended }
	if d.asking != nothing && !slices.ContainsFunc(d.ranks, missing) {
		d.evaluate(now)
	}
}

// state returns the state of the job by the answers.
func (d *Detector) state() Job {
	j := make(Job, len(d.ranks))
	for id := range d.ranks {
		j[id] = d.ranks[id].snapshot
		if d.ranks[id].ended {
			j[id] = &snapshot.Rank{Rank: id, Size: len(d.ranks), Phase: snapshot.Finished}
		}
		d.ranks[id].asked = false
	}
	starting := func(r *snapshot.Rank) bool { return r != nil && r.Phase == snapshot.Starting }
	if slices.ContainsFunc(j, starting) {
		for id := range j {
			if j[id] == nil && !d.ranks[id].spoke {
				j[id] = &snapshot.Rank{Rank: id, Size: len(d.ranks), Phase: snapshot.NotBegun}
			}
		}
	}
	return j
}

// evaluate evaluates the answers.
func (d *Detector) evaluate(now time.Time) {
	why, job := d.asking, d.state()
	d.asking = nothing
	d.askAt(now.Add(askAgainAfter)) // unless a rank that became quiet meanwhile has scheduled it sooner
	if d.requested {
		// For any purpose, the answers also serve the user, if they are from all ranks.
		if why == suspect {
			d.begin(now, explain, func(*rank) bool { return true })
			return
		}
		d.requested = false
		d.report("what the ranks do", job, explain)
	}
	stuck := job.Stuck()
	switch {
	case why == confirm:
		first := d.first
		d.first = nil
		if len(stuck) > 0 && SameProgress(first, job, stuck) && !job.InFlight(stuck) {
			d.reported, d.unmoved = stuck, true
			d.report(Title(stuck, len(d.ranks)), job, confirm)
		} else if slices.ContainsFunc(stuck, func(rank int) bool { return first[rank] == nil }) {
			d.first, d.again = job, now.Add(confirmAfter) // these ranks were not asked the first time
		} else if d.longUnmoved(now) {
			d.checkUnmoved(now, job)
		}
	case why != explain && len(stuck) > 0 && !slices.Equal(stuck, d.reported):
		d.first, d.again = job, now.Add(confirmAfter)
	case why == unmoved:
		d.checkUnmoved(now, job)
	}
	d.dueAfter(now)
}

func (d *Detector) report(title string, job Job, why purpose) {
	r := Report{Title: title, Lines: job.Report(), Proven: why == confirm, Unmoved: why == unmoved,
		Requested: why == explain}
	for id := range job {
		if job[id] != nil && job[id].Phase != snapshot.NotBegun && !d.ranks[id].ended {
			r.Answers++
		}
	}
	d.reports = append(d.reports, r)
}

// checkUnmoved reports a job in which no rank has moved for long. A rank that does not answer has not moved.
func (d *Detector) checkUnmoved(now time.Time, job Job) {
	stillFor := d.after
	for id, r := range job {
		if r != nil && r.Phase != snapshot.NotBegun && !d.ranks[id].ended {
			stillFor = min(stillFor, r.Still)
		}
	}
	if stillFor < d.after {
		d.askAt(now.Add(d.after - stillFor))
		return
	}
	d.unmoved = true
	d.report("nothing has moved for "+d.after.String()+"; what the ranks do", job, unmoved)
}

// dueAfter schedules the check for a job that has not moved for long.
func (d *Detector) dueAfter(now time.Time) {
	if d.after == 0 || d.unmoved {
		return
	}
	for i := range d.ranks {
		if r := &d.ranks[i]; r.quiet && now.Before(r.since.Add(d.after)) {
			d.askAt(r.since.Add(d.after))
		}
	}
}

// Title returns the line that says that ranks of a job of some size can never go on.
func Title(stuck []int, size int) string {
	if len(stuck) == size {
		return "deadlock: no rank can ever go on"
	}
	return "deadlock: " + Ranks(stuck) + " can never go on"
}
