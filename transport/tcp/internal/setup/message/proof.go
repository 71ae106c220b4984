package message

import (
	"encoding/binary"

	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// Role prevents that one side's proof is replayed as the other's, or in another message.
type Role string

const (
	RoleProving   Role = "beginning" // in Proof
	RoleInitiator Role = "initiator" // in Request
	RoleResponder Role = "responder" // in Challenge
	RoleAccepting Role = "accepting" // in Accept
)

// Proof returns a MAC of the bytes that follow it. Only a process that knows the secret can make one.
func (p *Parties) Proof(secret *[32]byte, r Role, follows []byte) []byte {
	return handshake.Proof(secret, p.Proven(r), follows)
}

// check reports whether the peer's proof is right.
func (p *Parties) check(proof []byte, secret *[32]byte, r Role, follows []byte) bool {
	return handshake.Check(proof, secret, p.Proven(r), follows)
}

// Proven returns the bytes that every proof covers besides what follows it.
func (p *Parties) Proven(r Role) []byte {
	b := append([]byte("weft start-up 1 "+r), 0)
	b = append(b, p.Job[:]...)
	b = binary.LittleEndian.AppendUint32(b, p.Initiator)
	b = binary.LittleEndian.AppendUint32(b, p.Responder)
	b = binary.LittleEndian.AppendUint16(b, p.Lane)
	b = append(b, p.Nonces[0][:]...)
	return append(b, p.Nonces[1][:]...)
}

// TokenSize is the length of the token that a joining lane must present.
const TokenSize = 16

// roleToken is the role for deriving the token from the handshake of a queue pair's first connection.
const roleToken Role = "lanes"

// Token returns a token that identifies the queue pair of this handshake to both its ends, and to nobody
// else.
func (p *Parties) Token(secret *[32]byte) (t [TokenSize]byte) {
	copy(t[:], p.Proof(secret, roleToken, nil))
	return t
}
