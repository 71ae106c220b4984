package engine

import (
	"reflect"
	"syscall"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
)

// sharedState is what a rank can write of what it shares with one peer over shared memory, but for the rings
// of messages: indices, counts and frames in the block that the peer reads, what it says of the other
// direction in its own block, and the entries by which the peer finds its regions.
type sharedState struct {
	words []*uint64
	ring  []byte

	mapped [][2]uintptr
}

// sharedStateOf finds it in a queue pair. A rank that keeps to no rule has the provider's code in its own
// memory, and can do the same.
func sharedStateOf(qp transport.QP) (s sharedState) {
	v := reflect.ValueOf(qp).Elem()
	out, in := v.FieldByName("out").FieldByName("controlBlock"), v.FieldByName("in").FieldByName("controlBlock")
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

// mapAgain maps memory that is shared a second time: who wants to can go on writing there when the connection
// has ended.
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

// ended is the bit of tail by which a rank says that it writes no more. One that says so and goes on is like
// one that writes to any memory of the arena, which no peer can help.
const ended = 1 << 63

// poke changes one thing.
func (s *sharedState) poke(l *lies) {
	l.struck.Inc()
	word := s.words[l.rand.IntN(7)]
	switch l.rand.IntN(8) {
	case 0:
		*word = oddNumber(l.rand)
	case 1:
		*word += uint64(int64(8 * (l.rand.IntN(65) - 32)))
	case 2:
		*word ^= 1 << l.rand.IntN(64)
	case 3, 4: // a frame that stands in the ring
		at := l.rand.IntN(len(s.ring)) &^ 7
		spoil(l.rand, s.ring[at:])
	case 5: // and is invented
		for i := range s.ring {
			s.ring[i] = byte(l.rand.Uint32() >> l.rand.IntN(32))
		}
		*s.words[0] += uint64(24 + 8*l.rand.IntN(64))
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
	*s.words[0] &^= ended
}

// pokeNowAndThen goes on until the rank's lies end.
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
