// Package wireup is the bootstrap of a rank: the process learns its rank and its job, gets the job's secret,
// and finds its peers. It uses PMI-1.1 with its launcher, or the coordinator's protocol with rank 0 if there
// is no launcher.
package wireup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi/internal/wireup/coordinator"
	"github.com/weft-mpi/weft/transport"
)

// Job is the membership of this process in its job.
type Job struct {
	Identity transport.Identity

	set  setting.Values
	way  way
	weft bool // weft run has started the job

	// for a job that survives failures without weft run
	survives bool
	failures chan os.Signal // the launcher's reports
	cards    []string       // of all ranks; nil if they can be looked up at any time
	ahead    sync.Map       // cards by rank, of LookupAhead

	processes processes
}

// Join joins the job of this process. Without a launcher, the environment gives the rank, and rank 0's
// address in WEFT_COORDINATOR or, with WEFT_SECRET_FILE, in variables of Slurm, Kubernetes, AWS Batch or
// torchrun. Otherwise it is a job of one rank.
func Join(ctx context.Context, set setting.Values) (*Job, error) {
	client, err := pmi.FromEnv()
	if err != nil {
		return nil, err
	}
	if client == nil {
		return joinDirectly(ctx, set)
	}
	j := &Job{set: set, way: launcher{client}}
	if err := j.prepareToSurvive(set); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	ctx, cancel := j.untilFailure(ctx)
	defer cancel()
	secret, err := givenSecret(set)
	j.weft = secret.from == fromPipe
	if err == nil {
		err = client.Init(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	j.Identity = transport.Identity{Job: client.KVSName(), Rank: uint32(client.Rank()),
		Size: uint32(client.Size())}
	if j.Identity.Secret, err = agree(ctx, client, secret); err != nil {
		return nil, errors.Join(err, j.Leave())
	}
	return j, nil
}

// joinDirectly is Join without a launcher.
func joinDirectly(ctx context.Context, set setting.Values) (*Job, error) {
	place, err := findPlace(set, &environment{os.Getenv, os.ReadFile, os.Hostname})
	if err != nil {
		return nil, err
	}
	j := &Job{set: set, way: alone{}}
	if place == nil {
		if err := unreachable(); err != nil {
			return nil, err
		}
		j.Identity = transport.Identity{Job: "alone", Rank: 0, Size: 1}
		_, err := rand.Read(j.Identity.Secret[:])
		return j, err
	}
	if err := j.prepareToSurvive(set); err != nil {
		return nil, err
	}
	place.Survive = j.survives
	client, err := coordinator.Join(ctx, *place)
	if err != nil {
		return nil, err
	}
	j.way = rank0{client}
	j.Identity = transport.Identity{Job: client.KVSName(), Rank: uint32(place.Rank),
		Size: uint32(place.Size), Secret: place.Secret}
	return j, nil
}

func cardKey(rank uint32) string { return "weft-card-" + strconv.Itoa(int(rank)) }

// Publish publishes this rank's addresses, and returns when all peers have published theirs.
func (j *Job) Publish(ctx context.Context, card Card) error {
	ctx, cancel := j.untilFailure(ctx)
	defer cancel()
	card = maps.Clone(card)
	card[kernelKey] = kernel()
	if identity := sys.Identity(); identity != "" {
		card[processKey] = identity
	}
	if err := j.way.Put(ctx, cardKey(j.Identity.Rank), card.String()); err != nil {
		return err
	}
	if err := j.way.Barrier(ctx); err != nil {
		return err
	}
	return j.keepCards(ctx)
}

// Lookup returns the address of a peer's listener for a provider; "" if it has none. It may be called from
// any goroutine.
func (j *Job) Lookup(rank uint32, provider string) (string, error) {
	text, err := j.card(rank)
	var card Card
	if err == nil {
		card, err = ParseCard(text)
	}
	if err != nil {
		return "", fmt.Errorf("addresses of rank %d: %w", rank, err)
	}
	if kernelBound(provider) && card[kernelKey] != kernel() {
		return "", nil
	}
	return card[provider], nil
}

// LookupAhead gets what the launcher knows on this host of the addresses of several peers, so that a Lookup
// of these need not ask.
func (j *Job) LookupAhead(ranks []uint32) {
	l, ok := j.way.(launcher)
	if !ok || j.cards != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	keys := make([]string, len(ranks))
	for i, rank := range ranks {
		keys[i] = cardKey(rank)
	}
	known, err := l.GetKnown(ctx, keys)
	if err != nil {
		return // Lookup gets the error
	}
	for i, rank := range ranks {
		if text, ok := known[keys[i]]; ok {
			j.ahead.Store(rank, text)
		}
	}
}

func (j *Job) card(rank uint32) (string, error) {
	if text, ok := j.ahead.Load(rank); ok {
		return text.(string), nil
	}
	if j.cards == nil {
		ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
		defer cancel()
		return j.way.Get(ctx, cardKey(rank))
	}
	if j.cards[rank] == "" {
		return "", coordinator.ErrNotFound
	}
	return j.cards[rank], nil
}

// answerWithin bounds the wait for the launcher's answers. A barrier has no such bound: it waits for other
// ranks.
const answerWithin = 30 * time.Second

// Barrier waits until every rank of the job has called it. It returns an error when ctx ends; then the
// connection to the launcher is unusable.
func (j *Job) Barrier(ctx context.Context) error {
	return j.way.Barrier(ctx)
}

// Finalize tells the launcher that this rank ends normally.
func (j *Job) Finalize() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	err := j.way.Finalize(ctx)
	var lost *coordinator.LostError
	if j.survives && errors.As(err, &lost) {
		return nil // the job is over already
	}
	return err
}

// Leave drops the connection to the launcher without a farewell, so the launcher considers this rank failed.
func (j *Job) Leave() error {
	return j.way.Close()
}

const (
	// directWithin is how long Abort waits for rank 0 to take it, where there is no launcher.
	directWithin = 2 * time.Second
	// hangUpWithin is how long Abort waits for the launcher's next step. Only a stopped launcher takes so
	// long.
	hangUpWithin = 10 * time.Second
)

// Abort ends the whole job with an exit status.
func (j *Job) Abort(code int) {
	if err := j.way.Abort(code); err != nil {
		fmt.Fprintln(os.Stderr, "weft: the launcher cannot be told to end the job:", err)
	}
}

// PeerLost tells weft's own launcher, or rank 0, that this rank has lost another one, so that the cause of
// the job's failure is sought elsewhere; or, if the number is negative, has heard of a loss. It does not
// wait.
func (j *Job) PeerLost(rank int) { j.way.PeerLost(rank) }
