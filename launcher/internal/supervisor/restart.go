package supervisor

// Restartable reports whether the job may succeed after this failure if all ranks are started again: a rank
// or an agent was lost, and nobody asked for the end.
//
// A rank counts as lost if a signal killed or stopped it, at any time, if it ended between Init and Finalize
// other than by Abort, if it closed its PMI connection without Finalize or broke the protocol, or if a rank
// called Abort that had lost the connection to it or heard of the loss. An exit before Init, as for a wrong
// argument, would recur. After Finalize the status is the program's result, and any other Abort is the
// program's decision.
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
