package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/link"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/certificates"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// Local is this end of all handshakes.
type Local struct {
	ID           transport.Identity
	Certificates *certificates.Job // nil: connections are not encrypted
}

// Handshake is a connection that is being set up. The initiator calls Introduce, Request and Answer, the
// responder Prove and Accept. Then Detach returns the socket. Calls must not overlap, except for SetDeadline.
type Handshake struct {
	local   *Local
	parties message.Parties

	conn    net.Conn      // carries the messages
	socket  net.Conn      // the underlying connection
	session *link.Session // nil if it is not encrypted

	certified int64  // the rank in the peer's certificate, or -1
	read      int    // bytes read
	rejected  bool   // by the peer
	answered  bool   // a Reject was sent
	adopted   bool   // see Adopted
	readAhead []byte // bytes that the application read before the handshake
}

// New begins the handshake of a socket.
func New(local *Local, socket net.Conn) *Handshake {
	return &Handshake{local: local, conn: socket, socket: socket, certified: -1}
}

func (h *Handshake) LocalAddr() net.Addr  { return h.socket.LocalAddr() }
func (h *Handshake) RemoteAddr() net.Addr { return h.socket.RemoteAddr() }

// Adopted reports whether the socket was the application's: it cannot be re-established.
func (h *Handshake) Adopted() bool { return h.adopted }

// Peer returns the peer. It is what the peer claims until Prove or Introduce returns without an error, and
// proved from then on.
func (h *Handshake) Peer() uint32 {
	if transport.RankOf(h.parties.Initiator) == h.local.ID.Rank {
		return h.parties.Responder
	}
	return h.parties.Initiator
}

// Lane returns the number of the lane that the connection will be; 0 for a new queue pair.
func (h *Handshake) Lane() uint16 { return h.parties.Lane }

// Token returns a token that identifies the queue pair of this connection to both its ends, and to nobody
// else.
func (h *Handshake) Token() [message.TokenSize]byte { return h.parties.Token(&h.local.ID.Secret) }

// SetDeadline sets the time at which reads and writes end. It may be called at any time.
func (h *Handshake) SetDeadline(t time.Time) {
	// not through the TLS session, which may have left streaming mode by the time that a context ends
	h.socket.SetDeadline(t)
}

// Interrupt ends reads and writes at once.
func (h *Handshake) Interrupt() { h.SetDeadline(time.Unix(1, 0)) }

// Until makes reads and writes end after d, or with the context.
func (h *Handshake) Until(ctx context.Context, d time.Duration) (release func() bool) {
	h.SetDeadline(time.Now().Add(d))
	return context.AfterFunc(ctx, h.Interrupt)
}

// Introduce runs the initiator's part up to the responder's proof.
func (h *Handshake) Introduce(peer uint32, lane uint16) error {
	id := &h.local.ID
	h.parties = message.Parties{
		Job: handshake.JobHash(id.Job), Initiator: id.Facing(peer), Responder: peer, Lane: lane}
	h.parties.Nonces[0] = handshake.NewNonce()
	if c := h.local.Certificates; c != nil {
		s, err := Encrypt(h.conn, c, transport.RankOf(peer))
		if err != nil {
			return err
		}
		h.conn, h.session = s.TLS, s
	}
	if err := h.Write(h.parties.AppendHello(nil)); err != nil {
		if h.session != nil { // the peer may have closed the session because it refused our certificate
			if _, why := h.expect(message.Challenge); errors.Is(why, transport.ErrRefused) {
				return why
			}
		}
		return err
	}
	body, err := h.expect(message.Challenge)
	if err == nil {
		err = h.parties.TakeChallenge(body, &id.Secret)
	}
	if err == nil && len(h.readAhead) > 0 {
		err = fmt.Errorf("%w: %d bytes before the handshake belong to the application: %.40q",
			transport.ErrNotWeft, len(h.readAhead), h.readAhead)
	}
	return h.turnDown(err)
}

// Request sends the initiator's proof, its parameters and its private data.
func (h *Handshake) Request(mine message.Parameters, private []byte) error {
	secret := &h.local.ID.Secret
	return h.Write(h.parties.AppendRequest(h.parties.AppendProof(nil, secret), secret, mine, private))
}

// Answer waits for the responder's answer to Request.
func (h *Handshake) Answer() (theirs message.Parameters, private []byte, err error) {
	body, err := h.expect(message.Accept)
	if err != nil {
		return theirs, nil, err
	}
	return h.parties.TakeAccept(body, &h.local.ID.Secret)
}

// Prove runs the responder's part up to the initiator's Request, with the proof of the peer's identity. may
// reports whether a rank may connect, and to this lane. named is called when the peer has named this job, in
// its Hello and before that in its ClientHello.
func (h *Handshake) Prove(may func(initiator uint32, lane uint16) bool,
	named func()) (theirs message.Parameters, private []byte, err error) {
	secret := &h.local.ID.Secret
	if h.local.Certificates != nil {
		if err := h.expectEncrypted(named); err != nil {
			return theirs, nil, err
		}
	}
	if err := h.hello(may); err != nil {
		return theirs, nil, err
	}
	named()
	h.parties.Nonces[1] = handshake.NewNonce()
	if err := h.Write(h.parties.AppendChallenge(nil, secret)); err != nil {
		return theirs, nil, err
	}
	body, err := h.expect(message.Proof)
	if err == nil {
		err = h.parties.TakeProof(body, secret)
	}
	if err == nil { // from here on the peer is a rank of this job
		body, err = h.expect(message.Request)
	}
	if err == nil {
		theirs, private, err = h.parties.TakeRequest(body, secret)
	}
	return theirs, private, h.turnDown(err)
}

