// Package firstmessage is memory in which the ranks of a host leave each other a short message before they
// are connected, each one message to each other. The launcher makes it, and every rank inherits it.
//
// It begins with a header and a line for each rank, by ascending rank. Then come the cells, those of one
// receiver together, by sender. A cell is used once: its sender fills it, and its receiver empties it.
package firstmessage

import (
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/weft-mpi/weft/internal/inherited"
	"github.com/weft-mpi/weft/internal/sys"
)

// MinRanks and MaxRanks bound how many ranks share such memory: fewer of them connect quickly, and its size
// grows with the square of their number.
const (
	MinRanks = 16
	MaxRanks = 256
)

// MaxMessage is the length of the longest message, in bytes.
const MaxMessage = 56

// WakeSize is the length of what a rank says about how to wake it, in bytes.
const WakeSize = 32

const version = 1

type header struct {
	version uint64
	ranks   uint64
	_       [6]uint64
}

// line is what a rank says about itself.
type line struct {
	rank     uint64 // by the launcher
	open     uint64 // 1: it takes messages; stored after wake
	wake     [WakeSize]byte
	_        [2]uint64
	sleeping uint64 // 1: whoever leaves a message clears it, and wakes the rank
	_        [7]uint64
}

type cell struct {
	state   uint32
	length  uint32
	message [MaxMessage]byte
}

// States of a cell.
const (
	cellEmpty = iota // left by the sender
	cellFull         // left by the receiver
	cellTaken        // final
)

const (
	cellSize = 64
	pageSize = 4 << 10
)

var _ [cellSize - unsafe.Sizeof(cell{})]struct{}
var _ [unsafe.Sizeof(cell{}) - cellSize]struct{}

func linesSize(ranks int) int {
	n := int(unsafe.Sizeof(header{})) + ranks*int(unsafe.Sizeof(line{}))
	return (n + pageSize - 1) / pageSize * pageSize
}

func size(ranks int) int { return linesSize(ranks) + ranks*ranks*cellSize }

// New makes memory for the ranks of a host, which the caller hands over by its descriptor; -1 after an error.
func New(ranks []int) (descriptor int, err error) {
	n := len(ranks)
	if n < MinRanks || n > MaxRanks {
		return -1, fmt.Errorf("memory for first messages of %d ranks; %d to %d are possible", n, MinRanks,
			MaxRanks)
	}
	fd, err := sys.SharedMemory(int64(size(n)))
	if err != nil {
		return -1, err
	}
	mem, err := sys.MapShared(fd, size(n))
	if err == nil {
		err = sys.Reserve(fd, 0, int64(size(n)))
	}
	if err != nil {
		sys.CloseShared(fd)
		return -1, err
	}
	defer sys.UnmapShared(mem)
	m := &Memory{mem: mem, ranks: n}
	*(*header)(unsafe.Pointer(&mem[0])) = header{version: version, ranks: uint64(n)}
	for i, rank := range slices.Sorted(slices.Values(ranks)) {
		m.line(i).rank = uint64(rank)
	}
	return fd, nil
}

// Memory is the memory as one rank sees it. A nil Memory carries no messages.
type Memory struct {
	mem   []byte
	ranks int
	index map[uint32]int // of the ranks
	own   int            // index of this rank; -1 before Open
	left  atomic.Int32   // messages that may still come
}

// Inherited returns the memory that the launcher has handed this process; nil if there is none.
func Inherited() (*Memory, error) {
	fd, err := inherited.Take(inherited.FirstMessages)
	if err != nil || fd < 0 {
		return nil, err
	}
	defer sys.CloseShared(fd)
	return Attach(fd)
}

