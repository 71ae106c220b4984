package tcp

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// streams is a connection that an application has made, both ends of it.
func streams(t testing.TB) (began, accepted net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	began, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { began.Close() })
	accepted, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { accepted.Close() })
	return began, accepted
}

// transfers begins the transfer of a host's end of a stream.
func (h *host) transfers(ctx context.Context, conn net.Conn, ahead []byte, role transport.Role,
	rank uint32) <-chan error {
	result := make(chan error, 1)
	ctx, cancel := context.WithTimeout(ctx, patience)
	go func() {
		defer cancel()
		result <- h.ep.Transfer(ctx, conn, ahead, role, rank)
	}()
	return result
}

// peers has a host transfer one end of a stream, and gives the other to a raw peer of rank 1.
func (h *host) peers(role transport.Role, ahead []byte) (*raw, net.Conn, <-chan error) {
	h.t.Helper()
	ours, theirs := streams(h.t)
	p := testParties()
	p.Initiator, p.Responder = 1, h.dev.end.local.ID.Rank
	return newRaw(h.t, theirs, p), ours, h.transfers(h.t.Context(), ours, ahead, role, 1)
}

// talk sends a message each way over a connection, and ends it.
func talk(t *testing.T, a, b *host, first, second made) {
	t.Helper()
	for _, way := range [][2]*host{{a, b}, {b, a}} {
		from, to := first.qp, second.qp
		if way[0] == b {
			from, to = to, from
		}
		way[1].wcs = nil
		require.NoError(t, to.PostRecv(&transport.RecvWR{ID: 7,
			Local: []transport.SGE{{MR: way[1].mr, Length: recvSize}}}))
		copy(way[0].mr.Bytes(), "hello")
		clear(way[1].mr.Bytes())
		require.NoError(t, from.PostSend(&transport.SendWR{Op: transport.OpSend,
			Local: []transport.SGE{{MR: way[0].mr, Length: 5}}}))
		way[1].until("the message", func() bool {
			var none [16]transport.WC
			way[0].cq.Poll(none[:])
			return len(way[1].wcs) == 1
		})
		require.Equal(t, transport.StatusSuccess, way[1].wcs[0].Status)
		require.Equal(t, "hello", string(way[1].mr.Bytes()[:5]))
	}
	first.qp.Release()
	second.qp.Release()
}

func bothWays(t *testing.T, test func(t *testing.T, o Options)) {
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", encrypted), func(t *testing.T) { test(t, Options{TLS: encrypted}) })
	}
}

// However much of the peer's handshake the application has read already: it is taken from there, and the rest
// from the socket.
func TestTransfer_C2_EverySplitOfTheReadAhead(t *testing.T) {
	bothWays(t, func(t *testing.T, o Options) {
		leaksNone(t, func(t *testing.T) {
			a, b := newHost(t, o), newHostOfRank(t, o, 1)
			limit, step := message.HelloSize, 1
			if o.TLS {
				limit, step = 1400, 61 // of the ClientHello
			}
			for n := 0; n <= limit; n += step {
				ours, theirs := streams(t)
				initiator := a.transfers(t.Context(), ours, nil, transport.Initiator, 1)
				ahead := make([]byte, n)
				_, err := io.ReadFull(theirs, ahead)
				require.NoError(t, err)
				responder := b.transfers(t.Context(), theirs, ahead, transport.Responder, 0)
				require.NoError(t, <-initiator, "%d bytes ahead", n)
				require.NoError(t, <-responder, "%d bytes ahead", n)
				_, err = ours.Write([]byte("x"))
				require.ErrorIs(t, err, net.ErrClosed, "the application can still write to the connection")
				talk(t, a, b, a.nextMade(), b.nextMade())
			}
			require.Empty(t, a.refused)
			require.Empty(t, b.refused)
		})
	})
}

