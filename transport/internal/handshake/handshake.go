// Package handshake has what the messages that make a connection have in common over all providers: how both
// ends prove that they know the job's secret, and how one turns the other down. The messages themselves, and
// what carries them, are the provider's own.
package handshake

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
)

const (
	JobSize   = 16          // of the hash of a job's name
	NonceSize = 32          // random bytes that each end adds
	ProofSize = sha256.Size // of a proof
	MaxText   = 180         // of a Reject
)

// JobHash is how messages name a job.
func JobHash(name string) (h [JobSize]byte) {
	sum := sha256.Sum256([]byte(name))
	copy(h[:], sum[:])
	return h
}

// Name names a peer in messages.
func Name(peer uint32) string {
	if port := transport.PortOf(peer); port > 0 {
		return fmt.Sprintf("rank %d, port %d", transport.RankOf(peer), port)
	}
	return fmt.Sprintf("rank %d", peer)
}

// Whom says who answers a peer that wanted somebody else, or a port that this rank does not have.
func Whom(id *transport.Identity) string {
	if id.Ports > 1 {
		return fmt.Sprintf("this is rank %d of %d, with %d ports", id.Rank, id.Size, id.Ports)
	}
	return fmt.Sprintf("this is rank %d of %d", id.Rank, id.Size)
}

// NewNonce makes a nonce.
func NewNonce() (n [NonceSize]byte) {
	rand.Read(n[:])
	return n
}

// Proof is what only who knows the secret can say, of who proves it to whom, and of what follows the proof in
// its message.
func Proof(secret *[32]byte, who, follows []byte) []byte {
	m := hmac.New(sha256.New, secret[:])
	m.Write(who)
	m.Write(follows)
	return m.Sum(nil)
}

// Check reports whether a proof is the right one.
func Check(proof []byte, secret *[32]byte, who, follows []byte) bool {
	return hmac.Equal(proof, Proof(secret, who, follows))
}

// RejectCode says why a connection is turned down.
type RejectCode uint8

const (
	RejectOther     RejectCode = iota // the text says it
	RejectVersion                     // the other version
	RejectAuth                        // the proof is wrong
	RejectRank                        // no such rank here, or in the job
	RejectCollision                   // another connection between the two is made, or stands: wait for it
	RejectBusy                        // too many who have not proved themselves: try again
	RejectGone                        // the queue pair that a lane was to join is not there any more
)

// ErrGone says that the queue pair that a lane was to join is no more.
var ErrGone = fmt.Errorf("%w: the queue pair is not there any more", transport.ErrRefused)

// AppendReject appends the body of a Reject.
func AppendReject(b []byte, code RejectCode, text string) []byte {
	return append(append(b, byte(code)), text[:min(len(text), MaxText)]...)
}

// ParseReject turns the body of a Reject into the error of the end that is refused.
func ParseReject(body []byte) error {
	if len(body) < 1 || len(body) > 1+MaxText {
		return fmt.Errorf("%w: a Reject of %d bytes", transport.ErrProtocol, len(body))
	}
	text := body[1:]
	switch RejectCode(body[0]) {
	case RejectVersion:
		return fmt.Errorf("%w: it says %q", transport.ErrVersion, text)
	case RejectAuth:
		return fmt.Errorf("%w: it says %q", transport.ErrAuth, text)
	case RejectCollision:
		return cm.ErrCollision
	case RejectBusy:
		return cm.ErrBusy
	case RejectGone:
		return ErrGone
	}
	return fmt.Errorf("%w: it says %q", transport.ErrRefused, text)
}

// TurnDown tells a peer what is wrong with its message, if that is the peer's to know.
func TurnDown(err error, version int, reject func(code RejectCode, text string)) {
	switch {
	case errors.Is(err, transport.ErrAuth):
		reject(RejectAuth, err.Error())
	case errors.Is(err, transport.ErrVersion):
		reject(RejectVersion, fmt.Sprintf("this is version %d", version))
	case errors.Is(err, transport.ErrProtocol), errors.Is(err, transport.ErrNotWeft):
		reject(RejectOther, err.Error())
	}
}
