// Package agree has the ranks of a communicator agree on a value while ranks fail. It is a state machine
// without I/O: contributions, messages and failures go in, messages to send come out
// (docs/internals/spec/agree.md).
//
// The agreement is uniform: all ranks that return from it return the same value, including those that fail
// right afterwards. It terminates if each failure becomes known to every rank that waits for the failed one.
//
// The members form a binary tree by their index in the communicator, as in a heap. The root is the lowest
// member that is not known to have failed, and its index is the ballot. Four sweeps make an agreement:
//
//	UP       from the leaves: a promise to take no proposal of a lower ballot, with all contributions so far
//	PROPOSE  from the root: the value
//	ACK      from the leaves: every member below has accepted the value
//	COMMIT   from the root: the value is decided, and the call returns
//
// When a member fails, its children turn to the next remaining ancestor. When the root fails, the next ballot
// begins, in which the new root proposes a value that some member has accepted, if there is one. So a decided
// value survives: every member had accepted it.
//
// Without failures, a rank sends and receives at most six messages, for any number of members.
package agree
