package launcher

import (
	"fmt"
	"os"
	"time"

	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

// recordsTimeout is how long the end of a job waits for the flight recorders of its ranks.
const recordsTimeout = 2 * time.Second

// records writes the ranks' flight recorders, their last communication events (package recorder), into the
// output folder when the job fails, and when the user asks what it does.
type records struct {
	job        *job
	supervisor *supervisor.Supervisor

	asked   map[int]int           // by rank: how often its events are due
	lost    map[int]bool          // ranks whose agents are lost: they are not asked
	writing int                   // files that are being written
	latest  map[int]chan struct{} // by rank: closed when the latest events that have come are written
	written chan error
	until   time.Time // when what is due is given up
	failed  bool      // the job has failed, and they have been asked for
	hinted  bool      // the user has been told of --output-dir
}

func newRecords(j *job, s *supervisor.Supervisor) records {
	return records{job: j, supervisor: s, asked: make(map[int]int), lost: make(map[int]bool),
		latest: make(map[int]chan struct{}), written: make(chan error)}
}

// due reports whether events are still missing.
func (r *records) due(now time.Time) bool {
	return (len(r.asked) > 0 || r.writing > 0) && now.Before(r.until)
}

// next returns when due may change by itself; zero for never.
func (r *records) next() time.Time {
	if !r.due(time.Now()) {
		return time.Time{}
	}
	return r.until
}

// tick requests the events once the job has failed, and says where the failed rank's output is.
func (r *records) tick(now time.Time) {
	cause := r.supervisor.Cause()
	if cause == nil || r.failed {
		return
	}
	r.failed = true
	if j := r.job; j.OutputDir != "" && cause.Rank >= 0 {
		j.output.Notice("what rank %d has written is in %s and %s", cause.Rank,
			j.outputFile(cause.Rank, agent.Stdout), j.outputFile(cause.Rank, agent.Stderr))
	}
	r.record(now, false)
}

// record requests the latest events of all ranks. If there is no folder for them, hint says whether to tell
// the user how to get them.
func (r *records) record(now time.Time, hint bool) {
	if r.job.OutputDir == "" {
		if hint && !r.hinted {
			r.hinted = true
			r.job.output.Notice("--output-dir FOLDER would keep the latest events of each rank there, " +
				"for weft show")
		}
		return
	}
	r.until = now.Add(recordsTimeout)
	var ranks []int
	for id := range r.job.programs.of {
		if !r.lost[id] {
			ranks = append(ranks, id)
			r.asked[id]++ // answers to an earlier request may still come
		}
	}
	r.job.nodes.do(agent.Records{Ranks: ranks})
}

func (r *records) event(now time.Time, e agent.Event) {
	switch e := e.(type) {
	case agent.Lost:
		for _, id := range e.Ranks {
			delete(r.asked, id)
			r.lost[id] = true
		}
	case agent.Recorded:
		if r.asked[e.Rank] == 0 {
			return // not requested
		}
		if r.asked[e.Rank]--; r.asked[e.Rank] == 0 {
			delete(r.asked, e.Rank)
		}
		if len(e.Events) == 0 {
			return // the rank has no recorder
		}
		j := r.job
		origin := recorder.Origin{Rank: e.Rank, Size: len(j.programs.of), Host: j.nodes.of[e.Rank].name,
			PID: r.supervisor.Process(e.Rank).PID, At: now}
		r.writing++
		name := j.rankFile(e.Rank, "events")
		// What has come later replaces what has come before.
		before, done := r.latest[e.Rank], make(chan struct{})
		r.latest[e.Rank] = done
		go func() {
			if before != nil {
				<-before
			}
			err := writeRecord(name, e.Events, origin)
			close(done)
			select {
			case r.written <- err:
			case <-j.over:
			}
		}()
	}
}

// wrote notes that a file was written, or could not be.
func (r *records) wrote(err error) {
	r.writing--
	if err != nil {
		r.job.output.Notice("the latest events of a rank: %v", err)
	}
}

// writeRecord writes the events of one rank, if it has any: a program that does not use weft has none.
func writeRecord(name string, events []byte, o recorder.Origin) error {
	if recorder.Empty(events) {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = recorder.Dump(f, events, o)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
