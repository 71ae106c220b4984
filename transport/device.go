package transport

import (
	"fmt"
	"strings"
	"time"
)

// Device is one instance of a provider, owned by one rank.
type Device interface {
	// Query tells what the device can do. The answer never changes.
	Query() DeviceAttr

	// AllocPD makes a protection domain: QPs reach only regions of their own PD.
	AllocPD() (PD, error)

	// CreateCQ makes a completion queue that holds at most depth completions that nobody has polled, and
	// gives it to a completion handler (0: to none, whoever polls it drives it).
	CreateCQ(depth int, h HandlerID) (CQ, error)

	// SetCompletionHandler registers a completion handler and starts it (N2). Several can be registered, up
	// to DeviceAttr.Handlers. A core that this process may not use is refused.
	SetCompletionHandler(c HandlerConfig) (HandlerID, error)

	// ModifyCQ gives a completion queue to another handler, or to none (0). The caller holds the Lock of the
	// handler that it leaves, and of the one that has the other queue of a queue pair, if one has; from the
	// return on that of the new one counts. No event is lost: what has been raised and not delivered, and
	// what has been requested, goes with the queue. It is refused while a goroutine is in CQ.Wait.
	ModifyCQ(cq CQ, h HandlerID) error

	// CloseHandler ends a handler that has no queues any more, and returns when nothing of it runs. The
	// caller does not hold its Lock.
	CloseHandler(h HandlerID) error

	// Listen starts the connection management of this device: from then on peers can connect to
	// Endpoint.Addr, and the device can connect to them. acceptor is told of every connection, whichever side
	// began it. One endpoint a device.
	Listen(id Identity, acceptor Acceptor) (Endpoint, error)

	// Close releases everything: the endpoint, then QPs (cut, not drained: close them first), handlers, CQs,
	// regions, descriptors and goroutines. Nothing is left when it returns. Calling it twice is harmless.
	// Every posted request completes first, once; the handlers deliver the events of that and end;
	// completions that nobody has polled can still be polled (N8). The caller holds no handler's Lock.
	Close() error
}

// DeviceAttr is what a device can do. A request beyond one of its limits is refused at the call.
type DeviceAttr struct {
	Provider    string // "tcp", "sim", …
	MaxSGE      int    // elements of a gather or scatter list
	MaxSegments int    // remote segments of one Read
	MaxInline   int    // bytes of a work request with FlagInline
	MaxMessage  int    // bytes of one work request
	MaxQPDepth  int    // outstanding work requests of one queue
	MaxReads    int    // outstanding Reads and Atomics of one QP, at each end
	MaxPrivate  int    // bytes of private data at connection start
	Handlers    int    // completion handlers at once: one for each core that this process may use (N1)

	// MaxPolledQPs is the number of queue pairs of a CQ up to which its consumer looks by itself for what is
	// placed: while a CQ has no more, and no handler, and nobody has armed it, Placed does not tell of them.
	// 0: Placed tells of all. It is for providers whose peers write straight into memory that one looks at,
	// so that there is nothing for Poll to notice.
	MaxPolledQPs int

	PollableCQs bool // CQ.Descriptor is an epoll descriptor: several CQs can be waited for at once

	TickPeriod time.Duration // how often CQ.Tick is to be called; 0: it need not be

	// What follows is what a provider may lack. Nothing of it is used without a look here.

	// TailLast promises that the last 8 bytes of a Write are placed after all its others and, where they are
	// aligned to 8, as one word. Standard reliable connections do not: who finds Writes by polling memory
	// needs it.
	TailLast bool

	InlineWrites   bool // QP.WriteInline
	PeerMapped     bool // WriteInline stores into the peer's memory itself, and PrefetchAddr knows where
	DirectReads    bool // QP.Get
	PollQP         bool // QP.PollQP
	Lanes          bool // a queue pair may have several connections, which QP.Lanes counts
	Atomics        bool // OpFetchAdd and OpCompareSwap
	Windows        bool // PD.AllocMW, OpBind, OpInvalidate and OpSendInvalidate
	StreamTransfer bool // Endpoint.Transfer
	Views          bool // the PDs are ViewRegistrars
}

// PD is a protection domain.
type PD interface {
	// Register makes buf reachable through a key, with the given rights. The caller goes on owning the memory
	// and must not let go of it before Deregister. Local reads need no right. With RemoteAtomic the memory
	// must begin at an address that is a multiple of 8. It allocates nothing once the device has warmed up,
	// so it may be called per message. What lies in memory of Alloc, of the same device, peers reach as
	// directly as that, if Alloc was given any right for peers, or BindWindow.
	Register(buf []byte, access Access) (MR, error)

	// Alloc registers n bytes (n > 0) of fresh zeroed memory, page-aligned and off the Go heap, of a kind
	// that this provider's peers can write directly; without a right for peers, and without BindWindow, it
	// may be of any kind. Deregister frees it: nobody may hold its Bytes by then.
	Alloc(n int, access Access) (MR, error)

	// AllocMW makes a memory window, bound to nothing. It answers errors.ErrUnsupported where DeviceAttr has
	// no Windows.
	AllocMW() (MW, error)

	// DeviceAttr is Query of the domain's device.
	DeviceAttr() DeviceAttr

	// Close releases the domain; an error if regions, windows or QPs still use it.
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

	// Deregister takes the key out of use: when it returns nothing is placed in the memory any more. Work
	// that still names the region fails. The MR must not be used afterwards: the device uses its object for
	// the next registration. While windows are bound to the region it is refused and changes nothing: they
	// are to be invalidated or deallocated first.
	Deregister() error

	// Detach is Deregister that leaves memory of PD.Alloc mapped, until the process ends, to an owner who may
	// still look at it.
	Detach() error
}

// Key names a region, or a window, to a peer.
type Key uint64

// Access are the rights of a region or a window. OR them.
type Access uint8

const (
	LocalWrite   Access = 1 << iota // the owner's own Recvs, Reads and Atomics may place into it
	RemoteRead                      // peers may Read it
	RemoteWrite                     // peers may Write it; includes LocalWrite
	RemoteAtomic                    // peers may change words of it by Atomics; includes LocalWrite
	// windows may be bound to it; their rights need not be the region's, but for LocalWrite
	BindWindow
)

func (a Access) String() string {
	if a == 0 {
		return "none"
	}
	var names []string
	for i, name := range [...]string{"LocalWrite", "RemoteRead", "RemoteWrite", "RemoteAtomic",
		"BindWindow"} {
		if bit := Access(1) << i; a&bit != 0 {
			names = append(names, name)
			a &^= bit
		}
	}
	if a != 0 {
		names = append(names, fmt.Sprintf("%#x", uint8(a)))
	}
	return strings.Join(names, "|")
}
