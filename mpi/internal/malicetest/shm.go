//go:build linux

package malicetest

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"syscall"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
)

// sharedState is the memory shared with one peer that a rank can write, except for the rings of messages:
// indices, counts and frames in the block that the peer reads, its own block for the other direction, and the
// entries by which the peer finds its regions.
type sharedState struct {
	words []*uint64
	ring  []byte

	mapped [][2]uintptr
}

// sharedStateOf finds the shared memory of a queue pair. A malicious rank has the provider's code in its
// memory, and can do the same.
func sharedStateOf(qp transport.QP) (s sharedState) {
	v := reflect.ValueOf(qp).Elem()
	out := v.FieldByName("out").FieldByName("controlBlock")
	in := v.FieldByName("in").FieldByName("controlBlock")
	field := func(block unsafe.Pointer, name string) (unsafe.Pointer, uintptr) {
		f, ok := out.Type().Elem().FieldByName(name)
		if !ok {
			panic("a block has no " + name)
		}
		return unsafe.Add(block, f.Offset), f.Type.Size()
	}
	size := out.Type().Elem().Size()
	theirs, own := s.mapAgain(out.UnsafePointer(), size), s.mapAgain(in.UnsafePointer(), size)
	for _, name := range []string{"tail", "placementSeq", "writeSeq", "wants", "heartbeatSeq"} {
		p, _ := field(theirs, name)
		s.words = append(s.words, (*uint64)(p))
	}
	for _, name := range []string{"notifyEnable", "consumed"} {
		p, _ := field(own, name)
		s.words = append(s.words, (*uint64)(p))
	}
	p, n := field(theirs, "ring")
	s.ring = unsafe.Slice((*byte)(p), n)
	const lines, line, used = 32, 64, 5
	table := s.mapAgain(v.FieldByName("dev").Elem().FieldByName("arena").Elem().FieldByName("mem").
		UnsafePointer(), lines*line)
	for at := range uintptr(lines * used) {
		s.words = append(s.words, (*uint64)(unsafe.Add(table, at/used*line+at%used*8)))
	}
	return s
}

// mapAgain maps shared memory a second time: a malicious rank can still write there when the connection has
// ended.
func (s *sharedState) mapAgain(p unsafe.Pointer, n uintptr) unsafe.Pointer {
	const mayMove = 1
	again, _, e := syscall.Syscall6(syscall.SYS_MREMAP, uintptr(p), 0, n, mayMove, 0, 0)
	if e != 0 {
		panic(e)
	}
	s.mapped = append(s.mapped, [2]uintptr{again, n})
	return *(*unsafe.Pointer)(unsafe.Pointer(&again))
}

func (s *sharedState) unmap() {
	for _, m := range s.mapped {
		syscall.Syscall(syscall.SYS_MUNMAP, m[0], m[1], 0)
	}
}

// poke changes one thing.
func (s *sharedState) poke(l *lies) {
	l.add()
	word := s.words[l.rand.IntN(7)]
	switch l.rand.IntN(10) {
	case 0:
		*word = oddNumber(l.rand)
	case 1:
		*word += uint64(int64(8 * (l.rand.IntN(65) - 32)))
	case 2:
		*word ^= 1 << l.rand.IntN(64)
	case 3, 4: // a frame in the ring
		at := l.rand.IntN(len(s.ring)) &^ 7
		spoil(l.rand, s.ring[at:])
	case 5, 6:
		s.invent(l.rand)
	default:
		entry := s.words[7+l.rand.IntN(len(s.words)-7)]
		switch l.rand.IntN(3) {
		case 0:
			*entry = oddNumber(l.rand)
		case 1:
			*entry += uint64(int64(64 * (l.rand.IntN(9) - 4)))
		default:
			*entry ^= 1 << l.rand.IntN(64)
		}
	}
}

// invent adds a plausible frame: its kind, flags, numbers and offsets are each likely or odd.
func (s *sharedState) invent(r *rand.Rand) {
	tail := s.words[0]
	at := int(*tail%uint64(len(s.ring))) &^ 7
	number := func(likely ...uint64) uint64 {
		if r.IntN(3) == 0 {
			return oddNumber(r)
		}
		return likely[r.IntN(len(likely))]
	}
	put := func(v uint64) {
		binary.NativeEndian.PutUint64(s.ring[at:], v)
		at = (at + 8) % len(s.ring)
	}
	length, flags := number(0, 8, 24, 32, 48, 1000, 1536), uint64(0)
	if r.IntN(2) == 0 {
		flags = uint64(r.IntN(8))
	}
	put(length&(1<<32-1) | uint64(r.IntN(13))<<32 | flags<<40)
	put(number(0, 1, 2, *s.words[7]))
	put(number(0, 1, 2, length))
	n := min(length, 1536)
	for range (n + 7) / 8 {
		put(number(0, 1, *s.words[7], *s.words[7+2], 1<<20))
	}
	*tail += 24 + (n+7)&^7
}

// pokeNowAndThen calls poke until the rank's lies end.
func (s *sharedState) pokeNowAndThen(l *lies) {
	for {
		l.mu.Lock()
		pause := time.Duration(l.rand.IntN(l.rate*500)) * time.Microsecond
		l.mu.Unlock()
		select {
		case <-l.over:
			s.unmap()
			return
		case <-time.After(pause):
		}
		l.mu.Lock()
		s.poke(l)
		l.mu.Unlock()
	}
}
