package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
)

// The part of a rank in a dynamic window consists of its attachments, each a piece of memory that it has
// attached. An attachment has a number that the rank never uses again, and an entry in a table after the
// control block of the part, at its number modulo the number of entries.
//
// The entry's first word counts the users of the attachment: ranks with operations on it. A rank becomes a
// user before it begins one, by adding 1 to the word. The word also shows whether the memory is still
// attached; if not, the operation fails at the origin. The rank stops being a user when its operations are
// complete at both ends. Detach removes the number from the word, and waits until there are no users: then no
// rank accesses the memory, and none will.
const (
	attachedEntries = 4096 // bound on the attachments of a rank
	entryBytes      = 64
	entryState      = 0  // the number times userUnit, plus the number of users
	entryLength     = 8  // bytes of the memory
	entryKeys       = 16 // of the memory, in the order of the card's fabrics

	userUnit = 1 << 20

	dynamicControlBytes = controlBytes + attachedEntries*entryBytes
)

// AttachedShift is the lowest bit of the number of the attachment in the position of an element of a dynamic
// window. The bits below it are the index of the element in the attachment.
const AttachedShift = 34

const (
	placeMask    = 1<<AttachedShift - 1
	maxAttaching = 1<<(63-AttachedShift) - 1
)

// Errors of dynamic windows.
var (
	ErrNothingAttached = errors.New("nothing is attached")
	ErrManyAttached    = fmt.Errorf("a rank cannot attach more than %d pieces of memory at once",
		attachedEntries)
	ErrAttachedTooOften = fmt.Errorf("a rank cannot attach memory to a window more than %d times; make a "+
		"new window", maxAttaching)
)

// attached is an attachment of this rank.
type attached struct {
	number  uint64
	mem     []byte
	regions regions
	leaving bool // Detach was called
}

// dynamicMemory has the attachments of this rank. The engine's lock guards it.
type dynamicMemory struct {
	entries [attachedEntries]*attached
	next    uint64 // number
}

func entryAt(number uint64) int { return controlBytes + int(number%attachedEntries)*entryBytes }

// Attach attaches memory to a dynamic window, and returns the position of its first element.
func (w *Window) Attach(mem []byte) (at int, err error) {
	e := w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	d := w.dynamic
	a := &attached{mem: mem}
	for range attachedEntries {
		if d.entries[d.next%attachedEntries] == nil {
			a.number = d.next
			break
		}
		d.next++
	}
	switch {
	case a.number == 0:
		return 0, ErrManyAttached
	case a.number > maxAttaching:
		return 0, ErrAttachedTooOften
	}
	entry := w.control[entryAt(a.number):][:entryBytes]
	binary.NativeEndian.PutUint64(entry[entryLength:], uint64(len(mem)))
	for i, f := range e.fabrics {
		if len(mem) == 0 {
			break
		}
		key, err := a.regions.register(f, mem)
		if err != nil {
			return 0, errors.Join(err, a.regions.deregister())
		}
		binary.NativeEndian.PutUint64(entry[entryKeys+i*wordBytes:], uint64(key))
	}
	d.entries[a.number%attachedEntries] = a
	d.next++
	// from here on other ranks find it
	atomic.AddUint64((*uint64)(unsafe.Pointer(&entry[entryState])), a.number*userUnit)
	w.e.Windows.passive.arm(w)
	return int(a.number) << AttachedShift, nil
}

// find returns the attachment with a number, or nil.
func (d *dynamicMemory) find(number uint64) *attached {
	if a := d.entries[number%attachedEntries]; a != nil && a.number == number {
		return a
	}
	return nil
}

// Detach detaches memory from a dynamic window, by the position of its first element. Operations on it that
// begin later fail. It waits for those that others have begun, and then deregisters the memory. If it fails,
// or s ends, they may still be under way; it can be called again.
func (w *Window) Detach(at int, s *Canceller) error {
	number := uint64(at) >> AttachedShift
	w.e.mu.Lock()
	a := w.dynamic.find(number)
	if at < 0 || at&placeMask != 0 || a == nil {
		w.e.mu.Unlock()
		return ErrNothingAttached
	}
	state := (*uint64)(unsafe.Pointer(&w.control[entryAt(number)+entryState]))
	if !a.leaving {
		a.leaving = true
		atomic.AddUint64(state, -(number * userUnit))
	}
	w.e.mu.Unlock()
	for try := 0; atomic.LoadUint64(state)%userUnit != 0; try++ {
		if err := s.Err(); err != nil {
			return err
		}
		if err := w.anyFailed(); err != nil {
			return err
		}
		w.pause(try)
	}
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if w.dynamic.find(number) != a {
		return ErrNothingAttached // another goroutine has detached it meanwhile
	}
	w.dynamic.entries[number%attachedEntries] = nil
	return a.regions.deregister()
}

