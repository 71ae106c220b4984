package shm

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Start-up is six messages on a Unix stream:
//
//	initiator                                  responder
//	Hello: who I am, whom I want, a nonce  →
//	                                       ←   Challenge: a nonce, the responder's proof
//	Proof: the initiator's                 →
//	Offer: a proof, what it brings in,
//	       descriptors, private data       →
//	                                       ←   Offer: the responder's     (or Reject, in place of any)
//	Ready                                  →
//
// Each proof is a MAC with the job's secret over both nonces, both ranks and the job, and in an Offer over what follows it. Until the initiator's
// proof is there the responder has spent one nonce and at most strangerBytes on it, and neither gives the other a descriptor before it has the
// other's proof. With Ready the initiator says that it uses the connection; before that the responder does not.

// startupVersion is the version of start-up, and of all that is shared.
const startupVersion = 1

const (
	magic         = "weft-shm"
	prefixSize    = 4 // of a message: type, version, length of the body
	nonceSize     = 32
	proofSize     = sha256.Size
	jobSize       = 16
	helloBody     = jobSize + 4 + 4 + nonceSize
	helloSize     = len(magic) + prefixSize + helloBody
	maxText       = 180
	bodyMost      = proofSize + offerMost + maxPrivate
	strangerBytes = helloSize + prefixSize + 1 + maxText // at most are read of who has not proved who he is: Hello, and Proof or a Reject
)

type messageType uint8

const (
	typeHello messageType = iota + 1
	typeChallenge
	typeProof
	typeOffer
	typeReady
	typeReject
	messageTypes
)

