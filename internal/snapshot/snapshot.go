// Package snapshot describes the state of a rank: which calls of the program wait, for which ranks, since
// when and at which source line, and which messages have arrived unmatched. A rank sends its snapshot to the
// launcher, which finds out why a job hangs.
package snapshot

import (
	"encoding/json"
	"fmt"
	"time"
)

// Version is the version of the encoding. A launcher reads only snapshots of its own version.
const Version = 3

// MaxSize bounds an encoded snapshot, in bytes.
const MaxSize = 1 << 19

// Limits of the lists of a snapshot. The elements beyond them are counted.
const (
	MaxWaits    = 64
	MaxOps      = 16
	MaxMessages = 64
	MaxComms    = 64
	MaxLocks    = 64
	MaxChannels = 4096
)

// Any is the peer of a receive from any source, and the tag of a receive of any tag.
const Any = -1

// Phase is the progress of a rank from Init to its end.
type Phase string

const (
	// NotBegun: it has not called Init. A rank does not report this itself.
	NotBegun   Phase = "not begun"
	Starting   Phase = "starting" // it is in Init
	Running    Phase = "running"
	Finalizing Phase = "finalizing" // it is in Finalize, and sends no message of the program any more
	Finished   Phase = "finished"   // it has left Finalize, or its Init has failed
)

// Acts reports whether a rank may send messages of the program, now or later.
func (p Phase) Acts() bool { return p != Finalizing && p != Finished }

// A Rank is the state of one rank.
type Rank struct {
	Version int
	Rank    int // in the world
	Size    int // of the world; 0 for a rank without one: it is in Init, or its Init has failed
	Phase   Phase

	// Progress grows whenever a message of the rank is sent, arrives, is matched or completes.
	Progress uint64
	Still    time.Duration // since Progress last grew, or since Init

	// Active counts goroutines of the program or the standard library that may act without any message: they
	// run, sleep, read a file or wait on a Go channel. A goroutine that waits in a call of weft does not
	// count, nor one that only another goroutine of the program can release.
	Active int
	// At is the source line of an active goroutine, if there is one, and Call the function of package mpi
	// that it is in, if any. It is busy there, or a busy host has not let it say what it waits for.
	At   string `json:",omitempty"`
	Call string `json:",omitempty"`
	// Later says how the program may act without a goroutine that shows it, such as by a timer. It is the end
	// of a sentence about the program, and empty if it cannot act so.
	Later string `json:",omitempty"`

	// Leaving is set if messages wait for a connection or for room at a peer. They leave without a call.
	Leaving bool `json:",omitempty"`

	Waits      []Wait    `json:",omitempty"`
	MoreWaits  int       `json:",omitempty"` // not listed
	Unexpected []Message `json:",omitempty"` // by age, the oldest first
	More       int       `json:",omitempty"` // unexpected messages not listed
	Comms      []Comm    `json:",omitempty"` // communicators that are not freed, the world first
	Locks      []Held    `json:",omitempty"` // locks of windows that the rank has; at most MaxLocks
	Open       []Open    `json:",omitempty"` // Puts and Gets that are not ended; at most MaxLocks
	Channels   []Channel `json:",omitempty"` // to other ranks, by rank; at most MaxChannels
}

// Init is the name of the call in which a Starting rank waits.
const Init = "Init"

// Finalize is the name of the collective in which a rank in mpi.Finalize waits.
const Finalize = "Finalize"

// PartOfCall is the name of a message that a call waits for as a part of itself, such as one of Split.
const PartOfCall = "the data"

// A Wait is a goroutine that waits in a call.
type Wait struct {
	Call      string        // the function of package mpi
	Site      string        `json:",omitempty"` // file:line of the program that called it
	Goroutine uint64        `json:",omitempty"`
	Since     time.Duration // how long it has waited
	// Bounded is set if the wait ends by itself, with a context or at a time.
	Bounded bool `json:",omitempty"`
	Ops     []Op `json:",omitempty"` // one of them is enough
	MoreOps int  `json:",omitempty"` // not listed
}

