package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/link"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/certificates"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// patience is what no test waits for unless it fails.
const patience = 2 * time.Minute

// refusal is what an acceptor was told of somebody who was turned away.
type refusal struct {
	from string
	err  error
}

// made is a connection that an acceptor was given.
type made struct {
	rank    uint32
	qp      transport.QP
	private string
}

// host is a real device, rank 0 of 4 unless a test wants another, with everything that a rank has. Its peers
// are bytes on sockets.
type host struct {
	t       testing.TB
	dev     *Device
	pd      transport.PD
	cq      transport.CQ
	ep      transport.Endpoint
	mr      transport.MR // for the Recvs of its queue pairs
	wcs     []transport.WC
	made    chan made
	refused chan refusal
	private []byte
	depth   int // Reads and Atomics outstanding at once

	preparing func()        // called by Prepare
	gaveUp    chan struct{} // a call of the host has ended
}

var hostIdentity = transport.Identity{Job: "job", Rank: 0, Size: 4, Secret: testSecret}

const recvSize = 64

func newHost(t testing.TB, o Options) *host { return newHostOfRank(t, o, 0) }

func newHostOfRank(t testing.TB, o Options, rank uint32) *host {
	if o.reportBurst == 0 {
		o.reportBurst = 1 << 30 // the tests want to hear of everybody
	}
	d, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	h := &host{t: t, dev: d, made: make(chan made, 16), refused: make(chan refusal, 1024),
		private: []byte("mine"), depth: message.MaxReads}
	h.pd, err = d.AllocPD()
	require.NoError(t, err)
	h.cq, err = d.CreateCQ(1<<10, 0)
	require.NoError(t, err)
	h.mr, err = h.pd.Alloc(recvSize, transport.LocalWrite)
	require.NoError(t, err)
	id := hostIdentity
	id.Rank = rank
	h.ep, err = d.Listen(id, h)
	require.NoError(t, err)
	return h
}

func (h *host) Prepare(uint32) (transport.QPConfig, []byte, error) {
	if h.preparing != nil {
		h.preparing()
	}
	return transport.QPConfig{PD: h.pd, SendCQ: h.cq, RecvCQ: h.cq, SendWR: 8, RecvWR: 8, Reads: h.depth},
		h.private, nil
}

func (h *host) Connected(rank uint32, qp transport.QP, private []byte) {
	h.made <- made{rank, qp, string(private)}
}

func (h *host) Refused(from string, err error) { h.refused <- refusal{from, err} }

func (h *host) nextRefusal() refusal {
	h.t.Helper()
	select {
	case r := <-h.refused:
		return r
	case <-time.After(patience):
		h.t.Fatal("nobody was turned away")
		return refusal{}
	}
}

// nextMade waits for a connection, and until the endpoint has noted that it stands: before that another one
// of the same rank would be turned away.
func (h *host) nextMade() made {
	h.t.Helper()
	late := time.After(patience)
	var m made
	select {
	case m = <-h.made:
	case <-late:
		h.t.Fatal("no connection came")
	}
	h.reaches(m.rank, cm.Connected)
	return m
}

// reaches waits until the endpoint's state for a peer is as wanted.
func (h *host) reaches(rank uint32, want cm.State) {
	h.t.Helper()
	late := time.After(patience)
	for e := h.dev.end; ; {
		_, state, changed := e.table.Current(rank)
		if state == want {
			return
		}
		select {
		case <-changed:
		case <-late:
			h.t.Fatalf("the connection with rank %d is in state %d, and %d was expected", rank, state, want)
		}
	}
}

// until drives the device until something holds.
func (h *host) until(what string, holds func() bool) {
	h.t.Helper()
	give := time.Now().Add(patience)
	var wc [16]transport.WC
	for {
		n := h.cq.Poll(wc[:])
		h.wcs = append(h.wcs, wc[:n]...)
		if holds() {
			return
		}
		if time.Now().After(give) {
			h.t.Fatalf("%s: not within %v", what, patience)
		}
		if n == 0 {
			require.NoError(h.t, h.cq.Wait(time.Until(give)))
		}
	}
}

// raw is a peer made of bytes: a test that speaks the protocol as well or as badly as it likes.
type raw struct {
	t testing.TB
	net.Conn
	session *link.Session // nil where it is not encrypted
	message.Parties
}

func (r *raw) full(b []byte) error {
	_, err := io.ReadFull(r.Conn, b)
	return err
}

