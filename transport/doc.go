// Package transport is the verbs: the small interfaces through which everything above moves bytes between
// ranks.
//
// The model is RDMA's. A Device hands out protection domains (PD), memory regions (MR), completion queues
// (CQ) and, through an Endpoint, connected queue pairs (QP). Work requests name local memory by region and
// remote memory by key; the bytes land in the peer's memory without the peer's program taking part, and
// completions tell what is done.
//
// # What is promised about order
//
// A QP is a reliable, ordered connection. Its work requests complete in the order in which they were posted,
// with one exception: what is posted after a Read or an Atomic may overtake it unless it carries FlagFence.
// Reads and Atomics among themselves complete in order always.
//
//   - Placed: the bytes are in the target's memory. Between Writes nothing is promised about placement.
//     Within one Write the last 8 bytes are placed after all the others and, where they are aligned to 8, as
//     one word, if DeviceAttr.TailLast says so.
//   - Delivered: placed, and everything before it on the QP placed too. A Recv completion (of a Send or of a
//     Write with immediate) and a Read completion are delivered completions. Whoever needs "all earlier bytes
//     are there" waits for one.
//   - Completed: the poster has its completion and owns the buffers of the work request again.
//
// # Atomics
//
// OpFetchAdd and OpCompareSwap change one word of 64 bits of the peer's memory. Remote has one segment of
// Length 8, whose Offset is a multiple of 8 (PostSend refuses another), of memory with the right
// RemoteAtomic, where the word lies at an address that is a multiple of 8 (the peer refuses another: Register
// and OpBind see to it that a right offset is a right address). Local has one element of 8 bytes, which gets
// the word as it was before. Words are in the byte order of the host that they lie on, so that both sides use
// them as a uint64.
//
//   - Each is carried out exactly once, and as one: no other Atomic, of whatever queue pair of the peer's
//     device, and no operation of the peer's own through sync/atomic comes between its look at the word and
//     its change of it. Plain loads and stores of the peer, and Writes, are not part of this promise.
//   - It finds earlier Sends, Writes and Atomics of its QP done, and later Reads and Atomics find it done. An
//     earlier Read may not have looked yet, and a later Send or Write may overtake it: those take FlagFence.
//   - It is one of the outstanding Reads (QPConfig.Reads), more wait their turn.
//   - The peer refuses it for a wrong key, domain, right, bound or address. It then completes as
//     StatusRemoteAccess, after what was posted before it; nothing was changed, and no later Atomic of the QP
//     is carried out.
//
// # Who drives
//
// Whoever calls CQ.Poll moves the bytes of the QPs attached to that CQ: it is the network card. A QP, its CQs
// and the regions of its PD are used by one goroutine at a time; the caller serialises (one engine per rank,
// in weft). CQ.Wake alone, the methods of Device but ModifyCQ, and what a comment says so of, may be called
// from anywhere.
//
// A completion handler (Device.SetCompletionHandler) is a thread that polls in the place of the caller, on a
// core of its own. It is one such user more, and serialises by taking the lock that the caller names. Nothing
// else here starts a thread on the data path.
//
// # Providers
//
// Each provider is one folder: tcp (the RDMA-semantics fabric over sockets), shm (shared memory, for ranks of
// one host) and sim (one process, deterministic, with faults from a seed). verbstest holds the one
// conformance suite that all of them pass. Nothing above this package knows a provider; a provider knows
// nothing above it.
package transport
