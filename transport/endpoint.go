package transport

import (
	"context"
	"net"
)

// Identity is who a device is in its job. Both ends of a connection prove that they know Secret, bound to Job
// and to both ranks, before anything is allocated for them.
type Identity struct {
	Job    string   // name of the job
	Rank   uint32   // who we are
	Size   uint32   // ranks are below it: a peer that claims another is refused
	Secret [32]byte // shared by the job's ranks; never logged
}

// Endpoint is the connection management of a device, in the manner of rdma_cm: it turns addresses into
// connected QPs. There is at most one QP between two ranks: when both connect at once, the connection that
// the lower rank began stays.
type Endpoint interface {
	// Addr is what peers pass to Connect: printable, without spaces, '=' or ';', at most 200 bytes.
	Addr() string

	// Connect connects to the rank at addr and returns when Acceptor.Connected has been called for it, by
	// this attempt or by one that the peer began; or with an error, when neither succeeded. At once if the
	// two are connected already. It may be called from any goroutine, and blocks: the context ends it.
	Connect(ctx context.Context, rank uint32, addr string) error

	// Close stops listening, ends every attempt, and returns when no callback is under way or will come. It
	// must not be called from a callback. QPs that were handed over live on.
	Close() error

	// Reaches tells whether Connect to addr can succeed, as far as that is known without an attempt. Both
	// ends say the same. Some providers reach some of their addresses only, such as those of their own host.
	Reaches(addr string) bool

	Transferrer
}

// Role is a rank's part in the handshake of a connection.
type Role uint8

const (
	Initiator Role = iota + 1 // sends the first byte of handshake, and the first frame of RDMA mode
	Responder                 // answers
)

// Transferrer is the part of an Endpoint that takes a stream that the application has connected and used by
// itself, and transfers it to RDMA mode (C2). It is there where DeviceAttr.StreamTransfer says so; elsewhere
// it closes the stream and answers errors.ErrUnsupported.
type Transferrer interface {
	// Transfer runs handshake with a rank on conn, a connected stream socket, and returns when
	// Acceptor.Connected has been called for it, or with an error. The other end of conn must be transferred
	// too, in the other role. ahead is what the application has read from conn and not used: the beginning of
	// the peer's handshake; the caller's again when Transfer returns. An initiator is sent nothing before
	// handshake: for it, ahead must be empty.
	//
	// conn is the endpoint's from the call on: it is closed when Transfer fails, the connection goes on in
	// the queue pair when it does not. What the application has written to it comes before the handshake,
	// what it reads or writes from now on fails.
	//
	// There is still one connection between two ranks: if another one stands, or comes first, the transfer is
	// refused. Transfer may be called from any goroutine, and blocks: the context ends it.
	Transfer(ctx context.Context, conn net.Conn, ahead []byte, role Role, rank uint32) error
}

// Acceptor is told of connections. Its methods are called from the endpoint's goroutines, for one peer never
// two at a time.
type Acceptor interface {
	// Prepare is called when a peer has proved who it is, before the connection is made, on both sides of it.
	// It answers the shape of the queue pair and the private data that the peer's Connected will get (at most
	// DeviceAttr.MaxPrivate bytes). It can be called again for the same peer if an attempt fails or two
	// cross. An error refuses the peer with that text.
	Prepare(rank uint32) (QPConfig, []byte, error)

	// Connected hands over the queue pair, in StateReady, with the peer's private data. Nothing of it is
	// driven until Connected returns, except by the acceptor itself: it takes the lock that serialises its
	// CQ, posts its Recvs, and keeps the QP. private is the callee's.
	Connected(rank uint32, qp QP, private []byte)

	// Refused reports an attempt from outside that was turned away, or one that vanished: who it was as far
	// as known, and why. For the log; nothing needs doing.
	Refused(remote string, err error)
}
