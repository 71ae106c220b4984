package tcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/link"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/certificates"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// certificatesOf are what a rank of the tests' job has, or what an impostor makes.
func certificatesOf(t testing.TB, rank uint32, change func(id *transport.Identity),
	skew time.Duration) *certificates.Job {
	t.Helper()
	id := hostIdentity
	id.Rank = rank
	if change != nil {
		change(&id)
	}
	c, err := certificates.New(id, func() time.Time { return time.Now().Add(skew) })
	require.NoError(t, err)
	return c
}

// encrypted begins TLS as a peer with certificates of its own.
func (r *raw) encrypted(c *certificates.Job) *raw {
	r.t.Helper()
	require.NoError(r.t, r.encrypt(c, 0))
	return r
}

// Whoever is no rank of this job, or not the one that he says, is turned away, and the next genuine peer
// finds an open door.
func TestTLS_UnauthenticatedIsTurnedAway(t *testing.T) {
	week := 7 * 24 * time.Hour
	hand := func(r *raw, conf *tls.Config) string {
		c := tls.Client(r.Conn, conf)
		_, err := io.ReadAll(c)
		require.Error(r.t, err)
		return err.Error()
	}
	other := func(id *transport.Identity) { id.Secret[0] ^= 1 }
	for name, test := range map[string]struct {
		does  func(t *testing.T, r *raw) string // what the caller hears
		cause error
		text  string // what the acceptor is told
		heard string
	}{
		"plain": {func(t *testing.T, r *raw) string { r.sayHello(); return r.last() }, transport.ErrRefused,
			"the peer does not encrypt, and here connections are encrypted: WEFT_TLS must be the same for all ranks",
			"0: connections are encrypted here, and yours is not: WEFT_TLS must be the same for all ranks"},
		"garbage": {func(t *testing.T, r *raw) string {
			r.say(bytes.Repeat([]byte{0xfe},
				99))
			return r.last()
		}, transport.ErrNotWeft,
			`begins with "\xfe\xfe`, ""},
		"garbage in a record": {func(t *testing.T, r *raw) string {
			r.say(append([]byte{22, 3, 1, 0, 50}, bytes.Repeat([]byte{0xfe}, 50)...))
			r.Close()
			return ""
		}, transport.ErrNotWeft, "", ""},
		"no certificate": {func(t *testing.T, r *raw) string {
			return hand(r, &tls.Config{InsecureSkipVerify: true,
				ServerName: certificatesOf(t, 1, nil, 0).Name(0)})
		}, transport.ErrNotWeft, "client didn't provide a certificate", "certificate required"},
		"no name": {func(t *testing.T, r *raw) string {
			return hand(r,
				&tls.Config{InsecureSkipVerify: true})
		},
			transport.ErrRefused, `asks for "", which is not this rank of this job`, "internal error"},
		"another job's name": {func(t *testing.T, r *raw) string {
			c := certificatesOf(t, 1, func(id *transport.Identity) { id.Job = "another" }, 0)
			return r.encrypt(c, 0).Error()
		}, transport.ErrRefused, "which is not this rank of this job", "it may belong to another job"},
		"another rank's name": {func(t *testing.T, r *raw) string {
			return r.encrypt(certificatesOf(t, 1,
				nil, 0), 2).Error()
		},
			transport.ErrRefused, `asks for "2.`, "it may belong to another job"},
		"TLS 1.2": {func(t *testing.T, r *raw) string {
			conf := certificatesOf(t, 1, nil, 0).Initiator(0)
			conf.MinVersion, conf.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			return hand(r, conf)
		}, transport.ErrNotWeft, "unsupported versions", "protocol version"},
		"another authority with the same name": {func(t *testing.T, r *raw) string {
			conf := certificatesOf(t, 1, other, 0).Initiator(0)
			conf.InsecureSkipVerify = true
			return hand(r, conf)
		}, transport.ErrAuth, "unknown authority", "unknown certificate authority"},
		"certificate of long ago": {func(t *testing.T, r *raw) string {
			conf := certificatesOf(t, 1, nil, -week-time.Hour).Initiator(0)
			conf.Time = time.Now
			return hand(r, conf)
		}, transport.ErrAuth, "the clocks of the two hosts differ by days", "expired certificate"},
		"certificate of a time to come": {func(t *testing.T, r *raw) string {
			conf := certificatesOf(t, 1, nil, 25*time.Hour).Initiator(0)
			conf.Time = time.Now
			return hand(r, conf)
		}, transport.ErrAuth, "the clocks of the two hosts differ by days", "expired certificate"},
		"certificate of another rank": {func(t *testing.T, r *raw) string {
			r.encrypted(certificatesOf(t, 2, nil, 0)).sayHello()
			return r.last()
		}, transport.ErrAuth, "the peer says that it is rank 1, and its certificate says rank 2",
			"2: your certificate is of rank 2"},
		"certificate of our own rank": {func(t *testing.T, r *raw) string {
			r.Initiator = 0
			r.encrypted(certificatesOf(t, 0, nil, 0)).sayHello()
			return r.last()
		}, transport.ErrRefused, "the peer says that it is rank 0 and asks for rank 0", "3: this is rank 0 of 4"},
		"certificate of the authority itself": {func(t *testing.T, r *raw) string {
			c := certificatesOf(t, 1, nil, 0)
			conf := c.Initiator(0)
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &tls.Certificate{Certificate: [][]byte{c.Root.Raw}, PrivateKey: c.Key}, nil
			}
			return hand(r, conf)
		}, transport.ErrAuth, "which is not a rank of the job", "bad certificate"},
		"right certificate, wrong secret": {func(t *testing.T, r *raw) string {
			r.encrypted(certificatesOf(t, 1, nil, 0)).sayHello()
			r.hearChallenge()
			r.say(r.AppendProof(nil, &[32]byte{7}))
			return r.last()
		}, transport.ErrAuth, "", "2: peer does not know the job's secret"},
		"gone in the handshake": {func(t *testing.T, r *raw) string {
			r.say([]byte{22, 3, 1})
			r.Close()
			return ""
		}, transport.ErrPeerLost, "during the handshake", ""},
		"endless ClientHello": {func(t *testing.T, r *raw) string {
			conf := certificatesOf(t, 1, nil, 0).Initiator(0)
			for range 200 {
				conf.NextProtos = append(conf.NextProtos, strings.Repeat("x", 200))
			}
			tls.Client(r.Conn, conf).Handshake()
			return ""
		}, transport.ErrNotWeft, "handshake is longer than 16384 bytes", ""},
	} {
		t.Run(name, func(t *testing.T) {
			leaksNone(t, func(t *testing.T) {
				h := newHost(t, Options{TLS: true})
				r := h.dial(1)
				r.t = t
				heard := test.does(t, r)
				refused := h.nextRefusal()
				require.ErrorIs(t, refused.err, test.cause)
				require.ErrorContains(t, refused.err, test.text)
				require.Contains(t, heard, test.heard)
				require.Empty(t, h.made)

				for _, skew := range []time.Duration{0, -6 * 24 * time.Hour, 23 * time.Hour} {
					r = h.dial(1)
					leaf, err := certificatesOf(t, 1, nil, skew).Leaf()
					require.NoError(t, err)
					r.encryptedWith(certificatesOf(t, 1, nil, 0), leaf).connect()
					m := h.nextMade()
					require.Equal(t, "raw", m.private)
					m.qp.Release()
				}
				require.Empty(t, h.refused)
			})
		})
	}
}

