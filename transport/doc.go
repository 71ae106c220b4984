// Package transport defines the verbs: the small interfaces through which all higher layers move bytes
// between ranks.
//
// The model is that of RDMA. A Device creates protection domains (PD), memory regions (MR), completion queues
// (CQ) and, through an Endpoint, connected queue pairs (QP). Work requests name local memory by region and
// remote memory by key. The bytes reach the peer's memory without participation of the peer's program, and
// completions report what is done. Labels such as N2 in comments are requirement ids, see
// docs/internals/conformance.md.
//
// # Ordering guarantees
//
// A QP is a reliable, ordered connection. Its work requests complete in the order in which they were posted,
// with one exception: a request posted after a Read or an Atomic may overtake it unless it carries FlagFence.
// Reads and Atomics always complete in order among themselves.
//
//   - Placed: the bytes are in the target's memory. Between Writes there is no guarantee about the order of
//     placement. Within one Write, the last 8 bytes are placed after all the others and, if they are aligned
//     to 8, as one word, if DeviceAttr.TailLast is set.
//   - Delivered: placed, and everything before it on the QP is placed too. A Recv completion (of a Send or of
//     a Write with immediate) and a Read completion are delivered completions. A consumer that needs all
//     earlier bytes waits for one of them.
//   - Completed: the poster has its completion and owns the buffers of the work request again.
//
// # Atomics
//
// OpFetchAdd changes one 64-bit word of the peer's memory. Remote has one segment of Length
// 8. Its Offset is a multiple of 8 (PostSend refuses any other), and its memory has the right RemoteAtomic.
// The word must lie at an address that is a multiple of 8; the peer refuses any other. Register
// ensures that a valid offset is a valid address. Local has one element of 8 bytes, which receives the
// previous value of the word. Words are in the byte order of the host on which they lie, so that both sides
// use them as a uint64.
//
//   - Each Atomic is carried out exactly once, and indivisibly: between its read and its write of the word
//     comes no other Atomic, of any queue pair of the peer's device, and no operation of the peer itself
//     through sync/atomic. This does not cover Writes, or plain loads and stores of the peer.
//   - It comes after earlier Sends, Writes and Atomics of its QP, and before later Reads and Atomics. An
//     earlier Read may not have read yet, and a later Send or Write may overtake it; use FlagFence for those.
//   - It counts as one of the outstanding Reads (QPConfig.Reads); further ones wait their turn.
//   - The peer refuses it for a wrong key, domain, right, bound or address. It then completes with
//     StatusRemoteAccess, after earlier requests. Nothing has changed, and no later Atomic of the QP is
//     carried out.
//
// # Progress
//
// The goroutine that calls CQ.Poll is the driver of the CQ: it moves the bytes of the QPs attached to it,
// like a network card. One such poll is a pass. Only one goroutine at a time may use a QP, its CQs and the
// regions of its PD; the caller serializes access (weft's engine takes one lock for each port of a rank, see
// port.go). Only the following may be called from any goroutine: CQ.Wake, the methods of Device except
// ModifyCQ and, if a CQ has no handler, Close, and methods whose comments say so.
//
// A completion handler (Device.SetCompletionHandler) is a thread that drives CQs in place of the caller, on a
// core of its own. It takes the lock that the caller names. Nothing else in this package starts a thread on
// the data path.
//
// # Providers
//
// Each provider is one folder: tcp (RDMA semantics over sockets), shm (shared memory, for ranks of one host)
// and sim (one process, deterministic, with faults from a seed). verbstest holds the conformance suite that
// all of them pass. Nothing above this package depends on a specific provider, and a provider depends on
// nothing above this package.
package transport
