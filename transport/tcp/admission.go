package tcp

import (
	"time"
)

// admission decides which strangers, who have proved nothing yet, keep one of the few places that there are for them. Whoever comes is
// taken in: if every place is taken, another one goes for the newcomer. So strangers who hold on, or come back as soon as they are cut,
// cannot keep the job's own ranks out:
//
//   - Nobody goes before his grace is over, which is time enough for a rank to prove itself. If all are in their grace the newcomer waits
//     in the system's queue. That also limits how many strangers are served in a second, and so what they cost the job.
//   - Who has said nothing that a rank says goes before who has sent a Hello of this job: a rank sends it at once.
//   - Of those left, one of the address with the most places goes, the oldest first.
//
// A rank that has to go all the same is told so, and comes again. The endpoint guards the machine with its lock.
type admission struct {
	places int
	grace  time.Duration
	inside []*stranger // in the order in which they came
}

// stranger is somebody who has not proved who he is.
type stranger struct {
	address string // without the port
	since   time.Time
	greeted bool // has sent a Hello of this job
	ousted  bool // has gone for somebody else
}

// maxStrangers is how many connections that have not proved anything may be open at once.
const maxStrangers = 128

// strangerGrace is the least time that a stranger gets.
const strangerGrace = 50 * time.Millisecond

// room tells how long a newcomer has to wait, unless somebody leaves before: not at all if there is a place, or somebody can go for it.
func (a *admission) room(now time.Time) time.Duration {
	if len(a.inside) < a.places {
		return 0
	}
	return max(0, a.grace-now.Sub(a.inside[0].since))
}

// enter takes a newcomer in, at a time when there is room, and tells who goes for it, if anybody.
func (a *admission) enter(s *stranger, now time.Time) (out *stranger) {
	if len(a.inside) >= a.places {
		out = a.last(now)
		out.ousted = true
		a.leave(out)
	}
	s.since = now
	a.inside = append(a.inside, s)
	return out
}

// last is who goes first when the places are taken.
func (a *admission) last(now time.Time) (out *stranger) {
	of := map[string]int{}
	for _, s := range a.inside {
		of[s.address]++
	}
	for _, s := range a.inside {
		if now.Sub(s.since) < a.grace {
			break // and so are all behind
		}
		if out == nil || out.greeted && !s.greeted || out.greeted == s.greeted && of[s.address] > of[out.address] {
			out = s
		}
	}
	return out
}

// leave gives a place back. It may be called more than once.
func (a *admission) leave(s *stranger) {
	for i, x := range a.inside {
		if x == s {
			a.inside = append(a.inside[:i], a.inside[i+1:]...)
			return
		}
	}
}
