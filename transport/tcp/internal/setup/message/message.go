// Package message encodes the messages of the handshake: the ranks of both ends, the proofs that both know
// the job's secret, and the parameters of the connection. It does no I/O. docs/internals/spec/wire.md
// specifies the bytes.
package message

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// The handshake is five messages on the byte stream, in the manner of MPA:
//
//	initiator                                  responder
//	Hello: who I am, whom I want, a nonce  →
//	                                       ←   Challenge: a nonce, the responder's proof
//	Proof: the initiator's;
//	Request: a proof, parameters,
//	         private data                  →
//	                                       ←   Accept: a proof, parameters,
//	                                           private data      (or Reject, in place of any)
//
// Each proof is a MAC with the job's secret over both nonces, both ranks, the lane and the job, and over what
// follows it in its message, so that nobody can change the parameters on the way. Before the initiator's
// proof the responder spends one nonce and reads at most MaxUnauthenticated bytes. After Accept the
// connection is in RDMA mode, and the initiator sends the first frame.

// Version is the version of the handshake and of the frames after it.
const Version = 6

// A message begins with its type, the version, and the length of what follows. The first message follows the
// magic.
const (
	Magic       = "weft\r\n\x00\x16" // not text, not TLS, and damaged by anything that translates line ends
	PrefixSize  = 4
	NonceSize   = handshake.NonceSize
	ProofSize   = handshake.ProofSize
	JobSize     = handshake.JobSize
	helloBody   = JobSize + 4 + 4 + 2 + NonceSize
	HelloSize   = len(Magic) + PrefixSize + helloBody
	requestHead = ProofSize + ParametersSize
	MaxBody     = ProofSize + MaxParameters + MaxPrivate

	// MaxPrivate is the maximum size of private data in Request and Accept.
	MaxPrivate = 512

	// MaxUnauthenticated is the most that is read of an unauthenticated peer: a Hello, which is checked
	// before more is read, and a Proof, or a Reject in its place.
	MaxUnauthenticated = HelloSize + PrefixSize + 1 + handshake.MaxText
)

// Type is the type of a message.
type Type uint8

const (
	Hello Type = iota + 1
	Challenge
	Request
	Accept
	Reject
	Proof
	Types
)

func (t Type) String() string {
	names := [...]string{"", "Hello", "Challenge", "Request", "Accept", "Reject", "Proof"}
	if int(t) < len(names) && t != 0 {
		return names[t]
	}
	return fmt.Sprintf("message type %d", uint8(t))
}

// AppendPrefix begins a message with a body of n bytes.
func AppendPrefix(b []byte, t Type, n int) []byte {
	b = append(b, byte(t), Version)
	return binary.LittleEndian.AppendUint16(b, uint16(n))
}

// ParsePrefix parses the beginning of a message of any type, and returns the length of its body.
func ParsePrefix(b []byte) (Type, int, error) {
	t, n := Type(b[0]), int(binary.LittleEndian.Uint16(b[2:]))
	if t < Hello || t >= Types {
		// check the type first: the version means nothing if this is not a message
		return t, 0, fmt.Errorf("%w: it begins with %q", transport.ErrNotWeft, b)
	}
	if b[1] != Version {
		return t, 0, fmt.Errorf("%w: version %d, here %d", transport.ErrVersion, b[1], Version)
	}
	if n > MaxBody || t == Proof && n != ProofSize || t == Reject && n > 1+handshake.MaxText {
		return t, 0, fmt.Errorf("%w: %v of %d bytes", transport.ErrNotWeft, t, n)
	}
	return t, n, nil
}

// Parties are the two ends of a connection, which both ends know and prove to each other.
type Parties struct {
	Job       [JobSize]byte
	Initiator uint32
	Responder uint32
	Lane      uint16
	Nonces    [2][NonceSize]byte // initiator's, responder's
}

// AppendHello writes the first message.
func (p *Parties) AppendHello(b []byte) []byte {
	b = append(b, Magic...)
	b = AppendPrefix(b, Hello, helloBody)
	b = append(b, p.Job[:]...)
	b = binary.LittleEndian.AppendUint32(b, p.Initiator)
	b = binary.LittleEndian.AppendUint32(b, p.Responder)
	b = binary.LittleEndian.AppendUint16(b, p.Lane)
	return append(b, p.Nonces[0][:]...)
}

// ParseHello parses a Hello of HelloSize bytes.
func ParseHello(b []byte) (Parties, error) {
	var p Parties
	if len(b) != HelloSize || string(b[:len(Magic)]) != Magic {
		return p, fmt.Errorf("%w: it begins with %q", transport.ErrNotWeft, b[:min(len(b), len(Magic))])
	}
	b = b[len(Magic):]
	t, n, err := ParsePrefix(b)
	if err != nil {
		return p, err
	}
	if t != Hello || n != helloBody {
		return p, fmt.Errorf("%w: %v of %d bytes in place of Hello", transport.ErrNotWeft, t, n)
	}
	b = b[PrefixSize:]
	b = b[copy(p.Job[:], b):]
	p.Initiator = binary.LittleEndian.Uint32(b)
	p.Responder = binary.LittleEndian.Uint32(b[4:])
	p.Lane = binary.LittleEndian.Uint16(b[8:])
	copy(p.Nonces[0][:], b[10:])
	return p, nil
}

