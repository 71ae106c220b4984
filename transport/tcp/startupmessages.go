package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
)

// Start-up is five messages on the byte stream, in the manner of MPA:
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

// startupVersion is the version of start-up and of the frames after it.
const startupVersion = 2

// A message begins with its type, the version, and the length of what follows. The first one stands after the
// magic.
const (
	magic       = "weft\r\n\x00\x16" // not text, not TLS, and damaged by anything that translates line ends
	prefixSize  = 4
	nonceSize   = 32
	proofSize   = sha256.Size
	jobSize     = 16
	helloBody   = jobSize + 4 + 4 + 2 + nonceSize
	helloSize   = len(magic) + prefixSize + helloBody
	maxText     = 180
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
	b = append(b, byte(t), startupVersion)
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
	if b[1] != startupVersion {
		return t, 0, fmt.Errorf("%w: version %d, here %d", transport.ErrVersion, b[1], startupVersion)
	}
	if n > maxBody || t == typeProof && n != proofSize || t == typeReject && n > 1+maxText {
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

func jobHash(name string) (h [jobSize]byte) {
	sum := sha256.Sum256([]byte(name))
	copy(h[:], sum[:])
	return h
}

func newNonce() (n [nonceSize]byte, err error) {
	_, err = rand.Read(n[:])
	return n, err
}

// proof is what only who knows the secret can say, here of what follows the proof.
func (p *parties) proof(secret *[32]byte, role string, follows []byte) []byte {
	m := hmac.New(sha256.New, secret[:])
	m.Write(p.proven(role))
	m.Write(follows)
	return m.Sum(nil)
}

// proven are the bytes that every proof is the MAC of; the role keeps one side's from being played back as
// the other's.
func (p *parties) proven(role string) []byte {
	b := append([]byte("weft start-up 1 "+role), 0)
	b = append(b, p.job[:]...)
	b = binary.LittleEndian.AppendUint32(b, p.initiator)
	b = binary.LittleEndian.AppendUint32(b, p.responder)
	b = binary.LittleEndian.AppendUint16(b, p.lane)
	b = append(b, p.nonces[0][:]...)
	return append(b, p.nonces[1][:]...)
}

const (
	roleProving   = "beginning" // in Proof
	roleInitiator = "initiator" // in Request
	roleResponder = "responder" // in Challenge
	roleAccepting = "accepting" // in Accept
)

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
	if !hmac.Equal(body[nonceSize:], p.proof(secret, roleResponder, nil)) {
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
	if !hmac.Equal(body, p.proof(secret, roleProving, nil)) {
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

func (p *parties) appendOffer(b []byte, t messageType, secret *[32]byte, role string, mine parameters,
	private []byte) []byte {
	offer := append(mine.append(nil), private...)
	b = appendPrefix(b, t, proofSize+len(offer))
	b = append(b, p.proof(secret, role, offer)...)
	return append(b, offer...)
}

func (p *parties) takeOffer(body []byte, t messageType, secret *[32]byte, role string) (parameters, []byte,
	error) {
	if len(body) < requestHead {
		return parameters{}, nil, fmt.Errorf("%w: %v of %d bytes", transport.ErrProtocol, t, len(body))
	}
	offer := body[proofSize:]
	if !hmac.Equal(body[:proofSize], p.proof(secret, role, offer)) {
		return parameters{}, nil, fmt.Errorf("%w: the proof of its %v is wrong", transport.ErrAuth, t)
	}
	theirs, private, err := parseParameters(offer)
	if err == nil && len(private) > maxPrivate {
		err = fmt.Errorf("%w: %v with %d bytes of private data", transport.ErrProtocol, t, len(private))
	}
	return theirs, private, err
}

// rejectCode says why a connection is turned down.
type rejectCode uint8

const (
	rejectOther    rejectCode = iota // the text says it
	rejectVersion                    // the other version
	rejectAuth                       // the proof is wrong
	rejectRank                       // no such rank here, or in the job
	rejectCrossing                   // another connection between the two is made, or stands: wait for it
	rejectBusy                       // too many who have not proved themselves: try again
	rejectGone                       // the queue pair that a lane was to join is not there any more
)

func appendReject(b []byte, code rejectCode, text string) []byte {
	text = text[:min(len(text), maxText)]
	b = appendPrefix(b, typeReject, 1+len(text))
	b = append(b, byte(code))
	return append(b, text...)
}

// parseReject turns a Reject into the error that it is for who is turned down.
func parseReject(body []byte) error {
	if len(body) < 1 || len(body) > 1+maxText {
		return fmt.Errorf("%w: a Reject of %d bytes", transport.ErrProtocol, len(body))
	}
	text := body[1:]
	switch rejectCode(body[0]) {
	case rejectVersion:
		return fmt.Errorf("%w: it says %q", transport.ErrVersion, text)
	case rejectAuth:
		return fmt.Errorf("%w: it says %q", transport.ErrAuth, text)
	case rejectCrossing:
		return cm.ErrCollision
	case rejectBusy:
		return cm.ErrBusy
	case rejectGone:
		return errGone
	}
	return fmt.Errorf("%w: it says %q", transport.ErrRefused, text)
}
