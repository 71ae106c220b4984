package engine

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/rma"
	"github.com/weft-mpi/weft/transport"
)

// Window is memory of each rank of a group, the rank's part, that the others reach without its help: by loads
// and stores where it is mapped here, else by Writes, Reads and Atomics of the peer's queue pair. Only
// accumulates on parts that are not mapped need the target's engine, which executes them (UPDATE;
// docs/internals/spec/windows.md).
//
// Beside its memory each rank has a control block, which is reached in the same ways and holds the words of
// the window's lock.
type Window struct {
	e       *Engine
	id      uint32 // the same at all ranks
	typ     rma.Type
	mem     []byte
	control []byte
	regions regions // of memory and control block, in each fabric
	// held, besides the lock word, by a goroutine of this process that changes elements of mem that are not
	// words: the race detector does not see synchronization through memory outside Go's heap. A leaf in the
	// order of locks
	changing  orderedMutex
	stuck     bool           // the last UPDATE timed out at the lock of the elements
	targets   []Target       // by rank of the group
	dynamic   *dynamicMemory // nil unless the window is dynamic
	stepCalls atomic.Int32   // calls of cancellable that are not over
	shared    sharedMoves    // Puts and Gets that this rank helps to copy
}

// WindowCard describes the window memory of a rank to the others: its size, and its keys for remote access.
type WindowCard struct {
	Bytes     uint64 // of its memory
	Elem      uint64 // bytes of an element
	Unaligned uint64 // 1: its memory is not aligned for atomics on elements
	Failed    uint64 // 1: the rank has failed to make its part, so the window is not created
	Dynamic   uint64 // 1: the window is dynamic
	Fabrics   [maxWindowFabrics]windowKeys
}

// maxWindowFabrics bounds the number of a rank's fabrics.
const maxWindowFabrics = 4

// windowKeys are the keys of a rank's memory and control block in one fabric.
type windowKeys struct {
	Name         [8]byte
	Mem, Control transport.Key
}

// windowRights are the rights of the other ranks.
const windowRights = transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic

// WindowAlignment is the alignment of a window's memory that Atomics require.
const WindowAlignment = 8

// Windows has the windows of a rank, and the operations posted for them.
//
// Invariants, under the lock: a posted operation has an entry until its completion has arrived or its peer
// has failed; memory of the caller is registered for no longer than that.
type Windows struct {
	e       *Engine
	list    []*Window
	free    *windowMessage
	passive passiveProgress
	// bounds the wait for a part's owner that copies its portion of a Put or Get
	peerTimeout time.Duration
	operands    [rma.MaxUpdate / wordBytes]uint64 // of the UPDATE that is being executed
	copied      uint64                            // bytes copied for Puts and Gets of others
}

// New makes this rank's part of a window of memory mem, which may be empty, with elements of a type.
func (w *Windows) New(id uint32, mem []byte, typ rma.Type) (*Window, WindowCard, error) {
	return w.make(id, mem, typ, nil)
}

// NewDynamic is New without memory; Attach gives it some.
func (w *Windows) NewDynamic(id uint32, typ rma.Type) (*Window, WindowCard, error) {
	return w.make(id, nil, typ, &dynamicMemory{next: 1})
}

func (ws *Windows) make(id uint32, mem []byte, typ rma.Type, dynamic *dynamicMemory) (*Window, WindowCard,
	error) {
	e := ws.e
	if n := len(e.fabrics); n > maxWindowFabrics {
		return nil, WindowCard{Failed: 1}, fmt.Errorf("%w: a window of a rank with %d fabrics; windows "+
			"support up to %d", transport.ErrInvalid, n, maxWindowFabrics)
	}
	size := controlBytes
	if dynamic != nil {
		size = dynamicControlBytes
	}
	control, err := e.hub.Memory.Alloc(size)
	if err != nil {
		return nil, WindowCard{Failed: 1}, err
	}
	w := &Window{e: e, id: id, typ: typ, mem: mem, control: control, dynamic: dynamic}
	card, err := w.register()
	if err != nil {
		return nil, WindowCard{Failed: 1}, errors.Join(err, w.Discard())
	}
	return w, card, nil
}