// hello reads the first message and checks the ranks of both ends.
func (h *Handshake) hello(may func(initiator uint32, lane uint16) bool) error {
	raw, err := h.first()
	if err != nil {
		return err
	}
	id := &h.local.ID
	p, err := message.ParseHello(raw)
	h.parties = p
	switch {
	case errors.Is(err, transport.ErrVersion):
		h.Reject(handshake.RejectVersion, fmt.Sprintf("this is version %d", message.Version))
	case err != nil:
	case p.Job != handshake.JobHash(id.Job):
		err = fmt.Errorf("%w: the peer belongs to another job", transport.ErrRefused)
		h.Reject(handshake.RejectOther, "this is another job")
	case h.certified >= 0 && int64(transport.RankOf(p.Initiator)) != h.certified:
		err = fmt.Errorf("%w: the peer says that it is rank %d, and its certificate says rank %d",
			transport.ErrAuth, transport.RankOf(p.Initiator), h.certified)
		h.Reject(handshake.RejectAuth, fmt.Sprintf("your certificate is of rank %d", h.certified))
	case p.Responder != id.Facing(p.Initiator) || !may(p.Initiator, p.Lane):
		err = fmt.Errorf("%w: the peer says that it is %s and asks for %s, lane %d", transport.ErrRefused,
			handshake.Name(p.Initiator), handshake.Name(p.Responder), p.Lane)
		h.Reject(handshake.RejectRank, handshake.Whom(id))
	}
	return err
}

// first reads the Hello, unless the magic before it is wrong.
func (h *Handshake) first() ([]byte, error) {
	raw := make([]byte, message.HelloSize)
	err := h.ReadFull(raw[:len(message.Magic)])
	if h.read > 0 && string(raw[:h.read]) != message.Magic[:h.read] {
		// Fail at once: other data may be shorter than a Hello, and its sender may be waiting for an answer.
		err := fmt.Errorf("%w: the connection begins with %q", transport.ErrNotWeft, raw[:h.read])
		if raw[0] == recordHandshake && h.session == nil {
			h.Reject(handshake.RejectOther,
				"connections are not encrypted here, and yours is: "+bothOrNeither)
			return nil, fmt.Errorf("%w, which is TLS, and here connections are not encrypted: %s", err,
				bothOrNeither)
		}
		return nil, err
	}
	if err == nil {
		err = h.ReadFull(raw[len(message.Magic):])
	}
	return raw, err
}

// Accept sends the responder's answer: its parameters and its private data.
func (h *Handshake) Accept(mine message.Parameters, private []byte) error {
	return h.Write(h.parties.AppendAccept(nil, &h.local.ID.Secret, mine, private))
}

// Reject sends a Reject in place of an answer.
func (h *Handshake) Reject(code handshake.RejectCode, text string) {
	h.answered = true
	h.Write(message.AppendReject(nil, code, text)) // an error means that the peer does not listen
}

// turnDown sends the peer a Reject for an error in its message, unless err is nil, or the peer has rejected
// us or is gone. It returns the error.
func (h *Handshake) turnDown(err error) error {
	if err != nil && !h.rejected {
		handshake.TurnDown(err, message.Version, h.Reject)
	}
	return err
}

// expect reads a message of type due, or a Reject in its place.
func (h *Handshake) expect(due message.Type) ([]byte, error) {
	t, body, err := message.Read(reader{h}, due)
	h.rejected = t == message.Reject
	if err == nil && h.rejected {
		err = handshake.ParseReject(body)
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

// Write writes bytes to the peer.
func (h *Handshake) Write(b []byte) error {
	_, err := h.conn.Write(b)
	return err
}

// ReadFull reads len(b) bytes.
func (h *Handshake) ReadFull(b []byte) error {
	_, err := io.ReadFull(reader{h}, b)
	return err
}

// reader reads the bytes of a handshake, and describes the errors of TLS.
type reader struct{ *Handshake }

func (r reader) Read(b []byte) (int, error) {
	n, err := r.conn.Read(b)
	r.read += n
	if err != nil && r.session != nil {
		err = unprotected(err)
	}
	return n, err
}

// Finish closes this direction and waits until the peer has closed its own, but no longer than d. Closing
// with unread bytes would reset the connection, and the peer might never read the last bytes written.
func (h *Handshake) Finish(d time.Duration) {
	if c, ok := h.socket.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
	}
	h.SetDeadline(time.Now().Add(d))
	io.Copy(io.Discard, h.socket)
}

// Detach returns the socket for raw use, with its TLS session if it is encrypted.
func (h *Handshake) Detach() (fd int, session *link.Session, err error) {
	f, err := h.socket.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return -1, nil, err
	}
	defer f.Close()
	if fd, err = sys.Dup(int(f.Fd())); err != nil {
		return -1, nil, err
	}
	if err := errors.Join(sys.PrepareSocket(fd), h.socket.Close()); err != nil {
		sys.CloseFD(fd)
		return -1, nil, err
	}
	if SameMachine(h.LocalAddr(), h.RemoteAddr()) {
		sys.SkipCongestionControl(fd)
	}
	return fd, h.session, nil
}

// SameMachine reports whether a connection between two addresses stays on this machine: the addresses are
// equal, both are loopback, or the socket is a Unix socket.
func SameMachine(a, b net.Addr) bool {
	if a.Network() == "unix" {
		return true
	}
	x, ok1 := a.(*net.TCPAddr)
	y, ok2 := b.(*net.TCPAddr)
	return ok1 && ok2 && (x.IP.Equal(y.IP) || x.IP.IsLoopback() && y.IP.IsLoopback())
}
