// Package tcp is the verbs over TCP sockets: a software RNIC in user space. Work requests become frames;
// frames are placed straight into the memory that they name; completions come in order.
//
// A connection begins as a byte stream, on which both ends prove who they are (internal/setup). It is then
// handed over to a queue pair, which alone reads and writes it from then on, with raw non-blocking system
// calls. The goroutine that polls the completion queue moves the bytes.
//
// A queue pair in RDMA mode has three layers:
//
//   - a link (internal/link) is one socket, plain or encrypted; conn.go takes frames off it
//   - a sequencer (sequencer.go) carries the frames of a queue pair over one link (singlelink.go), or over
//     several, the lanes, with sequence numbers, acknowledgements and gaps, which LaneStats calls holes
//     (multilane.go, lane*.go, internal/sequence)
//   - a kind of frame (framekinds.go, frame*.go) knows how its frames are made, checked and carried out;
//     internal/frame has their bytes
//
// See docs/internals/spec/wire.md for the bytes, and docs/internals/adr/0016 for the hand-over and for lanes.
// Labels such as H1 in comments are requirement ids, see docs/internals/conformance.md.
package tcp
