package transport

import (
	"fmt"
	"strings"
	"time"
)

// Device is one instance of a provider, owned by one rank.
type Device interface {
	// Query returns what the device can do. Of the answer, only CopyCosts changes.
	Query() DeviceAttr

	// AllocPD makes a protection domain: QPs reach only regions of their own PD.
	AllocPD() (PD, error)

	// CreateCQ makes a completion queue that holds at most depth unpolled completions, and gives it to a
	// completion handler. With h = 0 it has no handler: the goroutine that polls it drives it.
	CreateCQ(depth int, h HandlerID) (CQ, error)

	// SetCompletionHandler registers a completion handler and starts it (N2). Up to DeviceAttr.Handlers can
	// be registered. A core that this process may not use is refused.
	SetCompletionHandler(c HandlerConfig) (HandlerID, error)

	// ModifyCQ gives a completion queue to another handler, or to none (0). The caller holds the Lock of the
	// old handler, and that of the handler that has the other queue of a queue pair, if there is one. From
	// the return on, the new handler's Lock applies. No event is lost: events that were raised and not
	// delivered, and requests for events, move with the queue. ModifyCQ is refused while a goroutine is in
	// CQ.Wait. If it fails, the queue keeps the handler that it has.
	ModifyCQ(cq CQ, h HandlerID) error

	// CloseHandler ends a handler that has no queues any more, and returns when no part of it runs. The
	// caller must not hold its Lock.
	CloseHandler(h HandlerID) error

	// Listen starts the connection management of this device: from then on, peers can connect to
	// Endpoint.Addr, and the device can connect to them. It reports every connection to acceptor, whichever
	// side began it. A device has at most one endpoint.
	Listen(id Identity, acceptor Acceptor) (Endpoint, error)

	// Close releases everything: the endpoint, then QPs (cut, not drained: close them first), handlers, CQs,
	// regions, descriptors and goroutines. Nothing is left when it returns. Calling it twice is harmless.
	// Every posted request completes first, once; the handlers deliver the resulting events and end. Unpolled
	// completions can still be polled (N8). A Wait of a CQ that is under way ends. The caller must not hold
	// any handler's Lock.
	Close() error
}

// DeviceAttr describes what a device can do. A call with a request beyond one of these limits returns an
// error.
type DeviceAttr struct {
	Provider    string // "tcp", "sim", …
	MaxSGE      int    // elements of a gather or scatter list
	MaxSegments int    // remote segments of one Read
	MaxInline   int    // bytes of a work request with FlagInline
	MaxMessage  int    // bytes of one work request
	MaxQPDepth  int    // outstanding work requests of one queue
	MaxReads    int    // outstanding Reads and Atomics of one QP, at each end
	MaxPrivate  int    // bytes of private data at connection start
	Handlers    int    // completion handlers at once, one or more for each core of this process (N1)

	// MaxPolledQPs: if a CQ has at most this many queue pairs, has no handler, and Arm was never called,
	// Placed does not report its queue pairs; the consumer must poll their memory. 0: Placed reports all.
	// This is for providers whose peers write directly into memory that the consumer polls, so that Poll has
	// nothing to notice.
	MaxPolledQPs int

	PollableCQs bool // CQ.Descriptor is an epoll descriptor: one goroutine can wait for several CQs

	TickPeriod time.Duration // how often CQ.Tick must be called; 0: never

	// A provider may lack the following features. Check each field before using its feature.

	// TailLast promises that the last 8 bytes of a Write are placed after all its others and, if they are
	// aligned to 8, as one word. Standard reliable connections do not promise this. A consumer that detects
	// Writes by polling memory needs it.
	TailLast bool

	InlineWrites bool // QP.WriteInline
	PeerMapped   bool // WriteInline stores directly into the peer's memory; PrefetchAddr has its address
	DirectCopies bool // QP.Get, QP.Put and QP.Fill
	// CopyCosts is what a Get of memory takes that is not mapped into this process. It is measured where
	// peers connect; 0 before, and where there is no such memory. MappedKiB is 0 unless all is given.
	CopyCosts CopyCosts
	// HugePages: memory that peers often read by QP.Get is moved to huge pages, so that many of them can read
	// it at the same time.
	HugePages      bool
	PollQP         bool // QP.PollQP
	Lanes          bool // a queue pair may have several connections: QP.Lanes and QP.OpenLanes
	Atomics        bool // OpFetchAdd
	StreamTransfer bool // Endpoint.Transfer
	Views          bool // the PDs are ViewRegistrars
}

