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
// responder Prove and Accept. Then Detach returns the socket. No call may overlap another, but for
// SetDeadline.
type Handshake struct {
	local   *Local
	parties message.Parties

	conn    net.Conn      // what messages go through
	socket  net.Conn      // the connection below
	session *link.Session // nil where it is not encrypted

	certified int64  // the rank in the peer's certificate, or -1
	read      int    // bytes read
	rejected  bool   // by the peer
	answered  bool   // the peer has been told that it is turned down
	lent      bool   // see Lent
	foreign   []byte // what the application had read before the handshake
}

// New begins the handshake of a socket.
func New(local *Local, socket net.Conn) *Handshake {
	return &Handshake{local: local, conn: socket, socket: socket, certified: -1}
}

func (h *Handshake) LocalAddr() net.Addr  { return h.socket.LocalAddr() }
func (h *Handshake) RemoteAddr() net.Addr { return h.socket.RemoteAddr() }

// Lent reports whether the socket was an application's: it cannot be re-established.
func (h *Handshake) Lent() bool { return h.lent }

// Peer returns the peer: as the peer has said until Prove or Introduce has returned without an error,
// and proven from then on.
func (h *Handshake) Peer() uint32 {
	if transport.RankOf(h.parties.Initiator) == h.local.ID.Rank {
		return h.parties.Responder
	}
	return h.parties.Initiator
}

// Lane returns the number of the lane that the connection is to be; 0 for a new queue pair.
func (h *Handshake) Lane() uint16 { return h.parties.Lane }

// Token names the queue pair that is made of this connection, to both its ends and to nobody else.
func (h *Handshake) Token() [message.TokenSize]byte { return h.parties.Token(&h.local.ID.Secret) }

// Encrypted reports whether what is said goes through TLS.
func (h *Handshake) Encrypted() bool { return h.session != nil }

// SetDeadline sets the time at which reads and writes end. It may be called at any time.
func (h *Handshake) SetDeadline(t time.Time) {
	// not through TLS, which may have left streaming mode by the time that a context ends
	h.socket.SetDeadline(t)
}

// Interrupt ends reads and writes at once.
func (h *Handshake) Interrupt() { h.SetDeadline(time.Unix(1, 0)) }

// Until has reads and writes end at a deadline, or with the context.
func (h *Handshake) Until(ctx context.Context, d time.Duration) (release func() bool) {
	h.SetDeadline(time.Now().Add(d))
	return context.AfterFunc(ctx, h.Interrupt)
}

// Introduce is the initiator's part up to the responder's proof.
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
		if h.session != nil { // the peer may have ended the session because it refused our certificate
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
	if err == nil && len(h.foreign) > 0 {
		err = fmt.Errorf("%w: %d bytes that came before the handshake are the application's: %.40q",
			transport.ErrNotWeft, len(h.foreign), h.foreign)
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

// Prove is the responder's part up to the initiator's Request: it has the peer prove who it is. It refuses a
// rank that may not connect, or not to this lane. named is called when the peer has named this job, in its
// Hello and before that in its ClientHello.
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
	if err == nil { // from here on the bytes are those of a rank of this job
		body, err = h.expect(message.Request)
	}
	if err == nil {
		theirs, private, err = h.parties.TakeRequest(body, secret)
	}
	return theirs, private, h.turnDown(err)
}

// hello reads the first message and checks the ranks of caller and callee.
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

// first reads a first message, unless the magic before it is wrong.
func (h *Handshake) first() ([]byte, error) {
	raw := make([]byte, message.HelloSize)
	err := h.ReadFull(raw[:len(message.Magic)])
	if h.read > 0 && string(raw[:h.read]) != message.Magic[:h.read] {
		// Refused at once: what is no Hello may be shorter than one, and its sender then waits for an answer.
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

// Reject turns the peer down in place of an answer.
func (h *Handshake) Reject(code handshake.RejectCode, text string) {
	h.answered = true
	h.Write(message.AppendReject(nil, code, text)) // an error means that the peer does not listen
}

// turnDown tells the peer what is wrong with its message, unless nothing is, it has turned us down itself or
// is gone. It returns the error.
func (h *Handshake) turnDown(err error) error {
	if err != nil && !h.rejected {
		handshake.TurnDown(err, message.Version, h.Reject)
	}
	return err
}

// expect reads the message that is due, or the Reject in its place.
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

// ReadFull reads as many bytes as b has.
func (h *Handshake) ReadFull(b []byte) error {
	_, err := io.ReadFull(reader{h}, b)
	return err
}

// reader reads the bytes of a handshake and words the errors of TLS.
type reader struct{ *Handshake }

func (r reader) Read(b []byte) (int, error) {
	n, err := r.conn.Read(b)
	r.read += n
	if err != nil && r.session != nil {
		err = unprotected(err)
	}
	return n, err
}

// Finish ends this direction and waits until the peer has ended its own, but no longer than d. Closing over
// unread bytes would reset the connection, and the peer might never read what was written last.
func (h *Handshake) Finish(d time.Duration) {
	if c, ok := h.socket.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
	}
	h.SetDeadline(time.Now().Add(d))
	io.Copy(io.Discard, h.socket)
}

// Detach takes the socket out of the connection for raw use, with its session if it is encrypted.
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

// SameMachine reports whether a connection between two addresses stays on this machine: both have the same
// address, or none of a network.
func SameMachine(a, b net.Addr) bool {
	if a.Network() == "unix" {
		return true
	}
	x, ok1 := a.(*net.TCPAddr)
	y, ok2 := b.(*net.TCPAddr)
	return ok1 && ok2 && (x.IP.Equal(y.IP) || x.IP.IsLoopback() && y.IP.IsLoopback())
}
