// Package channel is a virtual channel: the two directions between a pair of ranks, each a ring in the receiver's memory
// into which the sender RDMA-Writes. The receiver finds messages by polling its own memory (requirement E12): a head flag
// says that a message is coming and how long it is, a tail flag that it is all there.
//
// # A ring
//
// A ring is a number of 64-byte lines. A message takes as many lines as it needs, up to the slot size, in one Write; so dozens
// of small messages are in flight in a ring of 5 KiB. The sender keeps a mirror of the peer's ring, out of which it writes: a
// line of the mirror is free again when the peer has given the credit for it back, which also proves that it has been sent.
//
// A message never wraps: one that does not fit what is left of the ring begins another lap. A lap may end earlier as well, and what it leaves out costs
// nothing (lap.go).
//
// # Credits
//
// Lines are counted from the beginning of the channel. Every message carries the count of lines that its sender has
// consumed of the other direction. Where no message goes that way, a CREDIT goes by itself when a quarter of the ring is owed.
//
// Data leaves some lines to control messages (RTS and the like), and both leave some to CREDIT alone. That is enough to never
// starve: a CREDIT is sent for a quarter of a ring at least, so at most four, and the one being sent, wait unread in
// the other direction while this one is full; and a peer that has consumed them owes us, sooner or later, enough to tell.
package channel