// encryptedWith begins TLS with a certificate of another time.
func (r *raw) encryptedWith(c *certificates.Job, leaf *tls.Certificate) *raw {
	r.t.Helper()
	s := link.NewSession(r.Conn)
	conf := c.Initiator(0)
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return leaf,
			nil
	}
	s.TLS = tls.Client(s.Records(), conf)
	require.NoError(r.t, s.TLS.Handshake())
	r.Conn, r.session = s.TLS, s
	return r
}

// The initiator wants the rank that it has called, of its own job, and TLS.
func TestTLS_ResponderIsChecked(t *testing.T) {
	serve := func(c *certificates.Job, change func(conf *tls.Config)) func(conn net.Conn) {
		return func(conn net.Conn) {
			conf := c.Responder()
			if change != nil {
				change(conf)
			}
			s := tls.Server(conn, conf)
			s.Handshake()
			io.Copy(io.Discard, s)
		}
	}
	for name, test := range map[string]struct {
		serves func(conn net.Conn)
		cause  error
		text   string
	}{
		"another rank": {serve(certificatesOf(t, 2, nil, 0), nil), transport.ErrRefused, `certificate names ["2.`},
		"another secret": {serve(certificatesOf(t, 1, func(id *transport.Identity) { id.Secret[5] = 9 }, 0),
			nil), transport.ErrAuth,
			"unknown authority"},
		"another job": {serve(certificatesOf(t, 1, func(id *transport.Identity) { id.Job = "another" }, 0),
			nil), transport.ErrRefused,
			`certificate names ["1.`},
		"long ago": {serve(certificatesOf(t, 1, nil, -8*24*time.Hour), nil), transport.ErrAuth,
			"the clocks of the two hosts differ by days"},
		"TLS 1.2": {serve(certificatesOf(t, 1, nil, 0), func(conf *tls.Config) {
			conf.MinVersion, conf.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		}), transport.ErrRefused, "protocol version"},
		"not of WEFT_TLS": {func(conn net.Conn) {
			h := setup.New(&setup.Local{ID: hostIdentity}, conn)
			_, _, err := h.Prove(func(uint32, uint16) bool { return true }, func() {})
			require.ErrorContains(t, err, "WEFT_TLS must be the same for all ranks")
			io.Copy(io.Discard, conn)
		}, transport.ErrRefused,
			"the peer does not encrypt, and here connections are encrypted: WEFT_TLS must be the same for all ranks"},
		"something else": {func(conn net.Conn) {
			conn.Write([]byte("220 ready\r\n"))
			io.Copy(io.Discard,
				conn)
		}, transport.ErrNotWeft,
			`begins with "220 r", which is not TLS`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Options{TLS: true})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			var served sync.WaitGroup
			served.Go(func() {
				conn, err := l.Accept()
				if err == nil {
					defer conn.Close()
					test.serves(conn)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err = h.ep.Connect(ctx, 1, "tcp:"+l.Addr().String())
			require.ErrorIs(t, err, test.cause)
			require.ErrorContains(t, err, test.text)
			require.ErrorContains(t, err, "connecting to rank 1 at "+l.Addr().String())
			l.Close()
			served.Wait()
			require.Empty(t, h.made)
		})
	}
}

// interrupted is a connection that says something else in the place of what is written the second time, and
// ends.
type interrupted struct {
	net.Conn
	with   []byte
	writes int
}

func (c *interrupted) Write(b []byte) (int, error) {
	if c.writes++; c.writes > 1 {
		c.Conn.Write(c.with)
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// A rank that has no time for a handshake says that it is busy outside of TLS, before its ServerHello or
// after it, or says nothing and ends the connection: the call is made again.
func TestTLS_TriesAgainWhenTurnedDown(t *testing.T) {
	busy := message.AppendReject(nil, handshake.RejectBusy, "try again")
	hello := func(conn net.Conn) { io.ReadAtLeast(conn, make([]byte, 4096), 500) }
	leaksNone(t, func(t *testing.T) {
		h, peer := newHost(t, Options{TLS: true}), newHostOfRank(t, Options{TLS: true}, 1)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
		var wg sync.WaitGroup
		wg.Go(func() {
			for i, does := range []func(conn net.Conn){
				func(conn net.Conn) { hello(conn); conn.Write(busy) },
				func(conn net.Conn) { conn.Write(busy) },
				func(conn net.Conn) {
					tls.Server(&interrupted{Conn: conn, with: busy},
						peer.dev.end.local.Certificates.Responder()).Handshake()
				},
				func(conn net.Conn) {
					tls.Server(&interrupted{Conn: conn},
						peer.dev.end.local.Certificates.Responder()).Handshake()
				},
				func(conn net.Conn) { hello(conn) },
				func(conn net.Conn) {},
			} {
				conn, err := l.Accept()
				if err != nil {
					t.Errorf("call %d: %v", i, err)
					return
				}
				does(conn)
				conn.Close()
			}
			from, err1 := l.Accept()
			to, err2 := net.Dial("tcp", strings.TrimPrefix(peer.ep.Addr(), "tcp:"))
			if err := errors.Join(err1, err2); err != nil {
				t.Error(err)
				return
			}
			// not by the kernel, whose pipes stay
			wg.Go(func() { io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from}); to.Close() })
			io.Copy(struct{ io.Writer }{from}, struct{ io.Reader }{to})
			from.Close()
		})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		require.NoError(t, h.ep.Connect(ctx, 1, "tcp:"+l.Addr().String()))
		h.nextMade().qp.Release()
		peer.nextMade().qp.Release()
		l.Close()
		wg.Wait()
	})
}

// A ClientHello of this job counts as a rank's first word, as Hello does: who has sent none goes first when
// the places are taken.
func TestTLS_ClientHelloCountsAsGreeting(t *testing.T) {
	h := newHost(t, Options{TLS: true})
	r := h.dial(1)
	e := h.dev.end
	r.say(clientHello(e.local.Certificates.Name(0)))
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.admission.Pending) == 1 && e.admission.Pending[0].Greeted
	}, patience, time.Millisecond)
}