// Attach maps the memory with a descriptor.
func Attach(descriptor int) (*Memory, error) {
	var st syscall.Stat_t
	err := syscall.Fstat(descriptor, &st)
	if err == nil {
		err = sys.CheckShared(descriptor, st.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("memory for first messages: %w", err)
	}
	n := ranksOf(st.Size)
	if n == 0 {
		return nil, fmt.Errorf("memory for first messages of %d bytes", st.Size)
	}
	mem, err := sys.MapShared(descriptor, size(n))
	if err != nil {
		return nil, err
	}
	if h := (*header)(unsafe.Pointer(&mem[0])); h.version != version || h.ranks != uint64(n) {
		err := fmt.Errorf("memory for first messages of version %d and %d ranks, not version %d and %d ranks",
			h.version, h.ranks, version, n)
		_ = sys.UnmapShared(mem)
		return nil, err
	}
	m := &Memory{mem: mem, ranks: n, index: make(map[uint32]int, n), own: -1}
	for i := range n {
		m.index[uint32(m.line(i).rank)] = i
	}
	return m, nil
}

// ranksOf returns the number of ranks with memory of this size; 0 for none.
func ranksOf(bytes int64) int {
	for n := MinRanks; n <= MaxRanks; n++ {
		if int64(size(n)) == bytes {
			return n
		}
	}
	return 0
}

// Close unmaps the memory. Nothing may use it any more.
func (m *Memory) Close() error {
	if m == nil {
		return nil
	}
	return sys.UnmapShared(m.mem)
}

// carries reports whether this rank takes and leaves messages.
func (m *Memory) carries() bool { return m != nil && m.own >= 0 }

func (m *Memory) line(i int) *line {
	return (*line)(unsafe.Pointer(&m.mem[int(unsafe.Sizeof(header{}))+i*int(unsafe.Sizeof(line{}))]))
}

func (m *Memory) cell(receiver, sender int) *cell {
	return (*cell)(unsafe.Pointer(&m.mem[linesSize(m.ranks)+(receiver*m.ranks+sender)*cellSize]))
}

// Open says that a rank, which must be one of those with this memory, takes messages, and how to wake it.
// False if it is none of them.
func (m *Memory) Open(rank uint32, wake [WakeSize]byte) bool {
	if m == nil {
		return false
	}
	i, ok := m.index[rank]
	if !ok {
		return false
	}
	m.own = i
	m.left.Store(int32(m.ranks - 1))
	l := m.line(i)
	l.wake = wake
	atomic.StoreUint64(&l.open, 1)
	return true
}

// Send leaves a message with another rank. False if that takes none, has had one, or if the message is too
// long.
func (m *Memory) Send(to uint32, message []byte) bool {
	if !m.carries() || len(message) > MaxMessage {
		return false
	}
	i, ok := m.index[to]
	if !ok || i == m.own {
		return false
	}
	c := m.cell(i, m.own)
	if atomic.LoadUint64(&m.line(i).open) == 0 || atomic.LoadUint32(&c.state) != cellEmpty {
		return false
	}
	c.length = uint32(len(message))
	copy(c.message[:], message)
	atomic.StoreUint32(&c.state, cellFull)
	return true
}

// MustWake reports whether a rank that has got a message sleeps, and how to wake it. The caller must do so.
func (m *Memory) MustWake(rank uint32) (wake [WakeSize]byte, must bool) {
	l := m.line(m.index[rank])
	sys.FullBarrier()
	if atomic.LoadUint64(&l.sleeping) == 0 || atomic.SwapUint64(&l.sleeping, 0) == 0 {
		return wake, false
	}
	return l.wake, true
}

// Sleep says that this rank is about to sleep, unless Full then reports a message.
func (m *Memory) Sleep() {
	if m.carries() {
		sys.StoreFenced(&m.line(m.own).sleeping, 1)
	}
}

// Awake takes Sleep back.
func (m *Memory) Awake() {
	if m.carries() {
		atomic.StoreUint64(&m.line(m.own).sleeping, 0)
	}
}

// Full reports whether this rank has got a message that it has not taken.
func (m *Memory) Full() bool {
	if !m.carries() || m.left.Load() == 0 {
		return false
	}
	for sender := range m.ranks {
		if atomic.LoadUint32(&m.cell(m.own, sender).state) == cellFull {
			return true
		}
	}
	return false
}

// Take calls f for each message that this rank has got, and reports whether there was any. One caller at a
// time may take messages. f must not keep the bytes.
func (m *Memory) Take(f func(from uint32, message []byte)) (found bool) {
	if !m.carries() || m.left.Load() == 0 {
		return false
	}
	for sender := range m.ranks {
		c := m.cell(m.own, sender)
		if atomic.LoadUint32(&c.state) != cellFull {
			continue
		}
		found = true
		m.left.Add(-1)
		n, message := c.length, c.message
		atomic.StoreUint32(&c.state, cellTaken)
		if n <= MaxMessage {
			f(uint32(m.line(sender).rank), message[:n])
		}
	}
	return found
}
