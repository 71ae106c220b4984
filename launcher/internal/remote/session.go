package remote

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// A session checks an agent's messages against its commands and earlier messages: the order of events that
// package agent promises. The launcher relies on it, and an agent that violates it is lost. A session is used
// by several goroutines.
type session struct {
	mu         sync.Mutex
	asked      map[kind]bool         // questions that wait for an answer, by the kind of the answer
	ranks      map[int]*rankProgress // that were to be started; nil before Start
	allStarted bool
	arrived    bool // all ranks wait in the barrier
}

// rankProgress is what an agent has reported of a rank.
type rankProgress struct {
	started, exited, pmiClosed, outputEnded bool
	inputs                                  int // that it has not been said to have taken
}

func newSession() *session { return &session{asked: make(map[kind]bool)} }

// ask notes that an answer is expected.
func (s *session) ask(answer kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[answer] = true
}

// answer checks that an answer was asked for, and not given yet.
func (s *session) answer(k kind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked[k] {
		return fmt.Errorf("%w: an answer of kind %d that was not asked for", errProtocol, k)
	}
	delete(s.asked, k)
	return nil
}

// command notes a command before it is sent.
func (s *session) command(c agent.Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c := c.(type) {
	case agent.Start:
		s.ranks = make(map[int]*rankProgress)
		for _, r := range c.Ranks {
			s.ranks[r.ID] = new(rankProgress)
		}
	case agent.Release:
		s.arrived = false
	case agent.Input:
		if r := s.ranks[c.Rank]; r != nil {
			r.inputs++
		}
	}
}

// event checks an event, which concerns a rank or, with -1, none.
func (s *session) event(e agent.Event, rank int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rank < 0 {
		if s.ranks == nil {
			return fmt.Errorf("%w: %T before Start", errProtocol, e)
		}
		return once(&s.allStarted, e)
	}
	r := s.ranks[rank]
	if r == nil {
		return fmt.Errorf("%w: an event of rank %d, which is not of this host", errProtocol, rank)
	}
	switch e := e.(type) {
	case agent.Started:
		if s.allStarted {
			return unexpected(e)
		}
		return once(&r.started, e)
	case agent.NotStarted:
		if s.allStarted {
			return unexpected(e)
		}
		return nil
	case agent.Find, agent.Recorded: // the rank may be any, or one that is being started
		return nil
	}
	if !r.started {
		return unexpected(e)
	}
	switch e := e.(type) {
	case agent.Exited:
		return once(&r.exited, e)
	case agent.PMIClosed:
		return once(&r.pmiClosed, e)
	case agent.OutputEnd:
		return once(&r.outputEnded, e)
	case agent.Output:
		if r.outputEnded {
			return unexpected(e)
		}
	case agent.Arrived:
		if s.arrived {
			return unexpected(e)
		}
		s.arrived = !e.More
	case agent.InputTaken:
		if r.inputs == 0 {
			return unexpected(e)
		}
		r.inputs--
	}
	return nil
}

// once notes an event that may happen only once.
func once(happened *bool, e agent.Event) error {
	if *happened {
		return unexpected(e)
	}
	*happened = true
	return nil
}

func unexpected(e agent.Event) error {
	return fmt.Errorf("%w: %T comes out of order, or twice", errProtocol, e)
}

// ended returns the ranks that were to be started, and whether AllStarted has not come.
func (s *session) ended() (ranks []int, starting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.ranks)), !s.allStarted
}