// expect reads the message that is due, or the error of the Reject in its place.
func (r *raw) expect(due message.Type) ([]byte, error) {
	kind, body, err := message.Read(r.Conn, due)
	if err == nil && kind == message.Reject {
		err = handshake.ParseReject(body)
	}
	return body, err
}

// encrypt begins TLS with a rank.
func (r *raw) encrypt(c *certificates.Job, rank uint32) error {
	s, err := setup.Encrypt(r.Conn, c, rank)
	if err == nil {
		r.Conn, r.session = s.TLS, s
	}
	return err
}

func newRaw(t testing.TB, conn net.Conn, p message.Parties) *raw {
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return &raw{t: t, Conn: conn, Parties: p}
}

// dial opens a connection to the host, as a rank would, and says nothing.
func (h *host) dial(rank uint32) *raw {
	h.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.ep.Addr(), "tcp:"))
	require.NoError(h.t, err)
	p := testParties()
	p.Initiator, p.Responder = rank, 0
	return newRaw(h.t, conn, p)
}

func (r *raw) say(b []byte) {
	r.t.Helper()
	_, err := r.Write(b)
	require.NoError(r.t, err)
}

func (r *raw) sayHello() { r.t.Helper(); r.say(r.AppendHello(nil)) }

// hearChallenge takes the responder's nonce and checks its proof.
func (r *raw) hearChallenge() {
	r.t.Helper()
	body, err := r.expect(message.Challenge)
	require.NoError(r.t, err)
	require.NoError(r.t, r.TakeChallenge(body, &testSecret))
}

func (r *raw) request() []byte {
	return r.AppendRequest(r.AppendProof(nil, &testSecret), &testSecret, testParameters, []byte("raw"))
}

// connect brings a connection to RDMA mode.
func (r *raw) connect() {
	r.t.Helper()
	r.sayHello()
	r.hearChallenge()
	r.say(r.request())
	body, err := r.expect(message.Accept)
	require.NoError(r.t, err)
	theirs, private, err := r.TakeAccept(body, &testSecret)
	require.NoError(r.t, err)
	require.Equal(r.t, message.Parameters{Reads: theirs.Reads, Lanes: 1, Recv: 8}, theirs)
	require.Equal(r.t, "mine", string(private))
}

// hearHello is the responder's side.
func (r *raw) hearHello() {
	r.t.Helper()
	b := make([]byte, message.HelloSize)
	require.NoError(r.t, r.full(b))
	p, err := message.ParseHello(b)
	require.NoError(r.t, err)
	p.Nonces[1] = r.Nonces[1]
	r.Parties = p
}

// last is how the other side ends: the text of a Reject or Terminate, if one comes, and nothing after it but
// the end.
func (r *raw) last() string {
	r.t.Helper()
	kind, body, err := message.Read(r.Conn, 0)
	if ended(err) {
		return ""
	}
	require.NoError(r.t, err)
	require.Equal(r.t, message.Reject, kind)
	rest, err := io.ReadAll(r.Conn)
	require.True(r.t, err == nil || ended(err), "%v", err)
	require.Empty(r.t, rest)
	return fmt.Sprintf("%d: %s", body[0], body[1:])
}

func ended(err error) bool {
	return errors.Is(err, io.EOF) || err != nil && strings.Contains(err.Error(), "connection reset by peer")
}

// heardFrame is a frame as a raw peer gets it.
type heardFrame struct {
	frame.Header
	payload []byte
}

// frames reads what the other side sends up to the end of the connection.
func (r *raw) frames() (list []heardFrame) {
	r.t.Helper()
	for {
		var b [frame.HeaderSize]byte
		err := r.full(b[:])
		if ended(err) {
			return list
		}
		require.NoError(r.t, err)
		h, err := frame.Parse(b[:])
		require.NoError(r.t, err)
		f := heardFrame{Header: h, payload: make([]byte, h.Length)}
		require.NoError(r.t, r.full(f.payload))
		list = append(list, f)
	}
}

// sayFrame sends a frame with a payload.
func (r *raw) sayFrame(h frame.Header, payload []byte) {
	r.t.Helper()
	h.Length = len(payload)
	r.say(append(h.Append(nil), payload...))
}

// descriptors counts the open files of the process.
func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// leaksNone runs a test and wants as many descriptors open after it as before. Goroutines are looked after by
// TestMain.
func leaksNone(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	net.Dial("tcp", "127.0.0.1:1") // Go's own poller has its descriptors before we count
	before := descriptors(t)
	t.Run("Body", test)
	require.Equal(t, before, descriptors(t), "descriptors are left open, or were closed twice")
}
