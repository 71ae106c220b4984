// Package sequence numbers, acknowledges and orders the frames of a queue pair that has several connections,
// its lanes. It does no I/O.
//
// Every sequenced frame has a number: its position in the sequence of its direction, on whichever lane it is
// sent. Outbound is the sender's half: it knows which lane carries which number until the peer acknowledges
// it. Inbound is the receiver's half: it knows what has arrived, and in which order to deliver it (H1 to H4).
// Failover lets the two ends agree that a lane is gone, before any of its frames is resent (H5).
package sequence
