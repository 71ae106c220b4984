package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/rma"
	"github.com/weft-mpi/weft/transport"
)

// Window is memory of each rank of a group that the others reach without its help: by loads and stores where
// it is mapped here, else by Writes, Reads and Atomics of the peer's queue pair
// (docs/internals/spec/windows.md).
//
// Beside its memory each rank has a control block, which is reached in the same ways and holds the words of
// the window's lock.
type Window struct {
	e       *Engine
	id      uint32 // the same at all ranks
	typ     rma.Type
	mem     []byte
	control []byte
	regions []transport.MR // of memory and control block, in each fabric
	// held besides the lock word by whoever in this process changes elements of mem that are no words: the
	// race detector does not see what memory outside of Go's heap orders
	changing  orderedMutex
	stuck     bool           // the lock of the elements was not left when an UPDATE needed it last
	targets   []Target       // by rank of the group
	dynamic   *dynamicMemory // nil for a window whose memory is mem
	stepCalls atomic.Int32   // of unlessGivenUp that are not over
	shared    sharedMoves    // what this rank copies for others
}

// WindowCard is what a rank tells the others of its part of a window.
type WindowCard struct {
	Bytes     uint64 // of its memory
	Elem      uint64 // bytes of an element
	Unaligned uint64 // 1: its memory is no place for atomics on elements
	Failed    uint64 // 1: it has no part, and nobody gets a window
	Dynamic   uint64 // 1: its memory is what it attaches
	Fabrics   [maxWindowFabrics]windowKeys
}

// maxWindowFabrics is how many fabrics a rank has at most.
const maxWindowFabrics = 4

// windowKeys are the keys of a part of a window in one fabric.
type windowKeys struct {
	Name         [8]byte
	Mem, Control transport.Key
}

// windowRights are the rights of the others.
const windowRights = transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic

// WindowAlignment is what the address of a window's memory is a multiple of, for Atomics.
const WindowAlignment = 8

// Windows are the windows of a rank, and what they have posted.
//
// Invariants, under the lock: an operation that is posted has an entry until its completion has come or its
// peer has failed; memory of the caller is registered for no longer than that.
type Windows struct {
	e       *Engine
	list    []*Window
	free    *windowMessage
	passive passiveProgress
	// how long the owner of a part may leave a share of a Put or a Get uncopied
	peerTimeout time.Duration
	operands    [rma.MaxUpdate / wordBytes]uint64 // of the UPDATE that is carried out
	copied      uint64                            // bytes, of Puts and Gets of others
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
	size := controlBytes
	if dynamic != nil {
		size = dynamicControlBytes
	}
	control, err := e.hub.Alloc(size)
	if err != nil {
		return nil, WindowCard{Failed: 1}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	w := &Window{e: e, id: id, typ: typ, mem: mem, control: control, dynamic: dynamic}
	w.orderLocks()
	w.enableSharedMovesLocked()
	card := WindowCard{Bytes: uint64(len(mem)), Elem: uint64(typ.Size)}
	if dynamic != nil {
		card.Dynamic = 1
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%uintptr(typ.Size) != 0 {
		card.Unaligned = 1
	}
	for i, f := range e.fabrics {
		keys := &card.Fabrics[i]
		copy(keys.Name[:], f.name)
		if keys.Control, err = w.registerLocked(f, control); err == nil && len(mem) > 0 {
			keys.Mem, err = w.registerLocked(f, mem)
		}
		if err != nil {
			return nil, WindowCard{Failed: 1}, errors.Join(err, w.deregisterLocked())
		}
	}
	return w, card, nil
}

// registerLocked gives the peers of a fabric a region. Memory that is not aligned is no place for Atomics.
func (w *Window) registerLocked(f *fabric, mem []byte) (transport.Key, error) {
	w.e.mu.assertHeld()
	rights := windowRights
	if !aligned(mem) {
		rights &^= transport.RemoteAtomic
	}
	mr, err := f.pd.Register(mem, rights)
	if err != nil {
		return 0, err
	}
	w.regions = append(w.regions, mr)
	return mr.Key(), nil
}

// aligned tells whether memory is a place for Atomics.
func aligned(mem []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%WindowAlignment == 0
}

func (w *Window) deregisterLocked() (err error) {
	w.e.mu.assertHeld()
	for _, mr := range w.regions {
		err = errors.Join(err, mr.Deregister())
	}
	w.regions = nil
	return err
}

// Join makes the window whole: the cards are those of the ranks whose world ranks are given, self's among
// them.
func (w *Window) Join(self int, ranks []int, cards []WindowCard) {
	w.targets = make([]Target, len(ranks))
	for i := range w.targets {
		t := &w.targets[i]
		t.w, t.rank, t.card = w, ranks[i], cards[i]
		w.typ.Locked = w.typ.Locked || cards[i].Unaligned != 0
		t.conditions()
		if w.dynamic != nil {
			t.parts = &attachedParts{byEntry: map[uint64][]*attachedPart{}}
			t.parts.orderLocks(w.e.hub)
		}
	}
	t := &w.targets[self]
	t.base.Store(unsafe.SliceData(w.mem))
	t.control.Store(unsafe.SliceData(w.control))
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.e.Windows.list = append(w.e.Windows.list, w)
	w.e.Windows.passive.arm(w)
}

// Type is how elements are changed.
func (w *Window) Type() *rma.Type { return &w.typ }

// Target is the part of a rank of the group.
func (w *Window) Target(rank int) *Target { return &w.targets[rank] }

// Free gives this rank's part back. All ranks have ended what they had begun in the window, and nobody
// touches it any more.
func (w *Window) Free() error {
	w.e.mu.Lock()
	err := w.deregisterLocked()
	for i := range w.targets {
		err = errors.Join(err, w.targets[i].unmapLocked(), w.targets[i].parts.unmapAllLocked())
	}
	if w.dynamic != nil {
		for _, a := range w.dynamic.entries {
			if a != nil {
				err = errors.Join(err, a.deregister())
			}
		}
	}
	w.e.Windows.list = remove(w.e.Windows.list, w)
	w.e.mu.Unlock()
	return errors.Join(err, w.e.hub.Free(w.control))
}

// Discard gives back a part of a window that has not come about.
func (w *Window) Discard() error {
	w.e.mu.Lock()
	err := w.deregisterLocked()
	w.e.mu.Unlock()
	return errors.Join(err, w.e.hub.Free(w.control))
}

// keysFor are the keys of a part in a fabric.
func (c *WindowCard) keysFor(f *fabric) (*windowKeys, error) {
	for i := range c.Fabrics {
		k := &c.Fabrics[i]
		if n := len(f.name); n <= len(k.Name) && string(k.Name[:n]) == f.name {
			return k, nil
		}
	}
	return nil, fmt.Errorf("%w: the peer's window is not in fabric %s", transport.ErrInvalid, f.name)
}
