// Package sequence numbers, acknowledges and orders the frames of a queue pair that has several
// connections, its lanes. It does no I/O: an event goes in, what is to be done comes out.
//
// Every frame that counts has a number, its place in one sequence of the queue pair's direction, whatever
// lane carries it. Outbound is the sender's half: which lane carries which number, until the peer has
// acknowledged it. Inbound is the receiver's: what has arrived, in which order it is told (H1 to H4).
// Failover is how two ends agree that a lane is gone, before anything that it carried is sent again (H5).
package sequence
