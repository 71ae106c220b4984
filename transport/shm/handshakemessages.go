package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// The handshake is four messages over a Unix connection that preserves message boundaries:
//
//	initiator                                  responder
//	Hello: both ranks, a nonce, a proof    →
//	                                       ←   Accept: a nonce, a proof, parameters,
//	                                           a descriptor, private data   (or Reject, in place of any)
//	Offer: a proof, parameters,
//	       a descriptor, private data      →
//	                                       ←   Ready
//
// Each proof is a MAC with the job's secret over both nonces, both ranks and the job, and over what follows
// it. That of Hello covers the name of the responder's socket instead of its nonce: the name is random, and
// new with each endpoint. So neither side sends the other a descriptor, or allocates anything for it, before
// it has the other's proof. The initiator uses the connection from Ready on, and the Unix connection is
// closed.

// handshakeVersion is the version of the handshake and of all shared memory.
const handshakeVersion = 8

const (
	magic       = "weft-shm"
	prefixSize  = len(magic) + 2 // of a message: the magic, version, type
	nonceSize   = handshake.NonceSize
	proofSize   = handshake.ProofSize
	jobSize     = handshake.JobSize
	helloBody   = jobSize + 4 + 4 + nonceSize + proofSize
	maxBody     = nonceSize + proofSize + maxConnectInfo + maxPrivate
	messageSize = prefixSize + maxBody + 1 // room for a message, and to notice one that is too long
)

type messageType uint8

const (
	typeHello messageType = iota + 1
	typeAccept
	typeOffer
	typeReady
	typeReject
)

func (t messageType) String() string {
	names := [...]string{"", "Hello", "Accept", "Offer", "Ready", "Reject"}
	if int(t) < len(names) && t != 0 {
		return names[t]
	}
	return fmt.Sprintf("message type %d", uint8(t))
}

// appendPrefix begins a message.
func appendPrefix(b []byte, t messageType) []byte {
	return append(append(b, magic...), handshakeVersion, byte(t))
}

// parseMessage checks a message of type want, or a Reject, and returns its type and its body.
func parseMessage(b []byte, want messageType) (messageType, []byte, error) {
	if len(b) < prefixSize || string(b[:len(magic)]) != magic {
		return 0, nil, fmt.Errorf("%w: the message begins with %q", transport.ErrNotWeft,
			b[:min(len(b), prefixSize)])
	}
	version, t, body := b[len(magic)], messageType(b[len(magic)+1]), b[prefixSize:]
	minLen, maxLen := 0, 0
	switch t {
	case typeHello:
		minLen, maxLen = helloBody, helloBody
	case typeAccept:
		minLen, maxLen = nonceSize+proofSize+minConnectInfo, maxBody
	case typeOffer:
		minLen, maxLen = proofSize+minConnectInfo, maxBody-nonceSize
	case typeReject:
		minLen, maxLen = 1, 1+handshake.MaxText
	}
	switch {
	case version != handshakeVersion:
		return t, nil, fmt.Errorf("%w: version %d, here %d", transport.ErrVersion, version, handshakeVersion)
	case t != want && t != typeReject:
		return t, nil, fmt.Errorf("%w: %v where %v is due", transport.ErrProtocol, t, want)
	case len(body) < minLen || len(body) > maxLen:
		return t, nil, fmt.Errorf("%w: %v of %d bytes", transport.ErrProtocol, t, len(b))
	}
	return t, body, nil
}

// parties are the two ends of a connection, which both ends know and prove to each other.
type parties struct {
	job       [jobSize]byte
	initiator uint32
	responder uint32
	nonces    [2][nonceSize]byte // initiator's, responder's
}

// role prevents that one side's proof is replayed as the other's.
type role string

const (
	roleInitiator role = "initiator" // in Hello
	roleAccepting role = "accepting" // in Accept
	roleOffering  role = "offering"  // in Offer
)