// register registers the window's memory in all fabrics, and describes it. After an error, Discard undoes it.
func (w *Window) register() (WindowCard, error) {
	e, mem := w.e, w.mem
	e.mu.Lock()
	defer e.mu.Unlock()
	w.orderLocks()
	w.enableSharedMovesLocked()
	card := WindowCard{Bytes: uint64(len(mem)), Elem: uint64(w.typ.Size)}
	if w.dynamic != nil {
		card.Dynamic = 1
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%uintptr(w.typ.Size) != 0 {
		card.Unaligned = 1
	}
	for i, f := range e.fabrics {
		keys := &card.Fabrics[i]
		copy(keys.Name[:], f.name)
		var err error
		if keys.Control, err = w.regions.register(f, w.control); err == nil && len(mem) > 0 {
			keys.Mem, err = w.regions.register(f, mem)
		}
		if err != nil {
			return WindowCard{}, err
		}
	}
	return card, nil
}

// regions are the registrations of memory that peers reach.
type regions []transport.MR

// register registers mem in a fabric with the rights of peers, which include Atomics only if mem is aligned.
func (r *regions) register(f *fabric, mem []byte) (transport.Key, error) {
	rights := windowRights
	if !aligned(mem) {
		rights &^= transport.RemoteAtomic
	}
	mr, err := f.pd.Register(mem, rights)
	if err != nil {
		return 0, err
	}
	*r = append(*r, mr)
	return mr.Key(), nil
}

// deregister ends all of them.
func (r *regions) deregister() (err error) {
	for _, mr := range *r {
		err = errors.Join(err, mr.Deregister())
	}
	*r = nil
	return err
}

// aligned reports whether memory is a place for Atomics.
func aligned(mem []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%WindowAlignment == 0
}

// Join completes the window: ranks are the world ranks of the group, and cards their cards, including that of
// self.
func (w *Window) Join(self int, ranks []int, cards []WindowCard) {
	w.targets = make([]Target, len(ranks))
	for i := range w.targets {
		t := &w.targets[i]
		t.w, t.rank, t.card = w, ranks[i], cards[i]
		w.typ.Locked = w.typ.Locked || cards[i].Unaligned != 0
		t.init()
		if w.dynamic != nil {
			t.attachments = &attachedParts{byEntry: map[uint64][]*attachedPart{}}
			t.attachments.orderLocks(w.e.hub)
		}
	}
	t := &w.targets[self]
	t.base.Store(unsafe.SliceData(w.mem))
	t.Control.at.Store(unsafe.SliceData(w.control))
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.e.Windows.list = append(w.e.Windows.list, w)
	w.e.Windows.passive.arm(w)
}

// Type returns the type of the elements.
func (w *Window) Type() *rma.Type { return &w.typ }

// Target returns the access to a rank of the group.
func (w *Window) Target(rank int) *Target { return &w.targets[rank] }

// Free frees this rank's part. All ranks have completed their operations in the window, and nobody accesses
// it any more.
func (w *Window) Free() error {
	w.e.mu.Lock()
	err := w.regions.deregister()
	for i := range w.targets {
		err = errors.Join(err, w.targets[i].unmapLocked(), w.targets[i].attachments.unmapAllLocked())
	}
	if w.dynamic != nil {
		for _, a := range w.dynamic.entries {
			if a != nil {
				err = errors.Join(err, a.regions.deregister())
			}
		}
	}
	w.e.Windows.list = remove(w.e.Windows.list, w)
	w.e.mu.Unlock()
	return errors.Join(err, w.e.hub.Memory.Free(w.control))
}

// Discard frees this rank's part of a window whose creation failed.
func (w *Window) Discard() error {
	w.e.mu.Lock()
	err := w.regions.deregister()
	w.e.mu.Unlock()
	return errors.Join(err, w.e.hub.Memory.Free(w.control))
}

// keysFor returns the keys of a part in a fabric.
func (c *WindowCard) keysFor(f *fabric) (*windowKeys, error) {
	for i := range c.Fabrics {
		k := &c.Fabrics[i]
		if string(bytes.TrimRight(k.Name[:], "\x00")) == f.name {
			return k, nil
		}
	}
	return nil, fmt.Errorf("%w: the peer's window is not in fabric %s", transport.ErrInvalid, f.name)
}
