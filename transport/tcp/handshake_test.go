package tcp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// said is a connection on which the peer has said all that it will ever say.
type said struct {
	net.Conn
	r *bytes.Reader
}

func (s said) Read(b []byte) (int, error) { return s.r.Read(b) }

// testParameters are those of a peer made of bytes.
var testParameters = parameters{reads: maxReads, lanes: 1, recv: 8}

func testParties() parties {
	p := parties{job: handshake.JobHash("job"), initiator: 3, responder: 5}
	for i := range p.nonces[0] {
		p.nonces[0][i], p.nonces[1][i] = byte(i), byte(0x80+i)
	}
	return p
}

var testSecret = [32]byte{1, 2, 3, 4, 5, 6, 7, 8}

// Whatever bytes come in the handshake: no panic, no more memory than the limits allow, an error that has a name,
// and what is accepted is written the same way.
func FuzzHandshake(f *testing.F) {
	p := testParties()
	hello := p.appendHello(nil)
	f.Add(hello)
	f.Add(p.appendChallenge(nil, &testSecret))
	f.Add(p.appendProof(nil, &testSecret))
	f.Add(p.appendRequest(nil, &testSecret, testParameters, []byte("private")))
	f.Add(p.appendRequest(nil, &testSecret, testParameters, make([]byte, maxPrivate)))
	f.Add(p.appendAccept(nil, &testSecret, testParameters, []byte("private")))
	f.Add(p.appendAccept(nil, &testSecret, testParameters, nil))
	for c := handshake.RejectOther; c <= handshake.RejectCollision+1; c++ {
		f.Add(appendReject(nil, c, "no"))
	}
	f.Add(append(appendReject(nil, handshake.RejectOther, ""), hello...))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: weft\r\n\r\n"))
	f.Add([]byte{byte(typeAccept), handshakeVersion, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		if h, err := parseHello(data); err == nil {
			require.Equal(t, data, h.appendHello(nil))
		} else {
			named(t, err)
		}
		s := newStream(said{r: bytes.NewReader(data)})
		for {
			began := s.read
			kind, body, err := s.message(0)
			require.LessOrEqual(t, cap(body), maxBody+64, "memory by a length that the peer has sent")
			if err != nil {
				named(t, err)
				return
			}
			checkBody(t, kind, body, data[began:s.read])
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
func checkBody(t *testing.T, kind messageType, body, raw []byte) {
	p := testParties()
	switch kind {
	case typeChallenge:
		if err := p.takeChallenge(body, &testSecret); err != nil {
			named(t, err)
		}
		if len(body) == nonceSize+proofSize {
			copy(body[nonceSize:], p.proof(&testSecret, roleResponder, nil))
			q := testParties()
			require.NoError(t, q.takeChallenge(body, &testSecret))
			require.Equal(t, append(raw[:prefixSize:prefixSize], body...),
				q.appendChallenge(nil, &testSecret))
		}
	case typeProof:
		if err := p.takeProof(body, &testSecret); err != nil {
			named(t, err)
		}
		require.NoError(t, p.takeProof(p.proof(&testSecret, roleProving, nil), &testSecret))
	case typeRequest, typeAccept:
		take, write, role := p.takeRequest, p.appendRequest, roleInitiator
		if kind == typeAccept {
			take, write, role = p.takeAccept, p.appendAccept, roleAccepting
		}
		if _, _, err := take(body, &testSecret); err != nil {
			named(t, err)
		}
		if len(body) < requestHead {
			return
		}
		copy(body, p.proof(&testSecret, role, body[proofSize:]))
		theirs, private, err := take(body, &testSecret)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			return
		}
		require.LessOrEqual(t, len(private), maxPrivate)
		if body[proofSize] == parametersSize { // a longer block has fields that we do not know
			require.Equal(t, append(raw[:prefixSize:prefixSize], body...),
				write(nil, &testSecret, theirs, private))
		}
	case typeReject:
		err := handshake.ParseReject(body)
		named(t, err)
		if !errors.Is(err, transport.ErrProtocol) {
			require.Equal(t, raw, appendReject(nil, handshake.RejectCode(body[0]), string(body[1:])))
		}
	}
}

// A proof is good for one role, one job, one pair of ranks, one lane and one pair of nonces: change any and
// it is another.
func TestProof_IsBoundToEverything(t *testing.T) {
	p := testParties()
	follows := []byte("what follows the proof")
	seen := map[string]string{string(p.proof(&testSecret, roleInitiator, nil)): "the original"}
	distinct := func(what string, proof []byte) {
		require.NotContains(t, seen, string(proof), what)
		seen[string(proof)] = what
	}
	distinct("role", p.proof(&testSecret, roleResponder, follows))
	distinct("role of Accept", p.proof(&testSecret, roleAccepting, follows))
	distinct("what follows", p.proof(&testSecret, roleInitiator, []byte("what follows the prooF")))
	distinct("secret", p.proof(&[32]byte{9}, roleInitiator, follows))
	for what, change := range map[string]func(p *parties){
		"job":               func(p *parties) { p.job[15] ^= 1 },
		"initiator":         func(p *parties) { p.initiator ^= 1 },
		"responder":         func(p *parties) { p.responder ^= 1 },
		"ranks swapped":     func(p *parties) { p.initiator, p.responder = p.responder, p.initiator },
		"lane":              func(p *parties) { p.lane = 1 },
		"initiator's nonce": func(p *parties) { p.nonces[0][31] ^= 1 },
		"responder's nonce": func(p *parties) { p.nonces[1][31] ^= 1 },
		"nonces swapped":    func(p *parties) { p.nonces[0], p.nonces[1] = p.nonces[1], p.nonces[0] },
	} {
		q := testParties()
		change(&q)
		distinct(what, q.proof(&testSecret, roleInitiator, follows))
	}
}
