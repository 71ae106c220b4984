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

// What a job needs that goes on when ranks fail, and that weft run has not started. Hydra with
// -disable-auto-cleanup sends SIGUSR1 to all ranks when one has failed, which ends a process that does not
// expect it. It ends itself if a rank dies that waits for its answer: so nothing is asked of it between Init
// and Finalize. Who has failed show connections; rank 0 tells it where it coordinates the ranks.

// errBeforeStart ends Init: the launcher's barrier waits for the rank for ever.
var errBeforeStart = errors.New("a rank has failed before all ranks had come to Init")

// prepareToSurvive is called before the launcher is spoken to.
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

// SurvivesAlone reports whether the job goes on when ranks fail, under a launcher whose barriers wait for
// them all the same.
func (j *Job) SurvivesAlone() bool { return j.survives }

// lateAnswer is how long a rank waits in Init for the launcher's answer after it has been told of a failed
// rank. If that rank had left Init the answer is on its way.
const lateAnswer = 2 * time.Second

// untilFailure is a context that ends some time after the launcher has told of a failed rank.
func (j *Job) untilFailure(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if j.failures != nil {
		go func() {
			select {
			case s := <-j.failures:
				select {
				case j.failures <- s: // for whatever waits next
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

// keepCards looks up the addresses of all ranks, for the time when nobody can be asked. It returns when all
// ranks have them.
func (j *Job) keepCards(ctx context.Context) error {
	if !j.survives {
		return nil
	}
	j.cards = make([]string, j.Identity.Size)
	for rank := range j.Identity.Size {
		text, err := j.way.Get(ctx, cardKey(rank))
		if err != nil && !errors.Is(err, coordinator.ErrNotFound) { // of one that has failed already
			return err
		}
		j.cards[rank] = text
	}
	return j.way.Barrier(ctx)
}

// WhenFailed has a function called, from a goroutine, for each rank that has failed as rank 0 tells.
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
