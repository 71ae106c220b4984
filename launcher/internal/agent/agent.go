// Package agent is the border inside the launcher between deciding and doing. A supervisor decides about a
// job; an agent runs the job's processes on one host, does what it is told, and reports what happens. The
// package holds the interface and the messages and does no I/O. Every message is plain data, so that it can
// also be framed and sent over a byte stream to an agent on another host.
//
// A rank goes through these events, each at most once:
//
//	Started, Exited       its process; NotStarted in place of both where it could not be started
//	PMIClosed             after everything that it has said over PMI
//	OutputEnd             after its last Output, and never before Exited
//
// The agent serves its ranks PMI by itself. What concerns ranks of other agents comes as events: Arrived,
// Find, Waits, Aborts, LostPeer and Disturbs.
//
// Quiet, Moving, Answer, Sampled, Recorded and Artifact may come any number of times, and after Exited too.
//
// AllStarted follows the last Started or NotStarted, also where Halt has kept ranks from being started; such
// a rank has no events at all. A rank is over when it has Exited and has had PMIClosed and OutputEnd.
package agent

// An Agent runs the ranks of one job that live on one host.
//
// Its user calls Do and Close from one goroutine, and keeps receiving from Events until Close has returned or
// it has decided to call Close.
type Agent interface {
	// Do carries out a command. It does not wait: not for a process, a pipe or a network. What goes wrong is
	// an event. A command that names a rank which is over, or was never started, does nothing. The agent owns
	// the command's slices afterwards.
	Do(Command)

	// Events are what happens to the ranks. What they say over PMI, PMI closings and exits of all ranks of
	// the host are in the order in which the kernel saw them: a rank's end comes before what its peers do
	// about it. The cause of a job's failure is found by this order.
	Events() <-chan Event

	// Close kills and reaps what is left of the job on this host, including descendants of ranks, and
	// releases everything. When it returns, nothing of the job is left, except what the kernel does not let
	// go within a second. Events after it are dropped.
	Close()
}
