// Package tcp is the verbs over TCP sockets: a software RNIC in user space. Work requests become frames; frames are placed
// straight into the memory that they name; completions come in order.
//
// A connection begins as a byte stream (startup*.go), in which both ends prove who they are, and is then handed over to a queue
// pair, which alone reads and writes it from then on, with raw non-blocking system calls. Whoever polls the completion queue moves the
// bytes. See docs/spec/wire.md for the bytes, docs/adr/0001 for the hand-over.
package tcp
