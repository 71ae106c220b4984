package remote

import "time"

// Both sides send Alive once a period, whatever else they send.
const period = 250 * time.Millisecond

const (
	// agentSilence is how many periods an agent may be silent before its host counts as lost.
	agentSilence = 7
	// launcherSilence is how many periods a launcher may be silent before its agent ends the ranks. A
	// launcher whose process ends closes the stream, so this is for a network that is gone.
	launcherSilence = 40
	// EndsWithin is how long ranks of a host may live after its agent has fallen silent, if it is only cut
	// off: until the agent has noticed the launcher's silence and has killed its ranks.
	EndsWithin = (launcherSilence+2)*period + 2*time.Second
)

// keepalive counts periods in which nothing was received. Only periods count in which this process itself
// ran: one that was stopped, or waited long for a processor, could not have received anything.
type keepalive struct {
	last   time.Time
	missed int
}

// received notes that something was received.
func (s *keepalive) received() { s.missed = 0 }

// tick counts a period and returns how many in a row were silent.
func (s *keepalive) tick(now time.Time) int {
	late := !s.last.IsZero() && now.Sub(s.last) > 2*period
	s.last = now
	if !late {
		s.missed++
	}
	return s.missed
}