// CopyCosts is what copies between two processes of a host take. A field is 0 where that is not known.
type CopyCosts struct {
	Call    time.Duration // of a system call that copies another process's memory, before its first byte
	CallKiB time.Duration // of a call that has begun, for each KiB
	// of both copies through mapped memory, one after the other, for each KiB: into lines that the peer has
	// read last, and out of lines that it has written last
	MappedKiB time.Duration
	// of writing memory that the peer has read since, for each KiB
	RewriteKiB time.Duration
}

// PD is a protection domain.
type PD interface {
	// Register makes buf reachable through a key, with the given rights. The caller still owns the memory and
	// must keep it until Deregister. Local reads need no right. With RemoteAtomic, the memory must begin at
	// an address that is a multiple of 8. Register allocates nothing once the device has warmed up, so it may
	// be called per message. Peers on this host can access buf directly only if it lies in memory returned by
	// Alloc of the same device with Mappable or a right for peers.
	Register(buf []byte, access Access) (MR, error)

	// Alloc registers n bytes (n > 0) of newly allocated, zeroed memory, page-aligned and outside the Go
	// heap. With Mappable or a right for peers, it is of a kind that this provider's peers on this host can
	// reach directly; else it may be of any kind. Deregister frees it; nothing may use its
	// Bytes after that.
	Alloc(n int, access Access) (MR, error)

	// DeviceAttr returns the result of Query of the domain's device.
	DeviceAttr() DeviceAttr

	// Close releases the domain. It returns an error if regions or QPs still use it.
	Close() error
}

// MR is a memory region. Offsets into it count from 0, its first byte.
type MR interface {
	// Bytes returns the registered memory itself.
	Bytes() []byte

	// Key returns what a peer needs to reach the region: 64 bits that cannot be guessed and that change with
	// every registration, so that the key of an earlier registration never matches.
	Key() Key

	// Access returns the rights with which the region was registered.
	Access() Access

	// Deregister invalidates the key: when it returns, nothing is placed in the memory any more. Work that
	// still names the region fails. The MR must not be used afterwards: the device reuses its object for the
	// next registration.
	Deregister() error

	// Detach is Deregister, but leaves memory of PD.Alloc mapped until the process ends, for an owner that
	// may still read it.
	Detach() error
}

// Key names a region to a peer.
type Key uint64

// Access is a set of rights of a region, combined by OR.
type Access uint16

const (
	LocalWrite   Access = 1 << iota // the owner's own Recvs, Reads and Atomics may place into it
	RemoteRead                      // peers may Read it
	RemoteWrite                     // peers may Write it; includes LocalWrite
	RemoteAtomic                    // peers may change words of it by Atomics; includes LocalWrite
	// the owner changes no byte before Deregister: peers' Reads are answered from the region itself, without
	// a copy, even in frames with a checksum (R2)
	Unchanging
	// while a peer's Write is placed, nobody else changes the bytes that it goes to: a provider may place the
	// Write before it has its checksum, and compute the checksum from the target (R2)
	SoleWriter
	// not a right, but a request to Alloc: memory that peers on this host can reach directly, although no
	// right lets them now
	Mappable
)

func (a Access) String() string {
	if a == 0 {
		return "none"
	}
	var names []string
	for i, name := range [...]string{"LocalWrite", "RemoteRead", "RemoteWrite", "RemoteAtomic",
		"Unchanging", "SoleWriter", "Mappable"} {
		if bit := Access(1) << i; a&bit != 0 {
			names = append(names, name)
			a &^= bit
		}
	}
	if a != 0 {
		names = append(names, fmt.Sprintf("%#x", uint16(a)))
	}
	return strings.Join(names, "|")
}
