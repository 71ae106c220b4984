package rma

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Type is how the elements of a window are changed: each as one, by every rank in the same way. Elements of
// 1, 2, 4 and 8 bytes are words of the processor; others are changed under a lock word beside the memory.
type Type struct {
	Kind Kind
	Size int // bytes of an element
	// Locked says that the lock serves in any case: in memory of some rank elements are not aligned.
	Locked bool
	// Apply has the operators on elements that are not words, inout = inout op in; nil for none.
	Apply [Codes]func(inout, in []byte)
}

// IsWord reports whether elements are words, which Word changes.
func (t *Type) IsWord() bool { return !t.Locked && t.wordSized() }

func (t *Type) wordSized() bool { return t.Size == 1 || t.Size == 2 || t.Size == 4 || t.Size == 8 }

// Has reports whether elements have an operator.
func (t *Type) Has(op Code) bool {
	switch {
	case op == Replace || op == NoOp || op == Swap:
		return true
	case op == None || op >= Codes:
		return false
	case t.wordSized():
		_, ok := combine(t.Kind, t.Size, op, 0, 0)
		return ok
	}
	return t.Apply[op] != nil
}

// Update changes the elements at dst, each atomically, to old op src. old, if not nil, gets the old values.
// For Swap an element changes only if it equals compare. The operator must be one that the type Has, and the
// lengths must agree; src and old need no alignment. It returns false if the lock cannot be taken.
func (t *Type) Update(dst unsafe.Pointer, src, old, compare []byte, op Code, lock *Lock) bool {
	if !t.IsWord() {
		return t.updateLocked(dst, src, old, compare, op, lock)
	}
	var c uint64
	if op == Swap {
		c = get(compare, t.Size)
	}
	for at := 0; at < len(src); at += t.Size {
		was := t.Word(unsafe.Add(dst, at), get(src[at:], t.Size), c, op)
		if old != nil {
			put(old[at:], was, t.Size)
		}
	}
	return true
}

// Word is Update of one element that is a word: operands and result are in the lowest bytes.
func (t *Type) Word(at unsafe.Pointer, operand, compare uint64, op Code) (was uint64) {
	switch t.Size {
	case 8:
		return t.word8((*uint64)(at), operand, compare, op)
	case 4:
		return uint64(t.word4((*uint32)(at), uint32(operand), uint32(compare), op))
	}
	return t.part(at, operand, compare, op)
}

func (t *Type) word8(p *uint64, operand, compare uint64, op Code) uint64 {
	switch {
	case op == Sum && t.Kind <= Uint:
		return atomic.AddUint64(p, operand) - operand
	case op == Replace:
		return atomic.SwapUint64(p, operand)
	case op == NoOp:
		return atomic.LoadUint64(p)
	}
	for {
		was := atomic.LoadUint64(p)
		next := operand
		if op == Swap {
			if was != compare {
				return was
			}
		} else {
			next, _ = combine(t.Kind, 8, op, was, operand)
		}
		if atomic.CompareAndSwapUint64(p, was, next) {
			return was
		}
	}
}

func (t *Type) word4(p *uint32, operand, compare uint32, op Code) uint32 {
	switch {
	case op == Sum && t.Kind <= Uint:
		return atomic.AddUint32(p, operand) - operand
	case op == Replace:
		return atomic.SwapUint32(p, operand)
	case op == NoOp:
		return atomic.LoadUint32(p)
	}
	for {
		was := atomic.LoadUint32(p)
		next := operand
		if op == Swap {
			if was != compare {
				return was
			}
		} else {
			v, _ := combine(t.Kind, 4, op, uint64(was), uint64(operand))
			next = uint32(v)
		}
		if atomic.CompareAndSwapUint32(p, was, next) {
			return was
		}
	}
}

// part is Word of an element of 1 or 2 bytes: it is changed together with the rest of its 4 bytes.
func (t *Type) part(at unsafe.Pointer, operand, compare uint64, op Code) uint64 {
	within := uintptr(at) & 3
	p := (*uint32)(unsafe.Add(at, -int(within)))
	shift := 8 * within
	if bigEndian {
		shift = 8 * (4 - uintptr(t.Size) - within)
	}
	mask := uint32(1)<<(8*t.Size) - 1
	for {
		word := atomic.LoadUint32(p)
		was := uint64(word >> shift & mask)
		next := operand
		switch {
		case op == NoOp, op == Swap && was != compare:
			return was
		case op != Swap:
			next, _ = combine(t.Kind, t.Size, op, was, operand)
		}
		if atomic.CompareAndSwapUint32(p, word, word&^(mask<<shift)|uint32(next)&mask<<shift) {
			return was
		}
	}
}

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

func (t *Type) updateLocked(dst unsafe.Pointer, src, old, compare []byte, op Code, lock *Lock) bool {
	if !lock.take() {
		return false
	}
	defer lock.leave()
	there := unsafe.Slice((*byte)(dst), len(src))
	if old != nil {
		copy(old, there)
	}
	switch op {
	case NoOp:
	case Replace:
		copy(there, src)
	case Swap:
		if bytes.Equal(there, compare) {
			copy(there, src)
		}
	default:
		if apply := t.Apply[op]; apply != nil && !t.wordSized() {
			apply(there, src)
			break
		}
		for at := 0; at < len(src); at += t.Size { // words that are not aligned
			v, _ := combine(t.Kind, t.Size, op, get(there[at:], t.Size), get(src[at:], t.Size))
			put(there[at:], v, t.Size)
		}
	}
	return true
}

func get(b []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func put(b []byte, v uint64, size int) {
	switch size {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(v))
	default:
		binary.NativeEndian.PutUint64(b, v)
	}
}

// Lock is a word of shared memory: 1 while a process changes elements that are not words.
type Lock struct{ word uint32 }

// lockTimeout is how long the lock is waited for. It is held for the length of a copy: who has it for longer
// is stopped or dead.
const lockTimeout = 2 * time.Second

func (l *Lock) take() bool {
	if atomic.CompareAndSwapUint32(&l.word, 0, 1) {
		return true
	}
	for began := time.Now(); time.Since(began) < lockTimeout; runtime.Gosched() {
		for range 100 {
			if atomic.LoadUint32(&l.word) == 0 && atomic.CompareAndSwapUint32(&l.word, 0, 1) {
				return true
			}
		}
		time.Sleep(time.Microsecond)
	}
	return false
}

// Free reports whether nobody has the lock at the moment.
func (l *Lock) Free() bool { return atomic.LoadUint32(&l.word) == 0 }

func (l *Lock) leave() { atomic.StoreUint32(&l.word, 0) }
