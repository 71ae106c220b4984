// Package sequence numbers, acknowledges and orders the frames of a queue pair that has several
// connections, its lanes. It does no I/O: an event goes in, what is to be done comes out.
//
// Every frame that counts has a number, its place in one sequence of the queue pair's direction, whatever
// lane carries it. Outbound is the sender's half: which lane carries which number, until the peer has
// acknowledged it. Inbound is the receiver's: what has arrived, in which order it is told (H1 to H4). Losses
// is how two ends agree that a lane is gone, before anything that it carried is sent again (H5).
package sequence

// Window is how many numbers a direction may be ahead of its acknowledgement. It bounds every list here, the
// holes too: a sender is held back by it, nothing is dropped (H4).
const Window = 2048

// MaxHoles is how many holes can be open at once: each has at least one number that is missing and one that
// has come.
const MaxHoles = Window / 2
