package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// Handshake is five messages on the byte stream, in the manner of MPA:
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
// Each proof is a MAC with the job's secret over both nonces, both ranks, the lane and the job, and over
// what follows it in its message, so that nobody can change the parameters on the way. Until the
// initiator's proof is there the responder has spent one nonce and at most maxUnauthenticatedBytes on it.
// After Accept the connection is in RDMA mode, and the initiator sends the first frame.

// handshakeVersion is the version of the handshake and of the frames after it.
const handshakeVersion = 4

// A message begins with its type, the version, and the length of what follows. The first one stands after the
// magic.
const (
	magic       = "weft\r\n\x00\x16" // not text, not TLS, and damaged by anything that translates line ends
	prefixSize  = 4
	nonceSize   = handshake.NonceSize
	proofSize   = handshake.ProofSize
	jobSize     = handshake.JobSize
	helloBody   = jobSize + 4 + 4 + 2 + nonceSize
	helloSize   = len(magic) + prefixSize + helloBody
	requestHead = proofSize + parametersSize
	maxBody     = proofSize + maxParameters + maxPrivate
)

type messageType uint8

const (
	typeHello messageType = iota + 1
	typeChallenge
	typeRequest
	typeAccept
	typeReject
	typeProof
	messageTypes
)

func (t messageType) String() string {
	names := [...]string{"", "Hello", "Challenge", "Request", "Accept", "Reject", "Proof"}
	if int(t) < len(names) && t != 0 {
		return names[t]
	}
	return fmt.Sprintf("message type %d", uint8(t))
}

// appendPrefix begins a message with a body of n bytes.
func appendPrefix(b []byte, t messageType, n int) []byte {
	b = append(b, byte(t), handshakeVersion)
	return binary.LittleEndian.AppendUint16(b, uint16(n))
}

// parsePrefix reads the beginning of a message, any of the expected types, and returns the length of its
// body.
func parsePrefix(b []byte) (messageType, int, error) {
	t, n := messageType(b[0]), int(binary.LittleEndian.Uint16(b[2:]))
	if t < typeHello || t >= messageTypes {
		// first: the version of what is no message means nothing
		return t, 0, fmt.Errorf("%w: it begins with %q", transport.ErrNotWeft, b)
	}
	if b[1] != handshakeVersion {
		return t, 0, fmt.Errorf("%w: version %d, here %d", transport.ErrVersion, b[1], handshakeVersion)
	}
	if n > maxBody || t == typeProof && n != proofSize || t == typeReject && n > 1+handshake.MaxText {
		return t, 0, fmt.Errorf("%w: %v of %d bytes", transport.ErrNotWeft, t, n)
	}
	return t, n, nil
}

// parties are who wants to be connected: both ends know it and prove that the other does.
type parties struct {
	job       [jobSize]byte
	initiator uint32
	responder uint32
	lane      uint16
	nonces    [2][nonceSize]byte // initiator's, responder's
}

// appendHello writes the first message.
func (p *parties) appendHello(b []byte) []byte {
	b = append(b, magic...)
	b = appendPrefix(b, typeHello, helloBody)
	b = append(b, p.job[:]...)
	b = binary.LittleEndian.AppendUint32(b, p.initiator)
	b = binary.LittleEndian.AppendUint32(b, p.responder)
	b = binary.LittleEndian.AppendUint16(b, p.lane)
	return append(b, p.nonces[0][:]...)
}

// parseHello reads it, all helloSize bytes.
func parseHello(b []byte) (parties, error) {
	var p parties
	if len(b) != helloSize || string(b[:len(magic)]) != magic {
		return p, fmt.Errorf("%w: it begins with %q", transport.ErrNotWeft, b[:min(len(b), len(magic))])
	}
	b = b[len(magic):]
	t, n, err := parsePrefix(b)
	if err != nil {
		return p, err
	}
	if t != typeHello || n != helloBody {
		return p, fmt.Errorf("%w: %v of %d bytes where Hello belongs", transport.ErrNotWeft, t, n)
	}
	b = b[prefixSize:]
	b = b[copy(p.job[:], b):]
	p.initiator = binary.LittleEndian.Uint32(b)
	p.responder = binary.LittleEndian.Uint32(b[4:])
	p.lane = binary.LittleEndian.Uint16(b[8:])
	copy(p.nonces[0][:], b[10:])
	return p, nil
}