func (t messageType) String() string {
	names := [...]string{"", "Hello", "Challenge", "Proof", "Offer", "Ready", "Reject"}
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

// parsePrefix reads the beginning of a message, of the type that is due or a Reject, and returns the length of its body.
func parsePrefix(b []byte, want messageType) (messageType, int, error) {
	t, n := messageType(b[0]), int(binary.LittleEndian.Uint16(b[2:]))
	switch {
	case t < typeHello || t >= messageTypes:
		return t, 0, fmt.Errorf("%w: it begins with %q", transport.ErrNotWeft, b)
	case b[1] != startupVersion:
		return t, 0, fmt.Errorf("%w: version %d, here %d", transport.ErrVersion, b[1], startupVersion)
	case t == typeReject && n >= 1 && n <= 1+maxText:
		return t, n, nil
	case t != want:
		return t, 0, fmt.Errorf("%w: %v where %v is due", transport.ErrProtocol, t, want)
	}
	least, most := 0, 0
	switch t {
	case typeHello:
		least, most = helloBody, helloBody
	case typeChallenge:
		least, most = nonceSize+proofSize, nonceSize+proofSize
	case typeProof:
		least, most = proofSize, proofSize
	case typeOffer:
		least, most = proofSize+offerLeast, bodyMost
	}
	if n < least || n > most {
		return t, 0, fmt.Errorf("%w: %v of %d bytes", transport.ErrNotWeft, t, n)
	}
	return t, n, nil
}

// parties are who wants to be connected: both ends know it and prove that the other does.
type parties struct {
	job       [jobSize]byte
	initiator uint32
	responder uint32
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

// role keeps one side's proof from being played back as the other's.
type role string

const (
	roleResponder role = "responder" // in Challenge
	roleInitiator role = "initiator" // in Proof
	roleOffering  role = "offering"  // in the initiator's Offer
	roleAccepting role = "accepting" // in the responder's
)

// proof is what only who knows the secret can say, here of what follows the proof.
func (p *parties) proof(secret *[32]byte, r role, follows []byte) []byte {
	b := append([]byte("weft shm start-up 1 "+r), 0)
	b = append(b, p.job[:]...)
	b = binary.LittleEndian.AppendUint32(b, p.initiator)
	b = binary.LittleEndian.AppendUint32(b, p.responder)
	b = append(b, p.nonces[0][:]...)
	b = append(b, p.nonces[1][:]...)
	m := hmac.New(sha256.New, secret[:])
	m.Write(b)
	m.Write(follows)
	return m.Sum(nil)
}

// appendHello writes the first message.
func (p *parties) appendHello(b []byte) []byte {
	b = append(b, magic...)
	b = appendPrefix(b, typeHello, helloBody)
	b = append(b, p.job[:]...)
	b = binary.LittleEndian.AppendUint32(b, p.initiator)
	b = binary.LittleEndian.AppendUint32(b, p.responder)
	return append(b, p.nonces[0][:]...)
}

// parseHello reads it, all helloSize bytes.
func parseHello(b []byte) (parties, error) {
	var p parties
	if len(b) != helloSize || string(b[:len(magic)]) != magic {
		return p, fmt.Errorf("%w: it begins with %q", transport.ErrNotWeft, b[:min(len(b), len(magic))])
	}
	b = b[len(magic):]
	if t, _, err := parsePrefix(b, typeHello); err != nil || t != typeHello {
		if err == nil {
			err = fmt.Errorf("%w: %v where %v is due", transport.ErrProtocol, t, typeHello)
		}
		return p, err
	}
	b = b[prefixSize:]
	b = b[copy(p.job[:], b):]
	p.initiator = binary.LittleEndian.Uint32(b)
	p.responder = binary.LittleEndian.Uint32(b[4:])
	copy(p.nonces[0][:], b[8:])
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
	copy(p.nonces[1][:], body)
	return p.check(body[nonceSize:], secret, roleResponder, nil)
}

// appendProof writes the initiator's proof that it knows the secret.
func (p *parties) appendProof(b []byte, secret *[32]byte) []byte {
	return append(appendPrefix(b, typeProof, proofSize), p.proof(secret, roleInitiator, nil)...)
}

func (p *parties) check(proof []byte, secret *[32]byte, r role, follows []byte) error {
	if !hmac.Equal(proof, p.proof(secret, r, follows)) {
		return transport.ErrAuth
	}
	return nil
}

// appendOffer writes what a side brings in, and its private data, behind a proof that they are its own.
func (p *parties) appendOffer(b []byte, secret *[32]byte, r role, o *offer, private []byte) []byte {
	said := append(o.append(nil), private...)
	b = appendPrefix(b, typeOffer, proofSize+len(said))
	b = append(b, p.proof(secret, r, said)...)
	return append(b, said...)
}

// takeOffer reads them and checks the proof.
func (p *parties) takeOffer(body []byte, secret *[32]byte, r role) (*offer, []byte, error) {
	said := body[proofSize:]
	if err := p.check(body[:proofSize], secret, r, said); err != nil {
		return nil, nil, err
	}
	o, private, err := parseOffer(said)
	if err == nil && len(private) > maxPrivate {
		err = fmt.Errorf("%w: an Offer with %d bytes of private data", transport.ErrProtocol, len(private))
	}
	return o, private, err
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
)

func appendReject(b []byte, code rejectCode, text string) []byte {
	text = text[:min(len(text), maxText)]
	b = appendPrefix(b, typeReject, 1+len(text))
	b = append(b, byte(code))
	return append(b, text...)
}

// errCrossing says that the peer prefers another connection.
var errCrossing = fmt.Errorf("%w: another connection is under way", transport.ErrRefused)

// errBusy says that strangers crowd the peer's door.
var errBusy = fmt.Errorf("%w: too many connections there have not proved who they are", transport.ErrRefused)

// parseReject turns a Reject into the error that it is for who is turned down.
func parseReject(body []byte) error {
	text := body[1:]
	switch rejectCode(body[0]) {
	case rejectVersion:
		return fmt.Errorf("%w: it says %q", transport.ErrVersion, text)
	case rejectAuth:
		return fmt.Errorf("%w: it says %q", transport.ErrAuth, text)
	case rejectCrossing:
		return errCrossing
	case rejectBusy:
		return errBusy
	}
	return fmt.Errorf("%w: it says %q", transport.ErrRefused, text)
}