// What the application has read and is none of handshake ends the transfer, and both sides get to know it.
func TestTransfer_C2_BytesThatDoNotBelong(t *testing.T) {
	bothWays(t, func(t *testing.T, o Options) {
		leaksNone(t, func(t *testing.T) {
			a, b := newHost(t, o), newHostOfRank(t, o, 1)
			for _, garbage := range []string{"the end of the application's", "w",
				strings.Repeat("more than a Hello has", 100)} {
				ours, theirs := streams(t)
				initiator := a.transfers(t.Context(), ours, nil, transport.Initiator, 1)
				responder := b.transfers(t.Context(), theirs, []byte(garbage), transport.Responder, 0)
				err := <-responder
				require.ErrorIs(t, err, transport.ErrNotWeft, "%.20s", garbage)
				require.ErrorContains(t, err, fmt.Sprintf("%q", garbage[:1])[:2], "%.20s", garbage)
				require.ErrorContains(t, err, "with rank 0", "%.20s", garbage)
				err = <-initiator
				require.ErrorIs(t, err, transport.ErrRefused, "%.20s", garbage)
				require.ErrorContains(t, err, "the peer says ", "%.20s", garbage)
				require.ErrorContains(t, err, "with rank 1", "%.20s", garbage)
			}
			// For the initiator nothing can have come.
			ours, theirs := streams(t)
			initiator := a.transfers(t.Context(), ours, []byte("left over"), transport.Initiator, 1)
			responder := b.transfers(t.Context(), theirs, nil, transport.Responder, 0)
			err := <-initiator
			require.ErrorIs(t, err, transport.ErrNotWeft)
			require.ErrorContains(t, err, `9 bytes before the handshake belong to the application: "left over"`)
			err = <-responder
			require.ErrorIs(t, err, transport.ErrRefused)
			require.ErrorContains(t, err, "9 bytes before the handshake belong to the application")
			require.Empty(t, a.made)
			require.Empty(t, b.made)
		})
	})
}

// Bytes after a Hello that was read ahead would have to answer a nonce that had not been drawn yet.
func TestTransfer_C2_MoreThanHelloAhead(t *testing.T) {
	h := newHost(t, Options{})
	p := testParties()
	p.Initiator, p.Responder = 1, 0
	for name, after := range map[string][]byte{
		"garbage":   []byte("garbage"),
		"a Request": p.AppendRequest(nil, &testSecret, testParameters, nil),
		"a frame":   frame.Header{Op: frame.Ready, Flags: frame.Last}.Append(nil),
	} {
		r, _, result := h.peers(transport.Responder, slices.Concat(p.AppendHello(nil), after))
		r.hearChallenge()
		require.NotEmpty(t, r.last(), name)
		require.Error(t, <-result, name)
	}
	require.Empty(t, h.made)
}

// Frames right after the handshake are RDMA mode's, on an application's stream as well.
func TestTransfer_C2_FramesRightAfterHandshake(t *testing.T) {
	h := newHost(t, Options{})
	target, err := h.pd.Alloc(8, transport.RemoteWrite)
	require.NoError(t, err)
	r, _, result := h.peers(transport.Responder, nil)
	r.sayHello()
	r.hearChallenge()
	r.say(slices.Concat(r.request(), frame.Header{Op: frame.Ready, Flags: frame.Last}.Append(nil),
		frame.Header{Length: 8, Op: frame.Write, Flags: frame.Last, A: uint64(target.Key())}.Append(nil),
		[]byte("in place")))
	require.NoError(t, <-result)
	m := h.nextMade()
	h.until("the Write", func() bool { return string(target.Bytes()) == "in place" })
	m.qp.Release()
}

// A peer that vanishes in any state of the change of mode.
func TestTransfer_C5_PeerVanishes(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{})
		for name, does := range map[string]func(r *raw){
			"before Hello":    func(r *raw) {},
			"in Hello":        func(r *raw) { r.say(r.AppendHello(nil)[:40]) },
			"after Hello":     func(r *raw) { r.sayHello() },
			"after Challenge": func(r *raw) { r.sayHello(); r.hearChallenge() },
			"in Request":      func(r *raw) { r.sayHello(); r.hearChallenge(); r.say(r.request()[:20]) },
		} {
			r, _, result := h.peers(transport.Responder, nil)
			does(r)
			require.NoError(t, r.Close())
			err := <-result
			require.ErrorIs(t, err, transport.ErrPeerLost, name)
			require.ErrorContains(t, err,
				"transferring the connection with rank 1: at "+r.LocalAddr().String(), name)
		}
		for name, does := range map[string]func(r *raw){
			"before Hello":    func(r *raw) {},
			"after Hello":     func(r *raw) { r.hearHello() },
			"in Challenge":    func(r *raw) { r.hearHello(); r.say(r.AppendChallenge(nil, &testSecret)[:9]) },
			"after Challenge": func(r *raw) { r.challenges() },
			"after Request":   func(r *raw) { r.challenges(); r.hearRequest() },
			"in Accept": func(r *raw) {
				r.challenges()
				r.hearRequest()
				r.say(r.AppendAccept(nil, &testSecret, testParameters, nil)[:5])
			},
		} {
			r, _, result := h.peers(transport.Initiator, nil)
			does(r)
			require.NoError(t, r.Close())
			err := <-result
			require.ErrorIs(t, err, transport.ErrPeerLost, name)
			require.ErrorContains(t, err,
				"transferring the connection with rank 1: at "+r.LocalAddr().String(), name)
		}
		require.Empty(t, h.made)
		for name, does := range map[string]func() (*raw, <-chan error){
			"initiator after Accept": func() (*raw, <-chan error) {
				r, _, result := h.peers(transport.Initiator, nil)
				r.challenges()
				r.hearRequest()
				r.say(r.AppendAccept(nil, &testSecret, testParameters, nil))
				return r, result
			},
			"responder after Accept": func() (*raw, <-chan error) {
				r, _, result := h.peers(transport.Responder, nil)
				r.connect()
				return r, result
			},
		} {
			r, result := does()
			require.NoError(t, r.Close())
			require.NoError(t, <-result, name)
			h.endsAlone(h.nextMade(), transport.ErrPeerLost, "rank 1 at "+r.LocalAddr().String(), name)
		}
		require.Empty(t, h.refused, "a transfer tells its caller")
	})
}