// AppendChallenge appends a Challenge: the responder's nonce and proof.
func (p *Parties) AppendChallenge(b []byte, secret *[32]byte) []byte {
	b = AppendPrefix(b, Challenge, NonceSize+ProofSize)
	b = append(b, p.Nonces[1][:]...)
	return append(b, p.Proof(secret, RoleResponder, nil)...)
}

// TakeChallenge parses a Challenge and checks its proof.
func (p *Parties) TakeChallenge(body []byte, secret *[32]byte) error {
	if len(body) != NonceSize+ProofSize {
		return fmt.Errorf("%w: a Challenge of %d bytes", transport.ErrProtocol, len(body))
	}
	copy(p.Nonces[1][:], body)
	if !p.check(body[NonceSize:], secret, RoleResponder, nil) {
		return transport.ErrAuth
	}
	return nil
}

// AppendProof appends the initiator's proof that it knows the secret. Request follows it directly.
func (p *Parties) AppendProof(b []byte, secret *[32]byte) []byte {
	return append(AppendPrefix(b, Proof, ProofSize), p.Proof(secret, RoleProving, nil)...)
}

// TakeProof parses a Proof and checks it.
func (p *Parties) TakeProof(body []byte, secret *[32]byte) error {
	if len(body) != ProofSize {
		return fmt.Errorf("%w: a Proof of %d bytes", transport.ErrProtocol, len(body))
	}
	if !p.check(body, secret, RoleProving, nil) {
		return transport.ErrAuth
	}
	return nil
}

// AppendRequest appends a Request: a proof, the initiator's parameters and its private data.
func (p *Parties) AppendRequest(b []byte, secret *[32]byte, mine Parameters, private []byte) []byte {
	return p.appendOffer(b, Request, secret, RoleInitiator, mine, private)
}

// TakeRequest parses a Request and checks its proof.
func (p *Parties) TakeRequest(body []byte, secret *[32]byte) (theirs Parameters, private []byte, err error) {
	return p.takeOffer(body, Request, secret, RoleInitiator)
}

// AppendAccept appends an Accept: a proof, the responder's parameters and its private data.
func (p *Parties) AppendAccept(b []byte, secret *[32]byte, mine Parameters, private []byte) []byte {
	return p.appendOffer(b, Accept, secret, RoleAccepting, mine, private)
}

// TakeAccept parses an Accept and checks its proof.
func (p *Parties) TakeAccept(body []byte, secret *[32]byte) (theirs Parameters, private []byte, err error) {
	return p.takeOffer(body, Accept, secret, RoleAccepting)
}

func (p *Parties) appendOffer(b []byte, t Type, secret *[32]byte, role Role, mine Parameters,
	private []byte) []byte {
	offer := append(mine.Append(nil), private...)
	b = AppendPrefix(b, t, ProofSize+len(offer))
	b = append(b, p.Proof(secret, role, offer)...)
	return append(b, offer...)
}

func (p *Parties) takeOffer(body []byte, t Type, secret *[32]byte, role Role) (Parameters, []byte, error) {
	if len(body) < requestHead {
		return Parameters{}, nil, fmt.Errorf("%w: %v of %d bytes", transport.ErrProtocol, t, len(body))
	}
	offer := body[ProofSize:]
	if !p.check(body[:ProofSize], secret, role, offer) {
		return Parameters{}, nil, fmt.Errorf("%w: the proof of its %v is wrong", transport.ErrAuth, t)
	}
	theirs, private, err := ParseParameters(offer)
	if err == nil && len(private) > MaxPrivate {
		err = fmt.Errorf("%w: %v with %d bytes of private data", transport.ErrProtocol, t, len(private))
	}
	return theirs, private, err
}

func AppendReject(b []byte, code handshake.RejectCode, text string) []byte {
	text = text[:min(len(text), handshake.MaxText)]
	return handshake.AppendReject(AppendPrefix(b, Reject, 1+len(text)), code, text)
}

// Read reads a message of type due (0: any), or a Reject: exactly its bytes, because the bytes after it may
// belong to RDMA mode (C2). It reads nothing of the body of another message.
func Read(r io.Reader, due Type) (Type, []byte, error) {
	var prefix [PrefixSize]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return 0, nil, err
	}
	t, n, err := ParsePrefix(prefix[:])
	if err == nil && due != 0 && t != due && t != Reject {
		err = fmt.Errorf("%w: %v where %v is due", transport.ErrProtocol, t, due)
	}
	if err != nil {
		return t, nil, err
	}
	body := make([]byte, n)
	_, err = io.ReadFull(r, body)
	return t, body, err
}
