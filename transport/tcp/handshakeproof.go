package tcp

import (
	"encoding/binary"

	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// role keeps one side's proof that it knows the job's secret from being played back as the other's, or in
// another message.
type role string

const (
	roleProving   role = "beginning" // in Proof
	roleInitiator role = "initiator" // in Request
	roleResponder role = "responder" // in Challenge
	roleAccepting role = "accepting" // in Accept
)

// proof is what only who knows the secret can say, here of what follows the proof.
func (p *parties) proof(secret *[32]byte, r role, follows []byte) []byte {
	return handshake.Proof(secret, p.proven(r), follows)
}

// check tells whether the peer's proof is the right one.
func (p *parties) check(proof []byte, secret *[32]byte, r role, follows []byte) bool {
	return handshake.Check(proof, secret, p.proven(r), follows)
}

// proven are the bytes that every proof is the MAC of, besides what follows it.
func (p *parties) proven(r role) []byte {
	b := append([]byte("weft start-up 1 "+r), 0)
	b = append(b, p.job[:]...)
	b = binary.LittleEndian.AppendUint32(b, p.initiator)
	b = binary.LittleEndian.AppendUint32(b, p.responder)
	b = binary.LittleEndian.AppendUint16(b, p.lane)
	b = append(b, p.nonces[0][:]...)
	return append(b, p.nonces[1][:]...)
}