// A rank that encrypts and one that does not say so to each other, whoever calls.
func TestTLS_OneEndOnly(t *testing.T) {
	for _, calls := range []bool{true, false} {
		a, b := newHost(t, Options{TLS: calls}), newHostOfRank(t, Options{TLS: !calls}, 1)
		require.ErrorContains(t, a.ep.Connect(t.Context(), 1, b.ep.Addr()),
			"WEFT_TLS must be the same for all ranks")
		require.ErrorContains(t, b.nextRefusal().err, "WEFT_TLS must be the same for all ranks")
		require.Empty(t, a.made)
		require.Empty(t, b.made)
	}
}

// A caller who does not get on with his handshake is cut when his time is over.
func TestTLS_SlowIsCut(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{TLS: true, AuthTimeout: 20 * time.Millisecond})
		for _, said := range []string{"", "\x16", "\x16\x03\x01\x02\x00\x01"} {
			r := h.dial(1)
			r.say([]byte(said))
			require.ErrorIs(t, h.nextRefusal().err, transport.ErrPeerLost)
			require.Empty(t, r.last())
		}
	})
}

// tap is a proxy that keeps, and may change, what the initiator and the responder say.
type tap struct {
	mu    sync.Mutex
	heard [2][]byte
	alter func(way int, at int, b []byte) // bytes that begin at an offset of a direction
	l     net.Listener
	wg    sync.WaitGroup
}

