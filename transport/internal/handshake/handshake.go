// Package handshake has the common parts of the messages that set up a connection, for all providers: how the
// two ends prove that they know the job's secret, how one rejects the other, and what it means that one is
// gone. The messages themselves are the provider's own.
package handshake

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
)

const (
	JobSize   = 16          // of the hash of a job's name
	NonceSize = 32          // random bytes that each end adds
	ProofSize = sha256.Size // of a proof
	MaxText   = 180         // of a Reject
)

// JobHash returns the hash that names a job in messages.
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

// Whom returns the text of a Reject that identifies this rank, for a peer that asked for another rank or for
// a port that this one does not have.
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

// Proof returns a MAC, keyed with the job's secret, of who (which rank proves itself to which) and follows
// (the rest of the message).
func Proof(secret *[32]byte, who, follows []byte) []byte {
	return NewProver(secret).Proof(who, follows)
}

// Prover makes proofs that are keyed with the same secret. It is for one goroutine at a time.
type Prover struct {
	mac hash.Hash
	sum [ProofSize]byte
}

// NewProver makes a Prover.
func NewProver(secret *[32]byte) *Prover { return &Prover{mac: hmac.New(sha256.New, secret[:])} }

// Proof is the function Proof. The next call overwrites its result.
func (p *Prover) Proof(who, follows []byte) []byte {
	p.mac.Reset()
	p.mac.Write(who)
	p.mac.Write(follows)
	return p.mac.Sum(p.sum[:0])
}

// Check reports whether a proof is the right one.
func Check(proof []byte, secret *[32]byte, who, follows []byte) bool {
	return hmac.Equal(proof, Proof(secret, who, follows))
}

// RejectCode says why a connection is rejected.
type RejectCode uint8

const (
	RejectOther     RejectCode = iota // the text says it
	RejectVersion                     // the other version
	RejectAuth                        // the proof is wrong
	RejectRank                        // no such rank here, or in the job
	RejectCollision                   // the two are, or are being, connected: wait
	RejectBusy                        // busy with other connections: try again
	RejectGone                        // the queue pair that a lane was to join has ended
)

// ErrGone says that the queue pair that a lane was to join has ended.
var ErrGone = fmt.Errorf("%w: the queue pair has ended", transport.ErrRefused)

// AppendReject appends the body of a Reject.
func AppendReject(b []byte, code RejectCode, text string) []byte {
	return append(append(b, byte(code)), text[:min(len(text), MaxText)]...)
}

// ParseReject returns the error that the body of a Reject stands for, at the end that is rejected.
func ParseReject(body []byte) error {
	if len(body) < 1 || len(body) > 1+MaxText {
		return fmt.Errorf("%w: a Reject of %d bytes", transport.ErrProtocol, len(body))
	}
	text := body[1:]
	switch RejectCode(body[0]) {
	case RejectVersion:
		return fmt.Errorf("%w: the peer says %q", transport.ErrVersion, text)
	case RejectAuth:
		return fmt.Errorf("%w: the peer says %q", transport.ErrAuth, text)
	case RejectCollision:
		return cm.ErrCollision
	case RejectBusy:
		return cm.ErrBusy
	case RejectGone:
		return ErrGone
	}
	return fmt.Errorf("%w: the peer says %q", transport.ErrRefused, text)
}

// TurnDown sends a Reject for an error in the peer's message, unless the peer should not learn of it.
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