// proof returns a MAC of the bytes that follow it. Only a process that knows the secret can make one.
func (p *parties) proof(secret *[32]byte, r role, follows []byte) []byte {
	return handshake.Proof(secret, p.proven(r), follows)
}

// proven returns the bytes that every proof covers besides what follows it.
func (p *parties) proven(r role) []byte {
	b := append([]byte("weft shm start-up 2 "+r), 0)
	b = append(b, p.job[:]...)
	b = binary.LittleEndian.AppendUint32(b, p.initiator)
	b = binary.LittleEndian.AppendUint32(b, p.responder)
	b = append(b, p.nonces[0][:]...)
	b = append(b, p.nonces[1][:]...)
	return b
}

func (p *parties) check(proof []byte, secret *[32]byte, r role, follows []byte) error {
	if !handshake.Check(proof, secret, p.proven(r), follows) {
		return transport.ErrAuth
	}
	return nil
}

// appendHello writes the first message, to the socket of a name. The responder's nonce is not yet known.
func (p *parties) appendHello(b []byte, secret *[32]byte, socket string) []byte {
	b = appendPrefix(b, typeHello)
	b = append(b, p.job[:]...)
	b = binary.LittleEndian.AppendUint32(b, p.initiator)
	b = binary.LittleEndian.AppendUint32(b, p.responder)
	b = append(b, p.nonces[0][:]...)
	return append(b, p.proof(secret, roleInitiator, []byte(socket))...)
}

// parseHello parses the body of a Hello. The caller must check its proof.
func parseHello(body []byte) (p parties, proof []byte) {
	body = body[copy(p.job[:], body):]
	p.initiator = binary.LittleEndian.Uint32(body)
	p.responder = binary.LittleEndian.Uint32(body[4:])
	body = body[8:]
	return p, body[copy(p.nonces[0][:], body):]
}

// appendAccept appends an Accept: the responder's nonce, a proof, its parameters and its private data.
func (p *parties) appendAccept(b []byte, secret *[32]byte, o *connectInfo, private []byte) []byte {
	b = append(appendPrefix(b, typeAccept), p.nonces[1][:]...)
	return p.appendOffered(b, secret, roleAccepting, o, private)
}

// takeAccept parses the body of an Accept, and checks its proof.
func (p *parties) takeAccept(body []byte, secret *[32]byte) (*connectInfo, []byte, error) {
	return p.takeOffered(body[copy(p.nonces[1][:], body):], secret, roleAccepting)
}

// appendOffer appends an Offer: a proof, the initiator's parameters and its private data.
func (p *parties) appendOffer(b []byte, secret *[32]byte, o *connectInfo, private []byte) []byte {
	return p.appendOffered(appendPrefix(b, typeOffer), secret, roleOffering, o, private)
}

// takeOffer parses the body of an Offer, and checks its proof.
func (p *parties) takeOffer(body []byte, secret *[32]byte) (*connectInfo, []byte, error) {
	return p.takeOffered(body, secret, roleOffering)
}

func (p *parties) appendOffered(b []byte, secret *[32]byte, r role, o *connectInfo, private []byte) []byte {
	said := append(o.append(nil), private...)
	return append(append(b, p.proof(secret, r, said)...), said...)
}

func (p *parties) takeOffered(body []byte, secret *[32]byte, r role) (*connectInfo, []byte, error) {
	said := body[proofSize:]
	if err := p.check(body[:proofSize], secret, r, said); err != nil {
		return nil, nil, err
	}
	o, private, err := parseConnectInfo(said)
	if err == nil && len(private) > maxPrivate {
		err = fmt.Errorf("%w: parameters with %d bytes of private data", transport.ErrProtocol, len(private))
	}
	return o, private, err
}

func appendReject(b []byte, code handshake.RejectCode, text string) []byte {
	return handshake.AppendReject(appendPrefix(b, typeReject), code, text)
}
