package message

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// testParameters are those of a peer made of bytes.
var testParameters = Parameters{Reads: MaxReads, Lanes: 1, Recv: 8}

func testParties() Parties {
	p := Parties{Job: handshake.JobHash("job"), Initiator: 3, Responder: 5}
	for i := range p.Nonces[0] {
		p.Nonces[0][i], p.Nonces[1][i] = byte(i), byte(0x80+i)
	}
	return p
}

var testSecret = [32]byte{1, 2, 3, 4, 5, 6, 7, 8}

// Whatever bytes come in the handshake: no panic, no more memory than the limits allow, an error that has a name,
// and what is accepted is written the same way.
func FuzzHandshake(f *testing.F) {
	p := testParties()
	hello := p.AppendHello(nil)
	f.Add(hello)
	f.Add(p.AppendChallenge(nil, &testSecret))
	f.Add(p.AppendProof(nil, &testSecret))
	f.Add(p.AppendRequest(nil, &testSecret, testParameters, []byte("private")))
	f.Add(p.AppendRequest(nil, &testSecret, testParameters, make([]byte, MaxPrivate)))
	f.Add(p.AppendAccept(nil, &testSecret, testParameters, []byte("private")))
	f.Add(p.AppendAccept(nil, &testSecret, testParameters, nil))
	for c := handshake.RejectOther; c <= handshake.RejectCollision+1; c++ {
		f.Add(AppendReject(nil, c, "no"))
	}
	f.Add(append(AppendReject(nil, handshake.RejectOther, ""), hello...))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: weft\r\n\r\n"))
	f.Add([]byte{byte(Accept), Version, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		if h, err := ParseHello(data); err == nil {
			require.Equal(t, data, h.AppendHello(nil))
		} else {
			named(t, err)
		}
		r := bytes.NewReader(data)
		for {
			began := r.Len()
			kind, body, err := Read(r, 0)
			require.LessOrEqual(t, cap(body), MaxBody+64, "memory by a length that the peer has sent")
			if err != nil {
				named(t, err)
				return
			}
			checkBody(t, kind, body, data[len(data)-began:len(data)-r.Len()])
		}
	})
}

// named wants an error that callers can tell apart.
func named(t *testing.T, err error) {
	for _, want := range []error{transport.ErrNotWeft, transport.ErrVersion, transport.ErrProtocol,
		transport.ErrAuth,
		transport.ErrRefused, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, want) {
			return
		}
	}
	t.Fatalf("an error without a name: %v", err)
}

// checkBody parses a message's body. A proof that the fuzzer cannot know is put in its place.
func checkBody(t *testing.T, kind Type, body, raw []byte) {
	p := testParties()
	switch kind {
	case Challenge:
		if err := p.TakeChallenge(body, &testSecret); err != nil {
			named(t, err)
		}
		if len(body) == NonceSize+ProofSize {
			copy(body[NonceSize:], p.Proof(&testSecret, RoleResponder, nil))
			q := testParties()
			require.NoError(t, q.TakeChallenge(body, &testSecret))
			require.Equal(t, append(raw[:PrefixSize:PrefixSize], body...),
				q.AppendChallenge(nil, &testSecret))
		}
	case Proof:
		if err := p.TakeProof(body, &testSecret); err != nil {
			named(t, err)
		}
		require.NoError(t, p.TakeProof(p.Proof(&testSecret, RoleProving, nil), &testSecret))
	case Request, Accept:
		take, write, role := p.TakeRequest, p.AppendRequest, RoleInitiator
		if kind == Accept {
			take, write, role = p.TakeAccept, p.AppendAccept, RoleAccepting
		}
		if _, _, err := take(body, &testSecret); err != nil {
			named(t, err)
		}
		if len(body) < requestHead {
			return
		}
		copy(body, p.Proof(&testSecret, role, body[ProofSize:]))
		theirs, private, err := take(body, &testSecret)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			return
		}
		require.LessOrEqual(t, len(private), MaxPrivate)
		if body[ProofSize] == ParametersSize { // a longer block has fields that we do not know
			require.Equal(t, append(raw[:PrefixSize:PrefixSize], body...),
				write(nil, &testSecret, theirs, private))
		}
	case Reject:
		err := handshake.ParseReject(body)
		named(t, err)
		if !errors.Is(err, transport.ErrProtocol) {
			require.Equal(t, raw, AppendReject(nil, handshake.RejectCode(body[0]), string(body[1:])))
		}
	}
}

// A proof is good for one role, one job, one pair of ranks, one lane and one pair of nonces: change any and
// it is another.
func TestProof_IsBoundToEverything(t *testing.T) {
	p := testParties()
	follows := []byte("what follows the proof")
	seen := map[string]string{string(p.Proof(&testSecret, RoleInitiator, nil)): "the original"}
	distinct := func(what string, proof []byte) {
		require.NotContains(t, seen, string(proof), what)
		seen[string(proof)] = what
	}
	distinct("role", p.Proof(&testSecret, RoleResponder, follows))
	distinct("role of Accept", p.Proof(&testSecret, RoleAccepting, follows))
	distinct("what follows", p.Proof(&testSecret, RoleInitiator, []byte("what follows the prooF")))
	distinct("secret", p.Proof(&[32]byte{9}, RoleInitiator, follows))
	for what, change := range map[string]func(p *Parties){
		"job":               func(p *Parties) { p.Job[15] ^= 1 },
		"initiator":         func(p *Parties) { p.Initiator ^= 1 },
		"responder":         func(p *Parties) { p.Responder ^= 1 },
		"ranks swapped":     func(p *Parties) { p.Initiator, p.Responder = p.Responder, p.Initiator },
		"lane":              func(p *Parties) { p.Lane = 1 },
		"initiator's nonce": func(p *Parties) { p.Nonces[0][31] ^= 1 },
		"responder's nonce": func(p *Parties) { p.Nonces[1][31] ^= 1 },
		"nonces swapped":    func(p *Parties) { p.Nonces[0], p.Nonces[1] = p.Nonces[1], p.Nonces[0] },
	} {
		q := testParties()
		change(&q)
		distinct(what, q.Proof(&testSecret, RoleInitiator, follows))
	}
}
