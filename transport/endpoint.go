package transport

import (
	"context"
	"net"
)

// Identity says which rank of which job a device belongs to. Both ends of a connection prove that they know
// Secret, bound to Job and to both ranks, before anything is allocated for them.
type Identity struct {
	Job  string // name of the job
	Rank uint32 // this device's rank
	Size uint32 // number of ranks; a peer that claims a rank of Size or more is refused
	// independent connection channels to each other rank, see port.go; not network ports; 0 means 1
	Ports  int
	Secret [32]byte // shared by the job's ranks; never logged
}

// Endpoint is the connection management of a device, similar to rdma_cm: it turns addresses into connected
// QPs. There is at most one QP between two ranks through each port (see PeerAt). When both connect at once,
// the connection that the lower rank began is kept.
type Endpoint interface {
	// Addr returns the address that peers pass to Connect: printable, without spaces, '=' or ';', at most 200
	// bytes.
	Addr() string

	// Connect connects to the peer at addr, which all ports of a rank share. It returns when
	// Acceptor.Connected has been called for that peer, by this attempt or by one that the peer began, or
	// with an error if neither succeeded. If the two are already connected, it returns at once. It may be
	// called from any goroutine, and blocks until ctx ends at the latest.
	Connect(ctx context.Context, peer uint32, addr string) error

	// Close stops listening, ends every attempt, and returns when no callback is running or will run. It must
	// not be called from a callback. QPs that were handed over stay connected.
	Close() error

	// Reaches reports whether Connect to addr can succeed, as far as is known without an attempt. Both
	// ends give the same answer. Some providers reach only some addresses, such as those of their own host.
	Reaches(addr string) bool

	Transferrer
}

// Beginner is implemented by an Endpoint that can begin a connection without waiting for the peer.
type Beginner interface {
	// Begin begins to connect to the peer at addr, and does not block. Ask must follow. Acceptor.Connected,
	// which may be called before Begin returns, tells of the connection. If the attempt fails, failed is
	// called, from a goroutine of the endpoint. In that case, and if Begin returns false, Connect gives the
	// reason, or may still succeed. After Close has returned, failed is not called any more.
	Begin(peer uint32, addr string, failed func()) bool
	Asker
}

// Asker is implemented by a Beginner and by an UnconnectedSender.
type Asker interface {
	// Ask wakes the peers that sleep and have not seen a connection that has begun, or a message without one.
	Ask()
}

// MaxUnconnected is the length of the longest message without a connection, in bytes.
const MaxUnconnected = 56

// UnconnectedSender is implemented by an Endpoint that can carry a short message to a peer without a
// connection.
type UnconnectedSender interface {
	// SendUnconnected leaves a message of up to MaxUnconnected bytes with a peer: once, and only while the
	// acceptor has prepared no connection between the two. The peer takes it, by UnconnectedReceiver, before
	// any connection between them. SendUnconnected copies the message, and neither blocks nor calls back;
	// false if the message cannot go that way. Ask must follow.
	SendUnconnected(peer uint32, message []byte) bool
	Asker
}

// UnconnectedReceiver is implemented by an Acceptor that takes messages of peers without a connection.
type UnconnectedReceiver interface {
	// Unconnected takes a message of a peer, whose bytes it must not keep.
	Unconnected(peer uint32, message []byte)
}

// Role is a rank's part in the handshake of a connection.
type Role uint8

const (
	Initiator Role = iota + 1 // sends the first byte of the handshake, and the first frame in RDMA mode
	Responder                 // answers
)

// Transferrer is the part of an Endpoint that transfers a stream, which the application has connected and
// used itself, to RDMA mode (C2). It is available if DeviceAttr.StreamTransfer is set; otherwise it closes
// the stream and returns errors.ErrUnsupported.
type Transferrer interface {
	// Transfer runs the handshake with a rank on conn, a connected stream socket. It returns when
	// Acceptor.Connected has been called for that rank, or with an error. The other end of conn must be
	// transferred too, in the other role. ahead is what the application has read from conn but not used: the
	// beginning of the peer's handshake. It belongs to the caller again when Transfer returns. Nothing is
	// sent to an initiator before the handshake, so its ahead must be empty.
	//
	// conn belongs to the endpoint from the call on. If Transfer fails, it is closed; otherwise the queue
	// pair uses its socket. Bytes that the application has written to it precede the handshake. Later reads
	// and writes of the application fail.
	//
	// The connection is the one through port 0: if there is another one, or another is made first, the
	// transfer is refused. Transfer may be called from any goroutine, and blocks until ctx ends at the
	// latest.
	Transfer(ctx context.Context, conn net.Conn, ahead []byte, role Role, rank uint32) error
}

// Acceptor is notified of connections. Its methods are called from the endpoint's goroutines, or inside
// Connect, Begin and Transfer, for other peers too: the caller of these must not hold the lock that the
// methods take. They are never called concurrently for one peer.
type Acceptor interface {
	// Prepare is called on both sides when a peer has proved its identity, before the connection is made. It
	// returns the shape of the queue pair and the private data that the peer's Connected will get (at most
	// DeviceAttr.MaxPrivate bytes). It can be called again for the same peer if an attempt fails or two
	// attempts cross. If it returns an error, the peer is refused with the error's text.
	Prepare(peer uint32) (QPConfig, []byte, error)

	// Connected hands over the queue pair, in StateReady, with the peer's private data. Until Connected
	// returns, only the acceptor may drive the queue pair. Connected takes the lock that serializes its CQ,
	// posts its Recvs, and keeps the QP. private belongs to the callee.
	Connected(peer uint32, qp QP, private []byte)

	// Refused reports an attempt from outside that was refused or that vanished: the remote side as far as
	// known, and the reason. It is for logging; no action is needed. Attempts of peers that have not proved
	// their identity are reported at a limited rate; the next report says how many were left out.
	Refused(remote string, err error)
}
