package wireup

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/weft-mpi/weft/mpi/internal/wireup/coordinator"
	"github.com/weft-mpi/weft/transport"
)

// Meeting is the bootstrap of a job whose ranks are all in this process.
type Meeting struct {
	name    string
	size    int
	secret  [32]byte
	aborted func(rank, code int)

	// Survives is set, before Join, if the job survives failures.
	Survives bool

	// Via, if not nil, changes the addresses of a rank before others see them. It is set before Join.
	Via func(rank int, card Card)

	mu     sync.Mutex
	values map[string]string
	waits  int           // number of ranks in the barrier
	passed chan struct{} // closed when they leave it
}

// NewMeeting returns the meeting of a job. aborted is called when a rank ends the job with a status.
func NewMeeting(name string, size int, aborted func(rank, code int)) *Meeting {
	m := &Meeting{name: name, size: size, aborted: aborted, values: map[string]string{},
		passed: make(chan struct{})}
	rand.Read(m.secret[:])
	return m
}

// Join returns the Job of a rank.
func (m *Meeting) Join(rank int) *Job {
	return &Job{
		Identity: transport.Identity{Job: m.name, Rank: uint32(rank), Size: uint32(m.size), Secret: m.secret},
		way:      &attendee{Meeting: m, rank: rank}, survives: m.Survives,
	}
}

// Together reports whether all ranks of the job are in this process.
func (j *Job) Together() bool {
	_, ok := j.way.(*attendee)
	return ok
}

// attendee is the way of a rank of a Meeting.
type attendee struct {
	alone
	*Meeting

	rank int
}

func (a *attendee) local() int { return a.size }

func (a *attendee) Put(_ context.Context, key, value string) error {
	if a.Via != nil && key == cardKey(uint32(a.rank)) {
		card, err := ParseCard(value)
		if err != nil {
			return err
		}
		a.Via(a.rank, card)
		value = card.String()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.values[key] = value
	return nil
}

func (a *attendee) Get(_ context.Context, key string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	value, ok := a.values[key]
	if !ok {
		return "", fmt.Errorf("%w: %s", coordinator.ErrNotFound, key)
	}
	return value, nil
}

func (a *attendee) Barrier(ctx context.Context) error {
	a.mu.Lock()
	passed := a.passed
	if a.waits++; a.waits == a.size {
		a.waits, a.passed = 0, make(chan struct{})
		close(passed)
	}
	a.mu.Unlock()
	select {
	case <-passed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *attendee) Abort(code int) error {
	a.aborted(a.rank, code)
	return nil
}