// A transfer that is given up, or whose endpoint is closed, in any state of it: the connection is closed, and
// the error says why.
func TestTransfer_C5_GivenUp(t *testing.T) {
	for name, end := range map[string]struct {
		does  func(h *host, cancel func())
		cause error
	}{
		"context":  {func(_ *host, cancel func()) { cancel() }, context.Canceled},
		"endpoint": {func(h *host, _ func()) { h.ep.Close() }, transport.ErrDeviceGone},
	} {
		t.Run(name, func(t *testing.T) {
			leaksNone(t, func(t *testing.T) {
				for role, all := range map[transport.Role]map[string]func(r *raw){
					transport.Responder: {
						"before Hello":    func(r *raw) {},
						"in Hello":        func(r *raw) { r.say(r.AppendHello(nil)[:40]) },
						"after Challenge": func(r *raw) { r.sayHello(); r.hearChallenge() },
					},
					transport.Initiator: {
						"after Hello":   func(r *raw) { r.hearHello() },
						"after Request": func(r *raw) { r.challenges(); r.hearRequest() },
					},
				} {
					for when, does := range all {
						h := newHost(t, Options{})
						ours, theirs := streams(t)
						p := testParties()
						p.Initiator, p.Responder = 1, 0
						r := newRaw(t, theirs, p)
						ctx, cancel := context.WithCancel(t.Context())
						result := h.transfers(ctx, ours, nil, role, 1)
						does(r)
						end.does(h, cancel)
						require.ErrorIs(t, <-result, end.cause, when)
						require.Empty(t, r.last(), when)
						cancel()
						require.NoError(t, h.dev.Close())
					}
				}
			})
		})
	}
}

