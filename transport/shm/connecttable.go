package shm

import (
	"crypto/hmac"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// connectTable is where other ranks of the host ask for a connection. An arena begins with it. A rank that
// asks opens the arena through /proc, which the system allows to processes of the same user only, and maps
// it; it takes a free entry, and wakes the owner's goroutine for requests. The proof shows that the arena
// belongs to a rank that knows the job's secret. What lies in an arena is then trusted as much as what comes
// through it later.
type connectTable struct {
	version uint64
	rank    uint64
	proof   [proofSize]byte
	_       [2]uint64
	wake    wakeName // of the goroutine
	_       [4]uint64

	sleeping uint64 // 1: who asks or answers clears it and wakes the goroutine
	_        [7]uint64

	entries [connectEntries]connectEntry
}

// connectEntry is one request. The rank that asks takes it, and frees it unless it has withdrawn; the owner
// answers in state. The entries of a rank that dies meanwhile stay taken: few, since it has one for each
// port.
type connectEntry struct {
	state     uint64
	initiator uint32
	responder uint32
	pid       uint32 // of the process that asks
	fd        uint32 // of its arena
	memory    uint64 // number of its arena
	block     uint64 // offset of its block, whose ring has its offer
	_         [3]uint64
}

// States of a connectEntry. An offset of the responder's block, whose ring has its offer, says that the
// connection is made. Those beyond entryWithdrawn are final: the initiator frees the entry.
const (
	entryFree      = iota // taken by an initiator
	entryTaken            // being filled
	entryAsked            // complete: left by the answer, or by the initiator's withdrawal
	entryWithdrawn        // the initiator no longer asks: the owner frees it
	entryStays            // another connection of the two stays
	entryRefused          // not by this way: the initiator connects to the socket, which gives the reason
)

const (
	connectTableBytes = 16 << 10
	connectEntries    = (connectTableBytes - 192) / 64
)

var _ [connectTableBytes - unsafe.Sizeof(connectTable{})]struct{}
var _ [unsafe.Sizeof(connectTable{}) - connectTableBytes]struct{}

func connectTableOf(mem []byte) *connectTable {
	return (*connectTable)(unsafe.Pointer(&mem[connectTableAt : connectTableAt+connectTableBytes][0]))
}

// arenaProver makes the proofs that a rank of a job has made an arena. It is for one goroutine at a time.
type arenaProver struct {
	prover *handshake.Prover
	text   []byte // what every proof begins with
}

func newArenaProver(id *transport.Identity) arenaProver {
	job := handshake.JobHash(id.Job)
	text := append(make([]byte, 0, 128), "weft shm arena 1\x00"...)
	return arenaProver{handshake.NewProver(&id.Secret), append(text, job[:]...)}
}

// proof proves that a rank has made the arena of this number, and what its table says.
func (p *arenaProver) proof(t *connectTable, rank uint32, memory uint64) []byte {
	b := binary.LittleEndian.AppendUint32(p.text, rank)
	b = binary.LittleEndian.AppendUint64(b, memory)
	return p.prover.Proof(append(b, t.wake.id[:]...), t.wake.token[:])
}

// open opens the table for requests, which wake a goroutine with this name.
func (t *connectTable) open(p *arenaProver, rank uint32, memory uint64, wake wakeName) {
	t.rank, t.wake = uint64(rank), wake
	copy(t.proof[:], p.proof(t, rank, memory))
	atomic.StoreUint64(&t.version, handshakeVersion)
}

// take takes a free entry; nil if there is none. Ranks begin to look in different places.
func (t *connectTable) take(rank uint32) *connectEntry {
	for i := range connectEntries {
		x := &t.entries[(int(rank)+i)%connectEntries]
		if atomic.LoadUint64(&x.state) == entryFree && atomic.CompareAndSwapUint64(&x.state, entryFree,
			entryTaken) {
			return x
		}
	}
	return nil
}

// location is where processes of this host find an arena.
type location struct {
	pid, fd uint32
	memory  uint64 // its number, which no other memory has
	space   string // namespace of pid
}

// locationOf returns where this process has an arena, and the file system of arenas; "" as the namespace if
// that cannot be told.
func locationOf(fd int) (at location, fs uint64) {
	memory, fs, err := sys.SharedID(fd)
	space, err2 := os.Readlink("/proc/self/ns/pid")
	if err != nil || err2 != nil {
		return location{}, 0
	}
	space = strings.Trim(strings.TrimPrefix(space, "pid:"), "[]")
	return location{uint32(os.Getpid()), uint32(fd), memory, space}, fs
}

func (p *location) String() string { return fmt.Sprintf("%d.%d.%d.%s", p.pid, p.fd, p.memory, p.space) }

func parseLocation(text string) (p location, ok bool) {
	f := strings.Split(text, ".")
	if len(f) != 4 {
		return p, false
	}
	pid, err1 := strconv.ParseUint(f[0], 10, 31)
	fd, err2 := strconv.ParseUint(f[1], 10, 31)
	memory, err3 := strconv.ParseUint(f[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || f[3] == "" {
		return p, false
	}
	return location{uint32(pid), uint32(fd), memory, f[3]}, true
}

// mapArena maps the arena of a peer, and checks that it belongs to this rank of the job. The lock of requests
// is held.
func (e *endpoint) mapArena(at location, rank uint32) ([]byte, error) {
	fd, size, err := sys.OpenShared(int(at.pid), int(at.fd), at.memory, e.requests.fs)
	if err != nil {
		return nil, err
	}
	defer sys.CloseShared(fd)
	if size < minArena || size%pageSize != 0 || size > maxArena {
		return nil, fmt.Errorf("%w: an arena of %d bytes", transport.ErrProtocol, size)
	}
	mem, err := sys.MapShared(fd, int(size))
	if err != nil {
		return nil, err
	}
	t := connectTableOf(mem)
	if atomic.LoadUint64(&t.version) != handshakeVersion || t.rank != uint64(rank) ||
		!hmac.Equal(t.proof[:], e.requests.prover.proof(t, rank, at.memory)) {
		_ = sys.UnmapShared(mem)
		return nil, fmt.Errorf("%w: no arena of rank %d of this job", transport.ErrAuth, rank)
	}
	return mem, nil
}

// writeOffer writes this end's parameters where the peer finds them: in the ring of the block that the peer
// sends through, which it does only when it has read them.
func (d *Device) writeOffer(p *prepared, private []byte) {
	ring := &p.in.block.ring
	b := append(d.offer(p).append(ring[4:4]), private...)
	binary.LittleEndian.PutUint32(ring[:], uint32(len(b)))
}

// readOffer reads the parameters of the peer at the block with this offset in its arena.
func readOffer(mem []byte, block uint64) (*connectInfo, []byte, error) {
	if !mayBeBlock(block, uint64(len(mem))) {
		return nil, nil, fmt.Errorf("%w: parameters in a block at %d", transport.ErrProtocol, block)
	}
	ring := &controlBlockAt(mem, block).ring
	n := int(binary.LittleEndian.Uint32(ring[:]))
	if n > maxConnectInfo+maxPrivate {
		return nil, nil, fmt.Errorf("%w: parameters of %d bytes", transport.ErrProtocol, n)
	}
	b := make([]byte, n)
	copy(b, ring[4:])
	o, private, err := parseConnectInfo(b)
	if err == nil && (o.arena != uint64(len(mem)) || o.block != block || len(private) > maxPrivate) {
		err = fmt.Errorf("%w: parameters of another arena or block", transport.ErrProtocol)
	}
	return o, private, err
}