// memoryAtLocked returns the memory of this rank to which the position in an UPDATE refers, and the offset
// there. An attachment for whose users Detach waits is still found: the sender of an UPDATE is a user.
func (w *Window) memoryAtLocked(position uint64) (mem []byte, offset uint64) {
	w.e.mu.assertHeld()
	if w.dynamic == nil {
		return w.mem, position
	}
	if a := w.dynamic.find(position >> AttachedShift); a != nil {
		return a.mem, position & placeMask * uint64(w.typ.Size)
	}
	return nil, 0
}

// position returns the position, for an UPDATE, of an offset of the target.
func (t *Target) position(at int) uint64 {
	if t.attachment == nil {
		return uint64(at)
	}
	return t.attachment.number<<AttachedShift + uint64(at/t.w.typ.Size)
}

// attachedParts has the attachments of one rank that this rank has found, or is looking for: a program may
// ask for any number. mu is a leaf in the order of locks.
type attachedParts struct {
	mu      orderedMutex
	byEntry map[uint64][]*attachedPart
	used    []*attachedPart // attachments of which this rank is a user
}

// attachedPart is this rank's access to one attachment, which is a target of its own.
type attachedPart struct {
	Target
	base   *Target
	number uint64
	known  bool // its entry was read

	// held while this rank becomes a user, or ceases to be one; before the engine's lock in the order of
	// locks
	mu    *Lock
	calls int  // number of calls that are about to begin an operation
	user  bool // this rank is a user
}

// Hold finds the attachment to which a position of a dynamic window belongs, and keeps this rank a user of it
// until the operations that are begun before Release have ended.
func (t *Target) Hold(position int, s *Canceller) (*Target, error) {
	if err := t.Reach(s); err != nil {
		return nil, err
	}
	if position < 0 {
		return nil, ErrNothingAttached
	}
	p := t.attachments.get(t, uint64(position)>>AttachedShift)
	if s == nil || t.Control.at.Load() != nil {
		return &p.Target, p.hold()
	}
	if p.mu.TryLock() { // else another goroutine may be waiting for the target
		user := p.user
		if user {
			p.calls++
		}
		p.mu.Unlock()
		if user {
			return &p.Target, nil
		}
	}
	return &p.Target, t.w.cancellable(s, p.hold, p.release)
}

// get returns the attachedPart of a number. Only hold finds out whether it is attached.
func (a *attachedParts) get(base *Target, number uint64) *attachedPart {
	a.mu.Lock()
	defer a.mu.Unlock()
	entry := number % attachedEntries
	for _, p := range a.byEntry[entry] {
		if p.number == number {
			return p
		}
	}
	p := &attachedPart{mu: base.w.e.NewLock(), base: base, number: number}
	p.w, p.rank, p.card, p.attachment = base.w, base.rank, base.card, p
	p.init()
	p.failure.Store(base.failure.Load())
	a.byEntry[entry] = append(a.byEntry[entry], p)
	return p
}

func (p *attachedPart) hold() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.user {
		entry := entryAt(p.number)
		state, err := p.base.Control.add(entry+entryState, 1)
		if err != nil {
			return err
		}
		if state/userUnit != p.number {
			err = p.base.Control.beginAdd(entry+entryState, ^uint64(0), nil)
			p.base.attachments.forget(p.number%attachedEntries, func(q *attachedPart) bool { return q == p })
			return errors.Join(ErrNothingAttached, err)
		}
		if !p.known {
			if err := p.learn(entry); err != nil {
				return errors.Join(err, p.base.Control.beginAdd(entry+entryState, ^uint64(0), nil))
			}
		}
		p.user = true
		a := p.base.attachments
		a.mu.Lock()
		a.used = append(a.used, p)
		a.mu.Unlock()
		// The attachments that had the entry before are detached, and nobody uses them.
		a.forget(p.number%attachedEntries, func(other *attachedPart) bool { return other.number < p.number })
	}
	p.calls++
	return nil
}

// forget drops the attachments of an entry that detached selects.
func (a *attachedParts) forget(entry uint64, detached func(p *attachedPart) bool) {
	a.mu.Lock()
	var gone []*attachedPart
	left := slices.DeleteFunc(a.byEntry[entry], func(p *attachedPart) bool {
		if !detached(p) {
			return false
		}
		gone = append(gone, p)
		return true
	})
	if a.byEntry[entry] = left; len(left) == 0 {
		delete(a.byEntry, entry)
	}
	a.mu.Unlock() // the engine's lock must not be taken under this mutex
	for _, p := range gone {
		p.w.e.mu.Lock()
		_ = p.unmapLocked() // the peer's memory does not depend on it
		p.w.e.mu.Unlock()
	}
}

