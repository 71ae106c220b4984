// Package frame is the frames of RDMA mode as bytes: headers, their opcodes and limits, checksums, and the
// batch in which the frames of one write are gathered. It does no I/O and knows no queue pair. The bytes are
// described in docs/internals/spec/wire.md.
package frame
