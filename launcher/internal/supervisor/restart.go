package supervisor

// Restartable reports whether a failure has ended the job after which a new start of its ranks may go well: a
// rank or a host is lost, and nobody has asked for the end.
//
// A rank is lost that a signal has killed, or that has ended between Init and Finalize in any way but by
// Abort; and so is one that a peer could not reach, which then has returned the error, and so has called
// Abort. What ends before Init, as for a wrong argument, would end so again. After Finalize a status is what
// the program has found, and Abort is its own decision.
func (s *Supervisor) Restartable() bool {
	if s.cause == nil {
		return false
	}
	for sig := range s.forwarded {
		if terminating[sig] {
			return false
		}
	}
	switch s.cause.How {
	case Killed, AgentLost, Silent, Unfinished, Disturbed, Stopped:
		return true
	case Exited:
		return s.inJob(s.cause.Rank)
	case Aborted:
		return s.ranks[s.cause.Rank].lostPeer
	}
	return false
}
