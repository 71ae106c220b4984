// Package supervisor makes the decisions about a job: whether it has failed and why, when and how to end it,
// and when it is over. It is a state machine without I/O. Events of the job's agents, signals and the time go
// in; commands for the agents and notices for the user come out. It does not know processes, pipes and
// clocks.
package supervisor