// newTap makes a proxy for one connection, which lives as long as the connection does.
func newTap(t *testing.T) *tap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &tap{l: l}
	t.Cleanup(func() { l.Close(); p.wg.Wait() })
	return p
}

// via puts the tap in front of an address.
func (p *tap) via(addr string) string {
	p.wg.Go(func() {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", strings.TrimPrefix(addr, "tcp:"))
		if err != nil {
			in.Close()
			return
		}
		p.wg.Go(func() { p.copy(0, out, in) })
		p.copy(1, in, out)
	})
	return "tcp:" + p.l.Addr().String()
}

func (p *tap) copy(way int, to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		if n > 0 && p.alter != nil {
			p.alter(way, len(p.heard[way]), b[:n])
		}
		p.heard[way] = append(p.heard[way], b[:n]...)
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Of what ranks say to each other in a connection that is encrypted, nothing can be read on the way: not what
// is written, not the keys of regions, not a message of handshake. Without TLS all of it can, which shows that
// the tap works.
func TestTLS_NothingCanBeReadOnTheWay(t *testing.T) {
	bothWays(t, func(t *testing.T, o Options) {
		p := newTap(t)
		ends := newCouple(t, o, 40_000, p.via)
		pattern := []byte("what one rank says to another")
		for i := range ends {
			for b := ends[i].out.Bytes(); len(b) > len(pattern)+8; b = b[len(pattern):] {
				copy(b, pattern)
			}
		}
		for range 3 {
			ends[0].writes(t, ends[1])
			ends[1].awaits(t, ends[0])
			ends[1].writes(t, ends[0])
			ends[0].awaits(t, ends[1])
		}
		require.Equal(t, pattern, ends[1].in.Bytes()[:len(pattern)])
		p.mu.Lock()
		defer p.mu.Unlock()
		for way := range p.heard {
			require.Greater(t, len(p.heard[way]), 120_000)
			for what, secret := range map[string][]byte{
				"the pattern":      pattern,
				"a part of it":     pattern[:9],
				"a region's key":   le64(uint64(ends[1-way].in.Key())),
				"the job's secret": testSecret[:16],
			} {
				require.Equal(t, !o.TLS && what != "the job's secret", bytes.Contains(p.heard[way], secret),
					what)
			}
		}
		require.Equal(t, !o.TLS, bytes.Contains(p.heard[0], []byte(message.Magic)))
	})
}

// A bit that changes on the way ends the connection, and nothing of its record is placed.
func TestTLS_ChangedOnTheWay(t *testing.T) {
	struck := false
	p := newTap(t)
	ends := newCouple(t, Options{TLS: true}, 4096, p.via)
	ends[0].writes(t, ends[1])
	ends[1].awaits(t, ends[0])
	clear(ends[1].in.Bytes())
	for i := range ends[0].out.Bytes() {
		ends[0].out.Bytes()[i] = 0xa5
	}
	p.mu.Lock()
	from := len(p.heard[0]) + 1000
	p.alter = func(way, at int, b []byte) {
		if i := from - at; way == 0 && i >= 0 && i < len(b) {
			b[i] ^= 1
			struck = true
		}
	}
	p.mu.Unlock()
	ends[0].writes(t, ends[1])
	drive(t, ends, "the end", func() bool { return ends[1].to.State() == transport.StateError })
	require.ErrorIs(t, ends[1].to.Err(), transport.ErrProtocol)
	require.ErrorContains(t, ends[1].to.Err(), "bad record MAC")
	require.ErrorContains(t, ends[1].to.Err(), "rank 0 at")
	drive(t, ends, "the other end", func() bool { return ends[0].to.State() == transport.StateError })
	require.Equal(t, make([]byte, 4096), ends[1].in.Bytes())
	p.mu.Lock()
	defer p.mu.Unlock()
	require.True(t, struck)
}

// However many records one read of the socket brings: what crypto/tls holds when a pass ends is no whole
// record, since no poller would tell of it.
func TestTLS_APassLeavesNothingBehind(t *testing.T) {
	h := newHost(t, Options{TLS: true})
	target, err := h.pd.Alloc(8, transport.RemoteWrite)
	require.NoError(t, err)
	r := h.dial(1).encrypted(certificatesOf(t, 1, nil, 0))
	r.connect()
	m := h.nextMade()
	socket := r.session.Conn
	burst := &gather{Conn: socket}
	r.session.Conn = burst
	r.sayFrame(frame.Header{Op: frame.Ready, Flags: frame.Last}, nil)
	const records = 20 * readsAPass
	for i := range byte(records) {
		r.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(target.Key())},
			[]byte{i, i, i, i, i, i, i, i})
	}
	_, err = socket.Write(burst.b)
	require.NoError(t, err)
	q := m.qp.(*qp)
	h.until("the queue pair", func() bool { return len(h.cq.(*cq).qps) == 1 })
	passes := 0
	for ; target.Bytes()[0] != records-1 && q.open; passes++ {
		q.drive()
		_, n, err := firstLink(q).link.Read(nil, make([]byte, 1), true)
		require.NoError(t, err)
		require.Equal(t, -1, n, "what came is left in the session, after pass %d at Write %d", passes,
			target.Bytes()[0])
	}
	require.NoError(t, q.Err())
	require.Greater(t, passes, 1, "all has come in one turn")
	m.qp.Release()
}

