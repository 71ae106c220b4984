package wireup

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi/internal/wireup/coordinator"
)

// Support for jobs that survive failures but were not started by weft run. Hydra with -disable-auto-cleanup
// sends SIGUSR1 to all ranks when a rank fails; the default action would kill the process. Hydra itself exits
// if a rank dies while it waits for a PMI reply, so ranks send no PMI requests between Init and Finalize.
// Failed ranks are detected by their connections, or reported by rank 0 if it is the coordinator.

// errBeforeStart ends Init, because the launcher's barrier would wait for the failed rank forever.
var errBeforeStart = errors.New("a rank has failed before all ranks had come to Init")

// prepareToSurvive is called before the first PMI request.
func (j *Job) prepareToSurvive(set setting.Values) error {
	survive, err := set.Of(setting.Survive).On()
	if err != nil || !survive || underWeft() {
		return err
	}
	j.survives = true
	if j.UnderPMI() {
		j.failures = make(chan os.Signal, 1)
		signal.Notify(j.failures, syscall.SIGUSR1)
	}
	return nil
}

// SurvivesAlone reports whether the job survives failures and was not started by weft run. Its ranks then
// detect failures by their connections, or hear of them from the launcher's signal or from rank 0. The
// barriers of a PMI launcher wait for failed ranks, too.
func (j *Job) SurvivesAlone() bool { return j.survives }

// lateAnswer bounds the wait in Init for the launcher's answer after the report of a failed rank. If that
// rank had left Init, the answer is in flight.
const lateAnswer = 2 * time.Second

// untilFailure returns a context that ends lateAnswer after the launcher has reported a failed rank.
func (j *Job) untilFailure(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if j.failures != nil {
		go func() {
			select {
			case s := <-j.failures:
				select {
				case j.failures <- s: // for the next wait
				default:
				}
				select {
				case <-time.After(lateAnswer):
					cancel(errBeforeStart)
				case <-ctx.Done():
				}
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// keepCards looks up and stores the addresses of all ranks, since they cannot be looked up later. It returns
// when all ranks have them.
func (j *Job) keepCards(ctx context.Context) error {
	if !j.survives {
		return nil
	}
	j.cards = make([]string, j.Identity.Size)
	for rank := range j.Identity.Size {
		text, err := j.way.Get(ctx, cardKey(rank))
		if err != nil && !errors.Is(err, coordinator.ErrNotFound) { // the rank has failed already
			return err
		}
		j.cards[rank] = text
	}
	return j.way.Barrier(ctx)
}

// WhenFailed calls failed, from a goroutine, for each failed rank that rank 0 reports.
func (j *Job) WhenFailed(failed func(rank int, why error)) {
	direct, ok := j.way.(rank0)
	if !ok || !j.survives {
		return
	}
	go func() {
		for lost := range direct.Casualties() {
			failed(lost.Rank, lost)
		}
	}()
}
