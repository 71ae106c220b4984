package supervisor

// Restartable reports whether a new start of the job's ranks may succeed after this failure: a rank or a host
// was lost, and nobody asked for the end.
//
// A rank counts as lost if a signal killed it, if it ended between Init and Finalize other than by Abort, or
// if a peer that could not reach it called Abort because of that error. A failure before Init, as for a wrong
// argument, would recur. After Finalize the status is the program's result, and Abort is the program's
// decision.
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
