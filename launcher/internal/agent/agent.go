// Package agent is the interface between the launcher's decisions and the processes. A supervisor makes the
// decisions about a job; an agent runs the job's processes on one host, carries out commands, and reports
// events. The package has the interface and the messages, and does no I/O. Every message is plain data, so
// that it can also be framed and sent over a byte stream to an agent on another host.
//
// A rank goes through these events, each at most once:
//
//	Started, Exited       its process; or NotStarted if it could not be started
//	PMIClosed             after everything that it has sent over PMI
//	OutputEnd             after its last Output; may come before Exited
//
// The agent serves its ranks PMI itself. Requests that concern ranks of other agents are events: Arrived,
// Find, Waits, Aborts, LostPeer and Disturbs.
//
// A rank that was started and cannot be watched has NotStarted after Started, and is killed.
//
// Output may occur any number of times until OutputEnd. Stopped, Continued, InputTaken, Quiet, Moving,
// Answer, Sampled, Recorded and Artifact may occur any number of times, even after Exited.
//
// AllStarted follows the last Started or NotStarted, even if Halt has kept ranks from being started; such a
// rank has no events at all. Lost ends the events of an agent on another host. A rank is over after Exited,
// PMIClosed and OutputEnd.
package agent

// An Agent runs the ranks of one job that live on one host.
//
// Its user calls Do and Close from one goroutine, and keeps receiving from Events until Close has returned or
// it has decided to call Close.
type Agent interface {
	// Do carries out a command. It does not wait for a process, a pipe or a network. Errors are reported as
	// events. A command for a rank that is over, or was never started, does nothing, except that Records
	// are answered. The agent owns the command's slices afterwards.
	Do(Command)

	// Events returns the channel of events. PMI requests, PMI closings and exits of all ranks of the host are
	// in the order in which the kernel saw them: a rank's end comes before its peers' reactions. The cause of
	// a job's failure is found by this order.
	Events() <-chan Event

	// Close kills and reaps the remaining processes of the job on this host, including descendants of ranks,
	// and releases everything. When it returns, none is left, except those that the kernel does not let end
	// within a second. Events after it are dropped.
	Close()
}
