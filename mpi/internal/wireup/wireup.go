// Package wireup is how a process learns which rank of which job it is, gets the job's secret, and finds its peers. It speaks
// PMI-1.1 to whichever launcher started it.
package wireup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/pmi"
	"github.com/weft-mpi/weft/transport"
)

// Job is this process's place in its job.
type Job struct {
	Identity transport.Identity

	client *pmi.Client // nil in a world of one that nobody launched
}

// Join finds out who we are. Without a launcher it is rank 0 of 1.
func Join(ctx context.Context) (*Job, error) {
	client, err := pmi.FromEnv()
	if err != nil {
		return nil, err
	}
	j := &Job{client: client}
	if client == nil {
		if err := unreachable(); err != nil {
			return nil, err
		}
		j.Identity = transport.Identity{Job: "alone", Rank: 0, Size: 1}
		_, err := rand.Read(j.Identity.Secret[:])
		return j, err
	}
	secret, err := givenSecret()
	if err == nil {
		err = client.Init(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	j.Identity = transport.Identity{Job: client.KVSName(), Rank: uint32(client.Rank()), Size: uint32(client.Size())}
	if j.Identity.Secret, err = agree(ctx, client, secret); err != nil {
		return nil, errors.Join(err, j.Leave())
	}
	return j, nil
}

func cardKey(rank uint32) string { return "weft-card-" + strconv.Itoa(int(rank)) }

// Publish tells the peers our addresses, and returns when all of them have told theirs.
func (j *Job) Publish(ctx context.Context, card Card) error {
	if j.client == nil {
		return nil
	}
	if err := j.client.Put(ctx, cardKey(j.Identity.Rank), card.String()); err != nil {
		return err
	}
	return j.client.Barrier(ctx)
}

// Lookup is the address of a peer's endpoint of a provider; "" if it has none. It may be called from any goroutine.
func (j *Job) Lookup(rank uint32, provider string) (string, error) {
	if j.client == nil {
		return "", fmt.Errorf("no rank %d in a world of one", rank)
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	text, err := j.client.Get(ctx, cardKey(rank))
	var card Card
	if err == nil {
		card, err = ParseCard(text)
	}
	if err != nil {
		return "", fmt.Errorf("addresses of rank %d: %w", rank, err)
	}
	return card[provider], nil
}

// answerWithin bounds what the launcher answers at once. A barrier has no such bound: it waits for other ranks.
const answerWithin = 30 * time.Second

// Barrier returns when every rank of the job has called it, or with an error when ctx ends; the launcher cannot be spoken to after that.
func (j *Job) Barrier(ctx context.Context) error {
	if j.client == nil {
		return nil
	}
	return j.client.Barrier(ctx)
}

// Finalize tells the launcher that this rank ends as it should.
func (j *Job) Finalize() error {
	if j.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	return j.client.Finalize(ctx)
}

// Leave drops the connection to the launcher without a word: to it this rank has failed.
func (j *Job) Leave() error {
	if j.client == nil {
		return nil
	}
	return j.client.Close()
}

// Abort asks the launcher to end the whole job with an exit status.
func (j *Job) Abort(code int) {
	if j.client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
		defer cancel()
		if err := j.client.Abort(ctx, code); err != nil {
			fmt.Fprintln(os.Stderr, "weft: the launcher cannot be told to end the job:", err)
		}
	}
}

// SpinFor is how long a waiting rank may poll before it sleeps: a while where it has a core for itself, not at all where ranks
// share cores. weft's own launcher tells; under another one it is reckoned from the ranks of this machine.
func (j *Job) SpinFor() (time.Duration, error) {
	cores, err := setting.CoresPerRank.Int(0, 1<<16)
	if err != nil {
		return 0, err
	}
	if local, err := strconv.Atoi(os.Getenv("MPI_LOCALNRANKS")); err == nil && local > topology.Online() {
		cores = 0
	}
	if cores == 0 {
		return 0, nil
	}
	return spinFor, nil
}

// spinFor is longer than it takes to copy some MiB, and short beside what is worth sleeping for: to wake a rank costs some 50 µs.
const spinFor = 2 * time.Millisecond

// Lanes is how many connections to each peer there are, and whether one that was lost is made again.
func Lanes() (n int, reconnect bool, err error) {
	if n, err = setting.Lanes.Int(1, setting.MostLanes); err == nil {
		reconnect, err = setting.Reconnect.On()
	}
	return n, reconnect, err
}

// Ports are the bounds of the ports to listen on; 0, 0 lets the system choose.
func Ports() (low, high int, err error) {
	s := setting.Ports.String()
	if s == "0" {
		return 0, 0, nil
	}
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		b = a
	}
	low, err1 := strconv.Atoi(a)
	high, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || low < 1 || high > 65535 || low > high {
		return 0, 0, fmt.Errorf("%s=%q: not LOW-HIGH with ports from 1 to 65535, nor 0", setting.Ports.Name, s)
	}
	return low, high, nil
}
