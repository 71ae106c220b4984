package sim

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
)

// wordSize is the length and the alignment of an Atomic's word.
const wordSize = 8

// aligned reports whether a word may begin at an offset.
func aligned(mem []byte, off int) bool {
	return off >= len(mem) || uintptr(unsafe.Pointer(&mem[off]))%wordSize == 0
}

// checkAtomic checks the fields that only Atomics have.
func (q *qp) checkAtomic(wr *transport.SendWR) error {
	switch {
	case len(wr.Local) != 1 || wr.Local[0].Length != wordSize:
		return fmt.Errorf("an Atomic wants one local element of %d bytes: %w", wordSize, transport.ErrInvalid)
	case len(wr.Remote) == 1 && wr.Remote[0].Offset%wordSize != 0 && q.net.mutant != noAlignment:
		return fmt.Errorf("an Atomic at offset %d, which is not a multiple of %d: %w", wr.Remote[0].Offset,
			wordSize, transport.ErrInvalid)
	}
	return nil
}

// atomic carries out an Atomic of the peer and returns the original word. The network's lock serializes the
// peers' Atomics, but not the owner's own.
func (q *qp) atomic(w *sendWQE) ([]byte, error) {
	s := w.remote[0]
	m, err := q.reach(s, transport.RemoteAtomic)
	if err != nil {
		return nil, fmt.Errorf("atomic: %w", err)
	}
	if !aligned(m.buf, int(s.Offset)) {
		if q.net.mutant != noAlignment {
			return nil, fmt.Errorf("atomic at %d of the region of key %#x, an address that is not a "+
				"multiple of %d: %w", s.Offset, s.Key,
				wordSize, transport.ErrAccess)
		}
		s.Offset &^= wordSize - 1
	}
	at := (*uint64)(unsafe.Pointer(&m.buf[s.Offset : s.Offset+wordSize][0]))
	old := atomic.AddUint64(at, w.operand) - w.operand
	if q.net.mutant == atomicTwice {
		atomic.AddUint64(at, w.operand)
	}
	q.recvCQ().markPlaced(q.num)
	q.signal()
	return binary.NativeEndian.AppendUint64(nil, old), nil
}
