// Package supervisor decides about a job: whether it has failed and by whose doing, when it is ended and how,
// and when it is over. It is a state machine without I/O. Events of the job's agents, signals and the passing
// of time go in; commands for the agents and notices for the user come out. It knows nothing of processes,
// pipes and clocks.
package supervisor
