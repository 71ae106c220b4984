package engine

import (
	"cmp"
	"encoding/binary"
	"errors"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// oneSidedOwner is the top byte of the ids of work requests that belong to windows.
const oneSidedOwner = 0x4f

const (
	wordBytes = 8
	slotBytes = 128 // transfers of up to this length use the operation's slot, and need no registration
	chunkOps  = 256 // operations in a chunk
)

// oneSided is a posted operation. Its slot is registered memory that serves as a bounce buffer for short
// transfers.
type oneSided struct {
	chunk      *oneSidedChunk
	index      int
	generation uint32  // incremented with every use
	target     *Target // nil in a free entry
	serial     uint64  // number among the target's operations
	awaited    bool    // a flush waits for this operation and all earlier ones of the target
	before     *oneSided
	after      *oneSided
	peer       *peer
	mr         transport.MR // of the caller's buffer; nil if the slot is used
	into       []byte       // the caller's buffer for bytes read into the slot
	view       *viewBuffer  // the caller's buffer if it is not contiguous; else nil
	request    *request     // completes with the operation; nil for none
	err        error
	asked      bool // an UPDATE, which the peer's engine answers by UPDATED
	kept       bool // its caller waits for done, and frees it
	done       bool
	givenUp    bool // nobody wants the result

	// ended is the condition that it is done.
	ended func() bool

	wr     transport.SendWR
	local  [1]transport.SGE
	remote [1]transport.Segment
	next   *oneSided
}

// oneSidedChunk is a chunk of the table of operations, with their slots.
type oneSidedChunk struct {
	mr  transport.MR
	ops [chunkOps]oneSided
}

// oneSidedTable has the operations posted in a fabric. It grows by chunks and does not shrink: the operations
// per peer are bounded.
type oneSidedTable struct {
	chunks []*oneSidedChunk
	free   *oneSided
}

func (o *oneSided) id() uint64 {
	return oneSidedOwner<<56 | uint64(o.generation)<<32 | uint64(o.index)
}

func (o *oneSided) slot() int { return o.index % chunkOps * slotBytes }

// bytes returns the slot's memory.
func (o *oneSided) bytes() []byte { return o.chunk.mr.Bytes()[o.slot():][:slotBytes] }

// word returns the result of an Atomic, or of a Read of a word.
func (o *oneSided) word() uint64 { return binary.NativeEndian.Uint64(o.bytes()) }

func (t *oneSidedTable) grow(pd transport.PD) error {
	mr, err := pd.Alloc(chunkOps*slotBytes, transport.LocalWrite)
	if err != nil {
		return err
	}
	c := &oneSidedChunk{mr: mr}
	for i := range c.ops {
		o := &c.ops[i]
		o.chunk, o.index = c, len(t.chunks)*chunkOps+i
		o.ended = func() bool { return o.done }
		o.wr.Local, o.wr.Remote = o.local[:], o.remote[:]
		o.next, t.free = t.free, o
	}
	t.chunks = append(t.chunks, c)
	return nil
}

// newOperationLocked returns a free operation for the target. While there is no room it waits, without the
// lock, until s ends.
func (t *Target) newOperationLocked(p *peer, s *Canceller) (*oneSided, error) {
	t.w.e.mu.assertHeld()
	e := t.w.e
	for p.oneSided >= maxOneSided {
		e.mu.Unlock()
		err := e.waiting.waitUnless(s, t.hasRoom)
		e.mu.Lock()
		if err := cmp.Or(t.unusableLocked(), err); err != nil {
			return nil, err
		}
	}
	table := &p.fabric.oneSided
	if table.free == nil {
		if err := table.grow(p.fabric.pd); err != nil {
			return nil, err
		}
	}
	o := table.free
	table.free = o.next
	o.target, o.peer = t, p
	o.wr.ID, o.wr.Flags = o.id(), transport.FlagSignaled
	t.posted.add(o)
	p.oneSided++
	return o, nil
}

// posted is a target's list of the posted operations that are not complete, ordered by serial.
type posted struct {
	oldest, newest *oneSided
	begun          uint64 // the newest serial
}

// add makes an operation the newest.
func (l *posted) add(o *oneSided) {
	l.begun++
	o.serial, o.before, o.after = l.begun, l.newest, nil
	if l.newest != nil {
		l.newest.after = o
	} else {
		l.oldest = o
	}
	l.newest = o
}

// remove removes an operation. It reports whether a flush waits for it, and for none before it.
func (l *posted) remove(o *oneSided) (awaited bool) {
	if o.before != nil {
		o.before.after = o.after
		o.before.awaited = o.before.awaited || o.awaited
	} else {
		l.oldest, awaited = o.after, o.awaited
	}
	if o.after != nil {
		o.after.before = o.before
	} else {
		l.newest = o.before
	}
	o.before, o.after, o.awaited = nil, nil, false
	return awaited
}

func (l *posted) empty() bool { return l.oldest == nil }

// endLocked takes an operation from the list of its target, and wakes a flush that waits for it.
func (o *oneSided) endLocked() {
	e := o.target.w.e
	e.mu.assertHeld()
	if o.target.posted.remove(o) {
		e.waiting.wakeConditionsLocked()
	}
	o.target = nil
	o.peer.oneSided--
}

// dropLocked frees an operation that was not posted, or is over.
func (t *Target) dropLocked(o *oneSided) {
	t.w.e.mu.assertHeld()
	if o.target != nil {
		o.endLocked()
	}
	if o.request != nil { // not yet counted down, as nothing was posted
		o.request.openTransfers--
	}
	table := &o.peer.fabric.oneSided
	if o.mr != nil {
		o.err = cmp.Or(o.err, o.mr.Deregister())
	}
	if o.view != nil {
		t.w.e.views.releaseLocked(o.view)
	}
	o.generation = (o.generation + 1) & generationMask
	o.target, o.peer, o.mr, o.into, o.view, o.request, o.err = nil, nil, nil, nil, nil, nil, nil
	o.kept, o.done, o.asked, o.givenUp = false, false, false, false
	o.next, table.free = table.free, o
}

// register registers the handlers of windows' messages and completions.
func (w *Windows) register(t *router) {
	t.onMessage(channel.Part, w.onPart)
	t.onMessage(channel.Update, w.onUpdate)
	t.onMessage(channel.Updated, w.onUpdated)
	t.onCompletion(oneSidedOwner, func(p *peer, wc *transport.WC) {
		o := p.fabric.oneSided.find(uint32(wc.ID), uint32(wc.ID>>32)&generationMask)
		if o != nil && !o.asked {
			w.complete(o, nil)
		}
	})
}

// generationMask masks the bits of a generation that fit the id of a work request.
const generationMask = 1<<24 - 1

// find returns the operation under way with a number and a generation, or nil.
func (t *oneSidedTable) find(number, generation uint32) *oneSided {
	i := int(number)
	if i >= len(t.chunks)*chunkOps {
		return nil
	}
	o := &t.chunks[i/chunkOps].ops[i%chunkOps]
	if o.target == nil || o.generation != generation {
		return nil
	}
	return o
}

// complete ends a posted operation.
func (w *Windows) complete(o *oneSided, err error) {
	t := o.target
	if err == nil && o.into != nil {
		copy(o.into, o.bytes())
	}
	if err == nil && o.view != nil && o.mr == nil && o.wr.Op == transport.OpRead {
		o.view.Scatter(0, o.bytes()[:o.view.bytes()])
	}
	if o.mr != nil {
		err = cmp.Or(err, o.mr.Deregister())
		o.mr = nil
	}
	if r := o.request; r != nil {
		o.request = nil
		r.err = cmp.Or(r.err, err)
		if r.openTransfers--; r.openTransfers == 0 {
			w.e.Requests.complete(r, r.err)
		}
	}
	p, kept := o.peer, o.kept
	if kept {
		o.err, o.done = err, true
		o.endLocked()
	} else {
		t.dropLocked(o)
	}
	if kept || p.oneSided == maxOneSided/2 {
		w.e.waiting.wakeConditionsLocked()
	}
}

// onPeerFailed ends the operations posted at a failed peer; nothing is placed any more.
func (w *Windows) onPeerFailed(p *peer) {
	p.outbox = outbox{}
	for _, win := range w.list {
		win.endUseLocked(p)
		for i := range win.targets {
			if t := &win.targets[i]; t.rank == p.rank {
				t.failure.CompareAndSwap(nil, &p.cause)
				t.attachments.failLocked(&p.cause)
			}
		}
	}
	if p.fabric == nil || p.oneSided == 0 {
		return
	}
	for _, c := range p.fabric.oneSided.chunks {
		for i := range c.ops {
			if o := &c.ops[i]; o.target != nil && o.peer == p {
				w.complete(o, p.cause)
			}
		}
	}
}

func isQueueFull(err error) bool { return errors.Is(err, transport.ErrQueueFull) }

// because returns why a post failed: the peer's failure, if the peer has failed. While the rank closes its
// connections, the peer has not.
func (y *failures) because(p *peer, err error) error {
	if !errors.Is(err, transport.ErrState) {
		return err
	}
	y.failPeer(p, err)
	return cmp.Or(p.cause, err)
}
