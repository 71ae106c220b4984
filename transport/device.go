package transport

import "time"

// Device is one instance of a provider, owned by one rank.
type Device interface {
	// Query tells what the device can do. The answer never changes.
	Query() DeviceAttr

	// AllocPD makes a protection domain: QPs reach only regions of their own PD.
	AllocPD() (PD, error)

	// CreateCQ makes a completion queue that holds at most depth completions that nobody has polled.
	CreateCQ(depth int) (CQ, error)

	// Listen starts the connection management of this device: from then on peers can connect to Endpoint.Addr, and the
	// device can connect to them. acceptor is told of every connection, whichever side began it. One endpoint a device.
	Listen(id Identity, acceptor Acceptor) (Endpoint, error)

	// Close releases everything: the endpoint, then QPs (cut, not drained: close them first), CQs, regions, descriptors
	// and goroutines. Nothing is left when it returns. Calling it twice is harmless.
	Close() error
}

// DeviceAttr are the limits of a device. A request beyond one is refused at the call.
type DeviceAttr struct {
	Provider    string // "tcp", "sim", …
	MaxSGE      int    // elements of a gather or scatter list
	MaxSegments int    // remote segments of one Read
	MaxInline   int    // bytes of a work request with FlagInline
	MaxMessage  int    // bytes of one work request
	MaxQPDepth  int    // outstanding work requests of one queue
	MaxReads    int    // outstanding Reads of one QP, at each end
	MaxPrivate  int    // bytes of private data at connection start

	TickPeriod time.Duration // how often CQ.Tick is to be called; 0: it need not be
}

// PD is a protection domain.
type PD interface {
	// Register makes buf reachable through a key, with the given rights. The caller goes on owning the memory and must not
	// let go of it before Deregister. Local reads need no right. It allocates nothing once the device has warmed up, so it
	// may be called per message.
	Register(buf []byte, access Access) (MR, error)

	// Alloc registers n bytes (n > 0) of fresh zeroed memory, page-aligned and off the Go heap, of a kind that this
	// provider's peers can write directly. Deregister frees it: nobody may hold its Bytes by then.
	Alloc(n int, access Access) (MR, error)

	// Close releases the domain; an error if regions or QPs still use it.
	Close() error
}

// MR is a memory region. The zero-based offset of its first byte is 0.
type MR interface {
	// Bytes is the registered memory itself.
	Bytes() []byte

	// Key is what a peer needs to reach the region: 64 bits that cannot be guessed and that change with every
	// registration, so that a key of an earlier one never matches.
	Key() Key

	// Access are the rights with which it was registered.
	Access() Access

	// Deregister takes the key out of use: when it returns nothing is placed in the memory any more. Work that still names
	// the region fails. The MR must not be used afterwards: the device uses its object for the next registration.
	Deregister() error

	// Detach is Deregister that leaves memory of PD.Alloc mapped, until the process ends, to an owner who may still look at it.
	Detach() error
}

// Key names a region to a peer.
type Key uint64

// Access are the rights of a region. OR them.
type Access uint8

const (
	LocalWrite  Access = 1 << iota // the owner's own Recvs and Reads may place into it
	RemoteRead                     // peers may Read it
	RemoteWrite                    // peers may Write it; includes LocalWrite
)