// appendChallenge writes the responder's nonce and proof.
func (p *parties) appendChallenge(b []byte, secret *[32]byte) []byte {
	b = appendPrefix(b, typeChallenge, nonceSize+proofSize)
	b = append(b, p.nonces[1][:]...)
	return append(b, p.proof(secret, roleResponder, nil)...)
}

// takeChallenge reads them and checks the proof.
func (p *parties) takeChallenge(body []byte, secret *[32]byte) error {
	if len(body) != nonceSize+proofSize {
		return fmt.Errorf("%w: a Challenge of %d bytes", transport.ErrProtocol, len(body))
	}
	copy(p.nonces[1][:], body)
	if !p.check(body[nonceSize:], secret, roleResponder, nil) {
		return transport.ErrAuth
	}
	return nil
}

// appendProof writes the initiator's proof that it knows the secret. Request stands right after it.
func (p *parties) appendProof(b []byte, secret *[32]byte) []byte {
	return append(appendPrefix(b, typeProof, proofSize), p.proof(secret, roleProving, nil)...)
}

// takeProof checks it.
func (p *parties) takeProof(body []byte, secret *[32]byte) error {
	if len(body) != proofSize {
		return fmt.Errorf("%w: a Proof of %d bytes", transport.ErrProtocol, len(body))
	}
	if !p.check(body, secret, roleProving, nil) {
		return transport.ErrAuth
	}
	return nil
}

// appendRequest writes the initiator's parameters and private data, after a proof that they are its own.
func (p *parties) appendRequest(b []byte, secret *[32]byte, mine parameters, private []byte) []byte {
	return p.appendOffer(b, typeRequest, secret, roleInitiator, mine, private)
}

// takeRequest reads them and checks the proof.
func (p *parties) takeRequest(body []byte, secret *[32]byte) (theirs parameters, private []byte, err error) {
	return p.takeOffer(body, typeRequest, secret, roleInitiator)
}

// appendAccept writes the responder's parameters and private data, after a proof that they are its own.
func (p *parties) appendAccept(b []byte, secret *[32]byte, mine parameters, private []byte) []byte {
	return p.appendOffer(b, typeAccept, secret, roleAccepting, mine, private)
}

// takeAccept reads them and checks the proof.
func (p *parties) takeAccept(body []byte, secret *[32]byte) (theirs parameters, private []byte, err error) {
	return p.takeOffer(body, typeAccept, secret, roleAccepting)
}

func (p *parties) appendOffer(b []byte, t messageType, secret *[32]byte, role role, mine parameters,
	private []byte) []byte {
	offer := append(mine.append(nil), private...)
	b = appendPrefix(b, t, proofSize+len(offer))
	b = append(b, p.proof(secret, role, offer)...)
	return append(b, offer...)
}

func (p *parties) takeOffer(body []byte, t messageType, secret *[32]byte, role role) (parameters, []byte,
	error) {
	if len(body) < requestHead {
		return parameters{}, nil, fmt.Errorf("%w: %v of %d bytes", transport.ErrProtocol, t, len(body))
	}
	offer := body[proofSize:]
	if !p.check(body[:proofSize], secret, role, offer) {
		return parameters{}, nil, fmt.Errorf("%w: the proof of its %v is wrong", transport.ErrAuth, t)
	}
	theirs, private, err := parseParameters(offer)
	if err == nil && len(private) > maxPrivate {
		err = fmt.Errorf("%w: %v with %d bytes of private data", transport.ErrProtocol, t, len(private))
	}
	return theirs, private, err
}

func appendReject(b []byte, code handshake.RejectCode, text string) []byte {
	text = text[:min(len(text), handshake.MaxText)]
	return handshake.AppendReject(appendPrefix(b, typeReject, 1+len(text)), code, text)
}
