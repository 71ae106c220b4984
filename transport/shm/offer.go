package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// offer is what each side says of its end in start-up. The descriptors of its arena and of its queues' events come with it.
type offer struct {
	arena      uint64 // bytes
	block      uint64 // offset of the block that the other side sends through
	domain     uint32
	num        transport.QPN
	recv       int  // depth of its receive queue
	reads      int  // Reads of the other side that it answers at once
	asymmetric bool // it passes the barriers of others
	queues     []offeredQueue
	probe      uint64 // address of a secret of its own, which it shows here: who can read it there can read its memory
	secret     [nonceSize]byte
}

// offeredQueue is a completion queue that is to be told.
type offeredQueue struct {
	bell uint64 // offset
	slot uint32
}

const (
	offerQueue = 8 + 4
	offerHead  = 8 + 8 + 4 + 4 + 4 + 2 + 1 + 1 + 8 + nonceSize
	offerLeast = offerHead + offerQueue
	offerMost  = offerHead + 2*offerQueue
)

func (o *offer) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, o.arena)
	b = binary.LittleEndian.AppendUint64(b, o.block)
	b = binary.LittleEndian.AppendUint32(b, o.domain)
	b = binary.LittleEndian.AppendUint32(b, uint32(o.num))
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
		b = binary.LittleEndian.AppendUint64(b, c.bell)
		b = binary.LittleEndian.AppendUint32(b, c.slot)
	}
	return b
}

// parseOffer reads it, and gives what stands behind it. Whatever passes lies in the arena.
func parseOffer(b []byte) (*offer, []byte, error) {
	if len(b) < offerLeast {
		return nil, nil, fmt.Errorf("%w: an Offer of %d bytes", transport.ErrProtocol, len(b))
	}
	o := &offer{
		arena: binary.LittleEndian.Uint64(b), block: binary.LittleEndian.Uint64(b[8:]), domain: binary.LittleEndian.Uint32(b[16:]),
		num: transport.QPN(binary.LittleEndian.Uint32(b[20:])), recv: int(binary.LittleEndian.Uint32(b[24:])),
		reads: int(binary.LittleEndian.Uint16(b[28:])), asymmetric: b[30] == 1, probe: binary.LittleEndian.Uint64(b[32:]),
	}
	copy(o.secret[:], b[40:])
	queues := int(b[31])
	if queues < 1 || queues > 2 || b[30] > 1 || len(b) < offerHead+queues*offerQueue {
		return nil, nil, fmt.Errorf("%w: an Offer of %d queues in %d bytes", transport.ErrProtocol, queues, len(b))
	}
	if o.arena < uint64(leastArena) || o.arena%pageSize != 0 || o.arena > 1<<46 || !o.holds(o.block) {
		return nil, nil, fmt.Errorf("%w: an Offer of a block at %d in %d bytes", transport.ErrProtocol, o.block, o.arena)
	}
	b = b[offerHead:]
	for range queues {
		c := offeredQueue{bell: binary.LittleEndian.Uint64(b), slot: binary.LittleEndian.Uint32(b[8:])}
		if !o.holds(c.bell) || c.slot >= maxSlots {
			return nil, nil, fmt.Errorf("%w: an Offer of slot %d of a bell at %d", transport.ErrProtocol, c.slot, c.bell)
		}
		o.queues = append(o.queues, c)
		b = b[offerQueue:]
	}
	return o, b, nil
}

// holds tells whether there can be a block at an offset.
func (o *offer) holds(off uint64) bool {
	return off >= uint64(tableBytes) && off%blockSize == 0 && off < o.arena
}

// offer says what a prepared queue pair brings in, and gives the descriptors that go with it.
func (d *Device) offer(p *prepared) (*offer, []int) {
	o := &offer{arena: uint64(len(d.arena.mem)), block: uint64(p.in.off), domain: p.conf.PD.(*pd).id, num: p.num, recv: p.conf.RecvWR,
		reads: maxReads, asymmetric: d.asymmetric, probe: addressOf(d.probe[:]), secret: *d.probe}
	scq, rcq := p.conf.SendCQ.(*cq), p.conf.RecvCQ.(*cq)
	o.queues = []offeredQueue{{uint64(rcq.bellOff), p.slots[1]}}
	fds := []int{d.arena.fd, rcq.poller.Event()}
	if scq != rcq {
		o.queues = append(o.queues, offeredQueue{uint64(scq.bellOff), p.slots[0]})
		fds = append(fds, scq.poller.Event())
	}
	return o, fds
}

// accept maps what the peer brings in. The descriptors are used up, whatever comes of it.
func (d *Device) accept(o *offer, fds []int, pid int) (*far, error) {
	f, err := o.take(fds)
	if err != nil {
		for _, fd := range fds {
			sys.CloseFD(fd)
		}
		return nil, err
	}
	sys.CloseFD(fds[0])
	if !d.opts.NoCMA && pid > 0 {
		f.own = sys.Foreign{Pid: pid, Proof: o.probe, Secret: o.secret}
		var seen [nonceSize]byte
		f.reads = f.own.Read(seen[:], o.probe) == nil // it may be refused, as it is in many containers
	}
	return f, nil
}

func (o *offer) take(fds []int) (*far, error) {
	if len(fds) != 1+len(o.queues) {
		return nil, fmt.Errorf("%w: an Offer of %d queues with %d descriptors", transport.ErrProtocol, len(o.queues), len(fds))
	}
	if err := sys.CheckShared(fds[0], int64(o.arena)); err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	}
	for _, fd := range fds[1:] {
		if err := sys.CheckEvent(fd); err != nil {
			return nil, fmt.Errorf("%w: an event: %w", transport.ErrProtocol, err)
		}
	}
	mem, err := sys.MapShared(fds[0], int(o.arena))
	if err != nil {
		return nil, err
	}
	f := &far{mem: mem, domain: o.domain, num: o.num}
	for i, c := range o.queues {
		f.queues = append(f.queues, farQueue{bell: bellAt(mem, c.bell), slot: c.slot, event: fds[1+i]})
	}
	return f, nil
}
