// Package channel is a virtual channel: the two directions between a pair of ranks, each a ring in the
// receiver's memory into which the sender RDMA-Writes. The receiver finds messages by polling its own memory
// (requirement E12): a head flag says that a message is coming and how long it is, a tail flag that all of it
// has been placed. docs/spec/channel.md is the protocol and its proofs.
//
// # Use
//
// New makes an end and Open connects it. TrySend, TrySendVector, TrySendWhole and TrySendControl send without
// blocking. Next and Release, or TryRecv, receive. Due tells when Progress is to be called, which gives
// credit back and changes the ring's size. ShrinkIfIdle gives large rings back. Close or Fail ends the
// channel. Nothing here waits, and no goroutine is started.
//
// # A ring
//
// A ring is a number of 64-byte lines. A message takes as many lines as it needs, up to the slot size, in one
// Write; so dozens of small messages are in flight in a ring of 5 KiB. The sender keeps a mirror of the
// peer's ring, out of which it writes: a line of the mirror is free again when the peer has given the credit
// for it back, which also proves that it has been sent. A message never goes over the end of the ring: one
// that does not fit what is left starts another wrap (wrap.go).
//
// # Credits
//
// Lines are counted. Every message carries the count of lines that its sender has consumed in the other
// direction. Where no message goes that way, a CREDIT goes by itself when a quarter of the ring is not
// advertised. Data leaves some lines to control messages (RTS and the like), and both leave some to CREDIT
// alone, which is enough that nobody waits for ever (credit.go).
package channel