// OpKind is the kind of an operation.
type OpKind string

const (
	Send       OpKind = "send"
	Recv       OpKind = "recv"
	Collective OpKind = "collective"
	Lock       OpKind = "lock" // of the part of a window that Peer has
)

// An Op is an incomplete operation.
type Op struct {
	Kind  OpKind
	Name  string `json:",omitempty"` // of a collective, or of a message that a call consists of
	Comm  uint32 // the communicator's id
	Peer  int    // world rank, or Any; meaningless for a collective
	Tag   int    // or Any
	Bytes int
	// Moving is set if the operation needs no action of another rank: its bytes are in flight.
	Moving bool `json:",omitempty"`

	// For a collective: how many this rank has begun on the communicator, including this one, 0 if unknown;
	// and the world ranks whose messages it waits for now.
	Number uint64 `json:",omitempty"`
	Needs  []int  `json:",omitempty"`
}

// A Channel counts the messages between the rank and a peer. Messages that one has sent and the other has not
// received are in flight.
type Channel struct {
	Peer           int
	Sent, Received uint64
}

// Held is a lock that the rank has: that of Peer's part of a window.
type Held struct {
	Comm uint32 // of the window
	Peer int    // world rank
}

// Open are Puts and Gets on Peer's part of a window that no Fence, Flush, Unlock or Complete has ended.
type Open struct {
	Comm       uint32        // of the window
	Peer       int           // world rank
	Puts, Gets int           `json:",omitempty"`
	Since      time.Duration // of the oldest
}

// A Message has arrived, and no receive has matched it.
type Message struct {
	Comm  uint32
	From  int // world rank
	Tag   int
	Bytes int
}

// A Comm describes a communicator of the rank.
type Comm struct {
	ID    uint32
	Name  string
	Ranks []int  `json:",omitempty"` // world ranks by rank in the communicator; nil for the world
	Begun uint64 // collectives that this rank has begun on it
}

// Encode returns the snapshot's encoding, which Decode reads.
func (r *Rank) Encode() ([]byte, error) {
	r.Version = Version
	return json.Marshal(r)
}

// Decode decodes and checks a snapshot: the launcher does not trust a rank.
func Decode(b []byte) (*Rank, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("a snapshot of %d bytes; at most %d are read", len(b), MaxSize)
	}
	r := &Rank{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("a snapshot that cannot be read: %w", err)
	}
	return r, r.check()
}

// IsOf reports whether this can be the snapshot of a rank in a job of that size. It sets the number of a rank
// without a world, which does not know it.
func (r *Rank) IsOf(rank, size int) bool {
	if r.Size == 0 {
		r.Rank, r.Size = rank, size
	}
	return r.Rank == rank && r.Size == size
}

func (r *Rank) check() error {
	if r.Version != Version {
		return fmt.Errorf("a snapshot of version %d; this launcher reads version %d", r.Version, Version)
	}
	world := r.Rank >= 0 && r.Rank < r.Size
	none := r.Rank == 0 && r.Size == 0 && (r.Phase == Starting || r.Phase == Finished)
	if !world && !none {
		return fmt.Errorf("a snapshot of rank %d of %d", r.Rank, r.Size)
	}
	for _, rank := range r.named() {
		if rank < 0 || rank >= r.Size {
			return fmt.Errorf("a snapshot of rank %d that names rank %d of %d", r.Rank, rank, r.Size)
		}
	}
	return nil
}

// named returns the world ranks that occur in a snapshot.
func (r *Rank) named() []int {
	var ranks []int
	for _, w := range r.Waits {
		for _, o := range w.Ops {
			ranks = append(ranks, o.Needs...)
			if o.Kind != Collective && o.Peer != Any {
				ranks = append(ranks, o.Peer)
			}
		}
	}
	for _, l := range r.Locks {
		ranks = append(ranks, l.Peer)
	}
	for _, c := range r.Comms {
		ranks = append(ranks, c.Ranks...)
	}
	for _, c := range r.Channels {
		ranks = append(ranks, c.Peer)
	}
	return ranks
}