// learn reads the entry of an attachment.
func (p *attachedPart) learn(entry int) error {
	e := p.w.e
	var words [entryBytes]byte
	if p.base.Control.at.Load() != nil {
		copy(words[:], unsafe.Slice((*byte)(unsafe.Pointer(p.base.Control.word(entry))), entryBytes))
	} else if err := p.base.Control.read(words[:], entry); err != nil {
		return err
	}
	p.card.Bytes = binary.NativeEndian.Uint64(words[entryLength:])
	for i := range p.card.Fabrics {
		p.card.Fabrics[i].Mem = transport.Key(binary.NativeEndian.Uint64(words[entryKeys+i*wordBytes:]))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p.known = true
	if p.rank == e.rank {
		if a := p.w.dynamic.find(p.number); a != nil {
			p.Target.base.Store(unsafe.SliceData(a.mem))
			p.Control.at.Store(p.base.Control.at.Load())
		}
		return nil
	}
	peer, err := p.base.reachLocked(nil)
	if err != nil {
		return err
	}
	keys, err := p.card.keysFor(peer.fabric)
	if err != nil {
		return err
	}
	p.keys = keys
	m, ok := peer.ch.QP().(transport.Mapper)
	if !ok || p.base.Control.at.Load() == nil {
		return nil
	}
	if p.card.Bytes > 0 {
		mem := p.mapLocked(m, keys.Mem, p.card.Bytes)
		if mem == nil {
			return nil
		}
		p.Target.base.Store(unsafe.SliceData(mem))
	}
	p.Control.at.Store(p.base.Control.at.Load())
	return nil
}

// Release ends a Hold: no more operations are begun. It does nothing for a target that is not an attachment.
func (t *Target) Release() {
	if t.attachment != nil {
		t.attachment.release()
	}
}

func (p *attachedPart) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls--
	p.leaveIfIdle()
}

// leaveIfIdle ends the use of the attachment if no operation of this rank is under way or about to begin.
func (p *attachedPart) leaveIfIdle() {
	if p.calls > 0 || !p.user {
		return
	}
	if p.Control.at.Load() == nil {
		p.w.e.mu.Lock()
		idle := p.posted.empty() && !p.written
		p.w.e.mu.Unlock()
		if !idle {
			return
		}
	}
	p.user = false
	a := p.base.attachments
	a.mu.Lock()
	a.used = remove(a.used, p)
	a.mu.Unlock()
	// If the peer has failed, nobody waits for this.
	_ = p.base.Control.beginAdd(entryAt(p.number)+entryState, ^uint64(0), nil)
}

// flushAttachments is Flush, or FlushLocal, of all attachments in use.
func (t *Target) flushAttachments(placed bool, s *Canceller) (first error) {
	a := t.attachments
	var few [8]*attachedPart
	a.mu.Lock()
	used := append(few[:0], a.used...)
	a.mu.Unlock()
	for _, p := range used {
		err := p.Err()
		if p.Control.at.Load() == nil {
			err = p.flush(placed, s)
		}
		if first == nil {
			first = err
		}
		p.mu.Lock()
		p.leaveIfIdle()
		p.mu.Unlock()
	}
	if first == nil {
		first = t.Err()
	}
	return first
}

// failLocked sets the failure of the attachments' rank.
func (a *attachedParts) failLocked(cause *error) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, parts := range a.byEntry {
		for _, p := range parts {
			p.failure.CompareAndSwap(nil, cause)
		}
	}
}

// unmapAllLocked unmaps all attachments.
func (a *attachedParts) unmapAllLocked() (err error) {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, parts := range a.byEntry {
		for _, p := range parts {
			err = errors.Join(err, p.unmapLocked())
		}
	}
	a.byEntry, a.used = nil, nil
	return err
}

// read reads bytes of the control block through the queue pair.
func (c *ControlBlock) read(dst []byte, at int) error {
	e := c.t.w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	p, err := c.t.reachLocked(nil)
	if err != nil {
		return err
	}
	o, err := c.t.newOperationLocked(p, nil)
	if err != nil {
		return err
	}
	o.kept, o.into = true, dst
	o.local[0] = transport.SGE{MR: o.chunk.mr, Offset: o.slot(), Length: len(dst)}
	o.remote[0] = transport.Segment{Key: c.t.keys.Control, Offset: uint64(at), Length: uint64(len(dst))}
	o.wr.Op = transport.OpRead
	if err := c.t.postOperationLocked(p, o, nil); err != nil {
		return err
	}
	if !o.done {
		e.mu.Unlock()
		e.waiting.waitUntil(0, nil, o.ended)
		e.mu.Lock()
	}
	err = o.err
	c.t.dropLocked(o)
	return err
}
