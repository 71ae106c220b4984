// Package channel implements a virtual channel: the two directions between a pair of ranks. Each direction is
// a ring in the receiver's memory, to which the sender RDMA-Writes. The receiver finds messages by polling
// its own memory (E12): a head flag says that a message is coming and how long it is, and a tail flag says
// that all of it has been placed. docs/internals/spec/channel.md specifies the protocol and has its proofs.
// Labels such as E12 in comments are requirement ids, see docs/internals/conformance.md.
//
// # Use
//
// New makes an end and Open connects it. TrySend, TrySendControl and the methods of a Vector send without
// blocking. Next and Release, or TryRecv, receive. Due reports when to call Progress, which returns credit
// and changes the ring's size. ShrinkIfIdle gives large rings back. Close or Fail ends the channel. No
// function of this package waits or starts a goroutine.
//
// # Rings, slots and phases
//
// A ring is an array of 64-byte lines. A message takes as many lines as it needs in one Write, up to the slot
// size, so dozens of small messages are in flight in a ring of 5 KiB. The slot size is the maximum size of a
// message, not a position in the ring. A phase is a slot size with the ring that belongs to it; a channel
// begins in the first phase and can change to another. The sender keeps a mirror of the peer's ring, from
// which it writes. A line of the mirror is free again when the peer has returned its credit, which also
// proves that it has been sent. A message never crosses the end of the ring: if it does not fit in the rest
// of the ring, it starts another wrap, at line 0 (wrap.go). Each wrap has a generation, a number of 64 bits
// that its messages carry, so that old bytes are never taken for a message (flags.go).
//
// # Credits
//
// Credits count lines. Every message carries the count of lines that its sender has consumed in the other
// direction. If no message goes that way, a separate CREDIT message is sent when a quarter of the ring has
// not been advertised. Data leaves some lines for control messages (such as RTS), and both leave some for
// CREDIT alone. These are enough that no rank waits forever (credit.go).
package channel