// gather keeps what is written.
type gather struct {
	net.Conn
	b []byte
}

func (g *gather) Write(b []byte) (int, error) { g.b = append(g.b, b...); return len(b), nil }

// A socket that has no room holds the sender back, with bounded memory; then everything arrives, and the
// close after it.
func TestTLS_FullSocket(t *testing.T) {
	const size, writes = 300_000, 60
	ends := newCouple(t, Options{TLS: true}, size, nil)
	q := ends[0].to.(*qp)
	for range writes {
		ends[0].writes(t, ends[1])
	}
	for i := 0; i < 10 && !q.blocked; i++ {
		ends[0].poll()
	}
	require.True(t, q.blocked, "the socket has taken everything")
	require.Less(t, firstLink(q).link.Pending(), 2*frame.MaxPayload)
	require.Positive(t, q.SQ.Len())
	q.Close()
	drive(t, ends, "the peer's close", func() bool { return ends[1].to.State() == transport.StateDraining })
	in := ends[1].in.Bytes()
	require.Equal(t, uint64(writes), binary.LittleEndian.Uint64(in[size-8:]))
	require.Zero(t, q.SQ.Len())
	ends[1].to.Close()
	endsInOrder(t, ends)
}

// A frame counts as sent when the socket has it, not when it is encrypted: a connection is not closed over
// the last one.
func TestTLS_C3_CloseWaitsForRoom(t *testing.T) {
	ends := newCouple(t, Options{TLS: true}, 64, nil)
	q := ends[0].to.(*qp)
	ends[1].to.Close()
	drive(t, ends, "the peer's close", func() bool { return q.State() == transport.StateDraining })
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	for err == nil {
		_, err = syscall.Write(fds[0], make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.EAGAIN)
	fd := firstLink(q).fd
	socket, err := syscall.Dup(fd)
	require.NoError(t, err)
	require.NoError(t, syscall.Dup3(fds[0], fd, 0)) // a socket that has no room
	q.Close()
	require.True(t, q.at.ended && firstLink(q).link.Pending() > 0, "the Close frame is not encrypted")
	require.True(t, q.CloseDue())
	require.Equal(t, transport.StateClosing, q.State())
	require.NoError(t, syscall.Dup3(socket, fd, 0))
	require.NoError(t, syscall.Close(socket))
	require.NoError(t, errors.Join(syscall.Close(fds[0]), syscall.Close(fds[1])))
	endsInOrder(t, ends)
}

// endsInOrder drives two sides that have both asked for the close.
func endsInOrder(t *testing.T, ends [2]*side) {
	t.Helper()
	drive(t, ends, "the end of both", func() bool {
		return ends[0].to.State() >= transport.StateClosed && ends[1].to.State() >= transport.StateClosed
	})
	for _, s := range ends {
		require.Equal(t, transport.StateClosed, s.to.State())
		require.ErrorIs(t, s.to.Err(), transport.ErrClosed)
	}
}

// What comes in one record with the end of the handshake is in the session before the queue pair is driven, also
// where a pass looks only at sockets that have something.
func TestTLS_C2_FramesRightAfterHandshakeOfManyPeers(t *testing.T) {
	size := hostIdentity.Size
	hostIdentity.Size = 2*readDirectly + 1
	t.Cleanup(func() { hostIdentity.Size = size })
	h := newHost(t, Options{TLS: true})
	target, err := h.pd.Alloc(int(hostIdentity.Size), transport.RemoteWrite)
	require.NoError(t, err)
	for rank := uint32(1); rank < hostIdentity.Size; rank++ {
		r := h.dial(rank).encrypted(certificatesOf(t, rank, nil, 0))
		r.sayHello()
		r.hearChallenge()
		r.say(slices.Concat(r.request(), frame.Header{Op: frame.Ready, Flags: frame.Last}.Append(nil),
			frame.Header{Length: 1, Op: frame.Write, Flags: frame.Last, A: uint64(target.Key()),
				B: uint64(rank)}.Append(nil), []byte{byte(rank)}))
		h.nextMade()
	}
	h.until("every rank's Write", func() bool { return !slices.Contains(target.Bytes()[1:], 0) })
	require.Len(t, h.cq.(*cq).qps, 2*readDirectly)
}

// No session is resumed, though the initiator would: each connection shows its certificates.
func TestTLS_SessionsAreNotResumed(t *testing.T) {
	h := newHost(t, Options{TLS: true})
	conf := certificatesOf(t, 1, nil, 0).Initiator(0)
	tickets := &ticketBox{}
	conf.ClientSessionCache = tickets
	for range 3 {
		r := h.dial(1)
		c := tls.Client(r.Conn, conf)
		require.NoError(t, c.Handshake())
		require.False(t, c.ConnectionState().DidResume)
		r.Conn = c
		r.connect() // a ticket would have come by now
		h.nextMade().qp.Release()
	}
	require.Zero(t, tickets.n)
}

// ticketBox counts the tickets that a client is given.
type ticketBox struct{ n int }

func (b *ticketBox) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (b *ticketBox) Put(_ string, s *tls.ClientSessionState) {
	if s != nil {
		b.n++
	}
}