// What cannot be transferred is refused at the call, and closed.
func TestTransfer_C2_RefusedAtTheCall(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		socket := func(t *testing.T) net.Conn { c, _ := streams(t); return c }
		for name, test := range map[string]struct {
			conn  func(t *testing.T) net.Conn
			ctx   context.Context
			role  transport.Role
			rank  uint32
			cause error
			text  string
		}{
			"pipe": {func(t *testing.T) net.Conn { c, _ := net.Pipe(); return c }, t.Context(),
				transport.Initiator, 1,
				transport.ErrInvalid, "a *net.pipe is not a socket"},
			"the application's own TLS": {func(t *testing.T) net.Conn { return tls.Client(socket(t), nil) },
				t.Context(),
				transport.Initiator, 1, transport.ErrInvalid, "a *tls.Conn is not a socket"},
			"datagrams": {func(t *testing.T) net.Conn {
				c, err := net.Dial("udp", "127.0.0.1:9")
				require.NoError(t, err)
				return c
			}, t.Context(), transport.Initiator, 1, transport.ErrInvalid, `a socket of the kind "udp"`},
			"closed already": {func(t *testing.T) net.Conn { c := socket(t); c.Close(); return c },
				t.Context(),
				transport.Initiator, 1, transport.ErrInvalid, "use of closed network connection"},
			"no role": {socket, t.Context(), 0, 1, transport.ErrInvalid, "role 0"},
			"ourselves": {socket, t.Context(), transport.Responder, 0, transport.ErrInvalid,
				"this is rank 0 of 4"},
			"nobody": {socket, t.Context(), transport.Responder, 4, transport.ErrInvalid,
				"this is rank 0 of 4"},
			"cancelled context": {socket, ended, transport.Initiator, 1, context.Canceled, "with rank 1"},
		} {
			conn := test.conn(t)
			err := <-h.transfers(test.ctx, conn, nil, test.role, test.rank)
			require.ErrorIs(t, err, test.cause, name)
			require.ErrorContains(t, err, test.text, name)
			_, err = conn.Read(make([]byte, 1))
			require.Error(t, err, "%s: it is open", name)
		}
		require.ErrorIs(t, <-h.transfers(t.Context(), nil, nil, transport.Initiator, 1), transport.ErrInvalid)
		require.NoError(t, h.ep.Close())
		conn := socket(t)
		require.ErrorIs(t, <-h.transfers(t.Context(), conn, nil, transport.Initiator, 1),
			transport.ErrDeviceGone)
		_, err := conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

// A responder takes the rank that it is told, and no other one of the job.
func TestTransfer_C2_AnotherRankThanExpected(t *testing.T) {
	bothWays(t, func(t *testing.T, o Options) {
		a, b := newHostOfRank(t, o, 2), newHost(t, o)
		ours, theirs := streams(t)
		initiator := a.transfers(t.Context(), ours, nil, transport.Initiator, 0)
		err := <-b.transfers(t.Context(), theirs, nil, transport.Responder, 1)
		require.ErrorIs(t, err, transport.ErrRefused)
		require.ErrorContains(t, err, "the peer says that it is rank 2")
		require.ErrorIs(t, <-initiator, transport.ErrRefused)
	})
}

// Between two ranks there is one connection, whoever has begun it, and how.
func TestTransfer_C2_CollisionWithConnect(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		a, b := newHost(t, Options{}), newHostOfRank(t, Options{}, 1)
		require.NoError(t, a.ep.Connect(t.Context(), 1, b.ep.Addr()))
		first, second := a.nextMade(), b.nextMade()
		ours, theirs := streams(t)
		initiator := a.transfers(t.Context(), ours, nil, transport.Initiator, 1)
		responder := b.transfers(t.Context(), theirs, nil, transport.Responder, 0)
		for _, err := range []error{<-initiator, <-responder} {
			require.Error(t, err, "beside a connection that stands")
		}
		talk(t, a, b, first, second)

		// After it there is room again.
		ours, theirs = streams(t)
		initiator = a.transfers(t.Context(), ours, nil, transport.Initiator, 1)
		responder = b.transfers(t.Context(), theirs, nil, transport.Responder, 0)
		require.NoError(t, <-initiator)
		require.NoError(t, <-responder)
		require.NoError(t, b.ep.Connect(t.Context(), 0, a.ep.Addr()), "they are connected")
		talk(t, a, b, a.nextMade(), b.nextMade())
	})
	for _, rank := range []uint32{0, 2} {
		t.Run(fmt.Sprintf("rank %d is dialing rank 1", rank), func(t *testing.T) {
			h := newHostOfRank(t, Options{}, rank)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			dialed, connect := h.calls(l, 1)
			dialed.challenges()
			dialed.hearRequest()
			_, _, result := h.peers(transport.Initiator, nil)
			require.ErrorIs(t, <-result, transport.ErrRefused, "ours is under way")
			r, _, result := h.peers(transport.Responder, nil)
			r.sayHello()
			r.hearChallenge()
			r.say(r.request())
			if rank < 1 { // that of the lower rank stays
				require.Contains(t, r.last(), "another connection")
				require.ErrorIs(t, <-result, transport.ErrRefused)
				dialed.say(dialed.AppendAccept(nil, &testSecret, testParameters, []byte("dialed")))
				require.NoError(t, <-connect)
				require.Equal(t, "dialed", h.nextMade().private)
			} else {
				require.NoError(t, <-result)
				require.Equal(t, "raw", h.nextMade().private)
				dialed.say(message.AppendReject(nil, handshake.RejectCollision, ""))
				require.NoError(t, <-connect)
			}
		})
	}
}

// A stream need not be TCP's: two processes of a machine may have a Unix socket.
func TestTransfer_C2_UnixSocket(t *testing.T) {
	bothWays(t, func(t *testing.T, o Options) {
		leaksNone(t, func(t *testing.T) {
			fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			var conns [2]net.Conn
			for i, fd := range fds {
				f := os.NewFile(uintptr(fd), "socket")
				conns[i], err = net.FileConn(f)
				require.NoError(t, err)
				f.Close()
			}
			a, b := newHost(t, o), newHostOfRank(t, o, 1)
			initiator := a.transfers(t.Context(), conns[0], nil, transport.Initiator, 1)
			responder := b.transfers(t.Context(), conns[1], nil, transport.Responder, 0)
			require.NoError(t, <-initiator)
			require.NoError(t, <-responder)
			talk(t, a, b, a.nextMade(), b.nextMade())
		})
	})
}
