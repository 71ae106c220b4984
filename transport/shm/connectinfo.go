package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// connectInfo are the parameters that each side sends of its end, in Offer and in Accept. The descriptor of
// its arena accompanies them.
type connectInfo struct {
	arena      uint64 // bytes
	block      uint64 // offset of the block that the other side sends through
	domain     uint32
	recv       int  // depth of its receive queue
	reads      int  // maximum Reads of the other side at once
	asymmetric bool // its process is registered for membarrier: calls of other processes order its stores too
	queues     []queueInfo
	// address of secret in this process: a peer that finds secret there can read this process's memory
	probe  uint64
	secret [nonceSize]byte
}

// queueInfo is a completion queue that the other side notifies.
type queueInfo struct {
	doorbell uint64 // offset
	slot     uint32
	wake     wakeName
}

const (
	connectInfoQueue = 8 + 4 + wakeNameSize + sys.TokenSize
	connectInfoHead  = 8 + 8 + 4 + 4 + 2 + 1 + 1 + 8 + nonceSize
	minConnectInfo   = connectInfoHead + connectInfoQueue
	maxConnectInfo   = connectInfoHead + 2*connectInfoQueue
)

func (o *connectInfo) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, o.arena)
	b = binary.LittleEndian.AppendUint64(b, o.block)
	b = binary.LittleEndian.AppendUint32(b, o.domain)
	b = binary.LittleEndian.AppendUint32(b, uint32(o.recv))
	b = binary.LittleEndian.AppendUint16(b, uint16(o.reads))
	asymmetric := byte(0)
	if o.asymmetric {
		asymmetric = 1
	}
	b = append(b, asymmetric, byte(len(o.queues)))
	b = binary.LittleEndian.AppendUint64(b, o.probe)
	b = append(b, o.secret[:]...)
	for _, c := range o.queues {
		b = binary.LittleEndian.AppendUint64(b, c.doorbell)
		b = binary.LittleEndian.AppendUint32(b, c.slot)
		b = append(b, c.wake.id[:]...)
		b = append(b, c.wake.token[:]...)
	}
	return b
}

// parseConnectInfo parses a connectInfo at the beginning of b, and returns the rest. All offsets that it
// accepts lie in the arena.
func parseConnectInfo(b []byte) (*connectInfo, []byte, error) {
	if len(b) < minConnectInfo {
		return nil, nil, fmt.Errorf("%w: parameters of %d bytes", transport.ErrProtocol, len(b))
	}
	o := &connectInfo{
		arena: binary.LittleEndian.Uint64(b), block: binary.LittleEndian.Uint64(b[8:]),
		domain: binary.LittleEndian.Uint32(b[16:]),
		recv:   int(binary.LittleEndian.Uint32(b[20:])),
		reads:  int(binary.LittleEndian.Uint16(b[24:])), asymmetric: b[26] == 1,
		probe: binary.LittleEndian.Uint64(b[28:]),
	}
	copy(o.secret[:], b[36:])
	queues := int(b[27])
	if queues < 1 || queues > 2 || b[26] > 1 || len(b) < connectInfoHead+queues*connectInfoQueue {
		return nil, nil, fmt.Errorf("%w: parameters of %d queues in %d bytes", transport.ErrProtocol, queues,
			len(b))
	}
	if o.arena < uint64(minArena) || o.arena%pageSize != 0 || o.arena > maxArena || !o.holds(o.block) {
		return nil, nil, fmt.Errorf("%w: parameters with a block at %d in an arena of %d bytes; %d to "+
			"%d are possible",
			transport.ErrProtocol, o.block, o.arena, minArena, int64(maxArena))
	}
	b = b[connectInfoHead:]
	for range queues {
		c := queueInfo{doorbell: binary.LittleEndian.Uint64(b), slot: binary.LittleEndian.Uint32(b[8:])}
		if !o.holdsDoorbell(c.doorbell) || c.slot >= maxSlots {
			return nil, nil, fmt.Errorf("%w: parameters with slot %d of a doorbell at %d",
				transport.ErrProtocol, c.slot, c.doorbell)
		}
		copy(c.wake.id[:], b[12:])
		copy(c.wake.token[:], b[12+wakeNameSize:])
		o.queues = append(o.queues, c)
		b = b[connectInfoQueue:]
	}
	return o, b, nil
}

// holds reports whether a block can be at an offset.
func (o *connectInfo) holds(off uint64) bool { return mayBeBlock(off, o.arena) }

// mayBeBlock reports whether a block can be at an offset of an arena of a size.
func mayBeBlock(off, size uint64) bool {
	front, rest := off >= uint64(frontAt) && off < keysAt, off >= uint64(blocksAt) && off < size
	return (front || rest) && off%blockSize == 0
}

// holdsDoorbell reports whether a doorbell can be at an offset.
func (o *connectInfo) holdsDoorbell(off uint64) bool {
	return o.holds(off) || off >= doorbellsAt && off < firstKeysAt && off%blockSize == 0
}

// offer returns the parameters of a prepared queue pair.
func (d *Device) offer(p *prepared) *connectInfo {
	o := &connectInfo{arena: uint64(len(d.arena.mem)), block: uint64(p.in.off),
		domain: p.conf.PD.(*verbs.PD).ID, recv: p.conf.RecvWR,
		reads: p.conf.Reads, asymmetric: d.asymmetric, probe: addressOf(d.probe[:]), secret: *d.probe}
	scq, rcq := p.conf.SendCQ.(*cq), p.conf.RecvCQ.(*cq)
	o.queues = []queueInfo{{uint64(rcq.doorbellOff), p.slots[1], rcq.wake}}
	if scq != rcq {
		o.queues = append(o.queues, queueInfo{uint64(scq.doorbellOff), p.slots[0], scq.wake})
	}
	return o
}

// accept maps the peer's arena. It closes the descriptors in any case.
func (d *Device) accept(o *connectInfo, fds []int, pid int) (*peerMapping, error) {
	mem, err := o.take(fds)
	for _, fd := range fds {
		sys.CloseFD(fd)
	}
	if err != nil {
		return nil, err
	}
	f, err := d.mapping(o, mem, pid)
	if err != nil {
		_ = sys.UnmapShared(mem)
	}
	return f, err
}

// mapping returns the access to a peer's arena, which is mapped.
func (d *Device) mapping(o *connectInfo, mem []byte, pid int) (*peerMapping, error) {
	f := &peerMapping{mem: mem, domain: o.domain}
	for _, c := range o.queues {
		f.queues = append(f.queues,
			peerQueue{doorbell: doorbellAt(mem, c.doorbell), slot: c.slot, wake: c.wake.address()})
	}
	if !d.opts.NoCMA && pid > 0 {
		f.outside = sys.Foreign{Pid: pid, Proof: o.probe, Secret: o.secret}
		var err error
		if f.foreign = d.copyCall.isMeasured(); !f.foreign {
			f.foreign, err = d.tryToRead(f.outside) // the system may refuse it, as in many containers
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (o *connectInfo) take(fds []int) ([]byte, error) {
	if len(fds) != 1 {
		return nil, fmt.Errorf("%w: parameters with %d descriptors", transport.ErrProtocol, len(fds))
	}
	if err := sys.CheckShared(fds[0], int64(o.arena)); err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	}
	return sys.MapShared(fds[0], int(o.arena))
}
