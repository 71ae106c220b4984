// Package frame encodes the frames of RDMA mode: headers, their opcodes and limits, checksums, and the batch
// that collects the frames of one write. It does no I/O and does not know queue pairs.
// docs/internals/spec/wire.md specifies the bytes.
package frame
