package tcp

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/admission"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// Whoever is no rank of this job is turned away with the reason on both sides, and the next genuine peer
// finds an open door.
func TestUnauthenticated_IsTurnedAwayAndBothSidesKnowWhy(t *testing.T) {
	tests := []struct {
		name  string
		does  func(h *host, r *raw)
		cause error
		text  string // what the acceptor is told
		heard string // what the caller is told: the code and text of a Reject, or nothing
	}{
		{"garbage", func(h *host, r *raw) { r.say(bytes.Repeat([]byte{0xfe}, 200)) },
			transport.ErrNotWeft, `begins with "\xfe\xfe\xfe\xfe\xfe\xfe\xfe\xfe"`, ""},
		{"HTTP request", func(h *host, r *raw) { r.say([]byte("GET / HTTP/1.0\r\n\r\n")) },
			transport.ErrNotWeft, `begins with "GET / HT"`, ""},
		{"TLS hello", func(h *host, r *raw) { r.say([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")) },
			transport.ErrNotWeft,
			"which is TLS, and here connections are not encrypted: WEFT_TLS must be the same for all ranks",
			"0: connections are not encrypted here, and yours is: WEFT_TLS must be the same for all ranks"},
		{"line ends translated", func(h *host, r *raw) {
			r.say(bytes.Replace(r.AppendHello(nil),
				[]byte("\r\n"), []byte("\n"), 1))
		},
			transport.ErrNotWeft, `begins with "weft\n`, ""},
		{"magic and garbage", func(h *host, r *raw) {
			r.say(append([]byte(message.Magic),
				bytes.Repeat([]byte{0xfe}, 62)...))
		},
			transport.ErrNotWeft, "begins with", ""},
		{"Hello of another length", func(h *host, r *raw) {
			b := r.AppendHello(nil)
			b[len(message.Magic)+2]++
			r.say(b)
		}, transport.ErrNotWeft, "Hello of 59 bytes in place of Hello", ""},
		{"other version", func(h *host, r *raw) {
			b := r.AppendHello(nil)
			b[len(message.Magic)+1] = 9
			r.say(b)
		}, transport.ErrVersion, "version 9, here 6", "1: this is version 6"},
		{"other job", func(h *host, r *raw) {
			r.Job = handshake.JobHash("another")
			r.sayHello()
		}, transport.ErrRefused, "the peer belongs to another job", "0: this is another job"},
		{"wants another rank", func(h *host, r *raw) {
			r.Responder = 2
			r.sayHello()
		}, transport.ErrRefused, "the peer says that it is rank 1 and asks for rank 2", "3: this is rank 0 of 4"},
		{"rank outside", func(h *host, r *raw) {
			r.Initiator = 4
			r.sayHello()
		}, transport.ErrRefused, "the peer says that it is rank 4 and asks for rank 0", "3: this is rank 0 of 4"},
		{"our own rank", func(h *host, r *raw) {
			r.Initiator = 0
			r.sayHello()
		}, transport.ErrRefused, "the peer says that it is rank 0 and asks for rank 0", "3: this is rank 0 of 4"},
		{"lane that is not there", func(h *host, r *raw) {
			r.Lane = 1
			r.sayHello()
		}, transport.ErrRefused, "lane 1", "3: this is rank 0 of 4"},
		{"wrong secret", func(h *host, r *raw) {
			r.sayHello()
			r.hearChallenge()
			r.say(r.AppendProof(nil, &[32]byte{7}))
		}, transport.ErrAuth, "does not know the job's secret", "2: peer does not know the job's secret"},
		{"one bit of the proof", func(h *host, r *raw) {
			r.sayHello()
			r.hearChallenge()
			b := r.request()
			b[message.PrefixSize+message.ProofSize-1] ^= 0x80
			r.say(b)
		}, transport.ErrAuth, "does not know the job's secret", "2: peer does not know the job's secret"},
		{"reflection of our own proof", func(h *host, r *raw) {
			r.sayHello()
			body, err := r.expect(message.Challenge)
			require.NoError(r.t, err)
			r.say(append(message.AppendPrefix(nil, message.Proof, message.ProofSize), body[message.NonceSize:]...))
		}, transport.ErrAuth, "does not know the job's secret", "2: peer does not know the job's secret"},
		{"Request of another connection, played back", func(h *host, r *raw) {
			genuine := h.dial(3)
			genuine.connect()
			m := h.nextMade()
			r.Parties = genuine.Parties // the same Hello, nonce and all
			r.sayHello()
			body, err := r.expect(message.Challenge)
			require.NoError(r.t, err)
			require.NotEqual(r.t, genuine.Nonces[1][:], body[:message.NonceSize],
				"the responder's nonce was used before")
			r.say(genuine.request())
			m.qp.Release()
		}, transport.ErrAuth, "does not know the job's secret", "2: peer does not know the job's secret"},
		{"too long private data", func(h *host, r *raw) {
			r.sayHello()
			r.hearChallenge()
			r.say(r.AppendRequest(r.AppendProof(nil, &testSecret), &testSecret, testParameters,
				make([]byte, message.MaxPrivate+1)))
		}, transport.ErrProtocol, "Request with 513 bytes of private data",
			"0: protocol violation: Request with 513 bytes of private data"},
		{"Request longer than any message", func(h *host, r *raw) {
			r.sayHello()
			r.hearChallenge()
			r.say(message.AppendPrefix(r.AppendProof(nil, &testSecret), message.Request, message.MaxBody+1))
		}, transport.ErrNotWeft, "Request of 609 bytes",
			"0: peer does not speak weft's protocol: Request of 609 bytes"},
		{"one bit of the parameters", func(h *host, r *raw) {
			r.sayHello()
			r.hearChallenge()
			b := r.request()
			b[2*(message.PrefixSize+message.ProofSize)+6] ^= 1
			r.say(b)
		}, transport.ErrAuth, "the proof of its Request is wrong",
			"2: peer does not know the job's secret: the proof of its Request is wrong"},
		{"no lane", func(h *host, r *raw) {
			r.sayHello()
			r.hearChallenge()
			r.say(r.AppendRequest(r.AppendProof(nil, &testSecret), &testSecret, message.Parameters{Recv: 1}, nil))
		}, transport.ErrProtocol, "parameters with no lane", "0: protocol violation: parameters with no lane"},
		{"Request without a whole proof", func(h *host, r *raw) {
			r.sayHello()
			r.hearChallenge()
			r.say(append(message.AppendPrefix(r.AppendProof(nil, &testSecret), message.Request, 3), 1, 2, 3))
		}, transport.ErrProtocol, "Request of 3 bytes", "0: protocol violation: Request of 3 bytes"},
		{"Request without a Proof", func(h *host, r *raw) {
			r.sayHello()
			r.hearChallenge()
			r.say(r.AppendRequest(nil, &testSecret, testParameters, nil))
		}, transport.ErrProtocol, "Request where Proof is due",
			"0: protocol violation: Request where Proof is due"},
		{"Accept where Request is due", func(h *host, r *raw) {
			r.sayHello()
			r.hearChallenge()
			r.say(r.AppendAccept(r.AppendProof(nil, &testSecret), &testSecret, testParameters, nil))
		}, transport.ErrProtocol, "Accept where Request is due",
			"0: protocol violation: Accept where Request is due"},
		{"change of version in the middle", func(h *host, r *raw) {
			r.sayHello()
			r.hearChallenge()
			b := r.request()
			b[1] = 9
			r.say(b)
		}, transport.ErrVersion, "version 9, here 6", "1: this is version 6"},
		{"turns us down", func(h *host, r *raw) {
			r.sayHello()
			r.hearChallenge()
			r.say(message.AppendReject(nil, handshake.RejectOther, "not today"))
		}, transport.ErrRefused, `the peer says "not today"`, ""},
	}
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{})
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				r := h.dial(1)
				r.t = t
				test.does(h, r)
				refused := h.nextRefusal()
				require.ErrorIs(t, refused.err, test.cause)
				require.ErrorContains(t, refused.err, test.text)
				require.Equal(t, r.LocalAddr().String(), refused.from,
					"who has proved nothing is known by address alone")
				heard := r.last()
				if test.heard == "" {
					require.Empty(t, heard)
				}
				require.True(t, strings.HasPrefix(heard, test.heard), "the caller heard %q", heard)

				r = h.dial(1)
				r.connect()
				m := h.nextMade()
				require.Equal(t, "raw", m.private)
				require.Equal(t, uint32(1), m.rank)
				m.qp.Release()
			})
		}
		require.Empty(t, h.refused)
	})
}

// Of many unauthenticated callers a few are reported. A rank that has proved who it is always is.
func TestUnauthenticated_FewAreReported(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{reportBurst: 3})
		for range 50 {
			r := h.dial(1)
			r.say([]byte("who is there?"))
			require.Empty(t, r.last())
		}
		h.private = make([]byte, message.MaxPrivate+1) // with which no rank can be accepted
		for range 2 {
			r := h.dial(1)
			r.sayHello()
			r.hearChallenge()
			r.say(r.request())
			require.Contains(t, r.last(), "private data")
		}
		require.NoError(t, h.ep.Close())
		callers, ranks := 0, 0
		for len(h.refused) > 0 {
			if strings.HasPrefix((<-h.refused).from, "rank 1 at ") {
				ranks++
			} else {
				callers++
			}
		}
		require.Equal(t, 3, callers)
		require.Equal(t, 2, ranks)
	})
}

// A peer that vanishes is reported in every state of handshake, and after it as the end of the queue pair.
func TestResponder_C5_PeerVanishes(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{})
		for name, does := range map[string]func(r *raw){
			"before Hello":    func(r *raw) {},
			"in Hello":        func(r *raw) { r.say(r.AppendHello(nil)[:40]) },
			"after Hello":     func(r *raw) { r.sayHello() },
			"after Challenge": func(r *raw) { r.sayHello(); r.hearChallenge() },
			"in Request":      func(r *raw) { r.sayHello(); r.hearChallenge(); r.say(r.request()[:20]) },
		} {
			r := h.dial(1)
			does(r)
			require.NoError(t, r.Close())
			refused := h.nextRefusal()
			require.ErrorIs(t, refused.err, transport.ErrPeerLost, name)
			require.ErrorContains(t, refused.err, "during the handshake", name)
			require.Equal(t, r.LocalAddr().String(), refused.from, name)
		}
		for name, does := range map[string]func(r *raw){
			"after Request": func(r *raw) { r.sayHello(); r.hearChallenge(); r.say(r.request()) },
			"after Accept":  func(r *raw) { r.connect() },
			"in Ready":      func(r *raw) { r.connect(); r.say(frame.Header{Op: frame.Ready}.Append(nil)[:frame.HeaderSize-1]) },
			"after Ready":   func(r *raw) { r.connect(); r.say(frame.Header{Op: frame.Ready}.Append(nil)) },
		} {
			r := h.dial(2)
			does(r)
			require.NoError(t, r.Close())
			h.endsAlone(h.nextMade(), transport.ErrPeerLost, "rank 2 at "+r.LocalAddr().String(), name)
		}
		require.Empty(t, h.refused)
	})
}

// endsAlone waits for a queue pair to fail, by a cause and with a text in its error, and releases it.
func (h *host) endsAlone(m made, cause error, text, what string) {
	h.t.Helper()
	h.until(what, func() bool { return m.qp.State() == transport.StateError })
	require.ErrorIs(h.t, m.qp.Err(), cause, what)
	require.ErrorContains(h.t, m.qp.Err(), text, what)
	m.qp.Release()
}

// An unauthenticated caller who says nothing, or not all, is cut when his time is over.
func TestUnauthenticated_SlowIsCut(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{AuthTimeout: 20 * time.Millisecond})
		for name, does := range map[string]func(r *raw){
			"nothing":             func(r *raw) {},
			"a part of the magic": func(r *raw) { r.say([]byte(message.Magic[:3])) },
			"a part of Hello":     func(r *raw) { r.say(r.AppendHello(nil)[:message.HelloSize-1]) },
		} {
			r := h.dial(1)
			does(r)
			refused := h.nextRefusal()
			require.ErrorIs(t, refused.err, transport.ErrPeerLost, name)
			require.ErrorContains(t, refused.err, "the peer does not answer during the handshake", name)
			require.Empty(t, r.last(), name)
		}
	})
}

// A caller that is accepted when all places are taken by others in their grace, as another listener may have
// filled them in the meantime, is told to try again.
func TestUnauthenticated_AcceptedWhenAllPlacesAreTaken(t *testing.T) {
	h := newHost(t, Options{})
	e := h.dev.end
	e.mu.Lock()
	for range admission.MaxConns {
		e.admission.Enter(&admission.Conn{}, time.Now().Add(time.Hour))
	}
	e.mu.Unlock()
	near, far := streams(t)
	r := newRaw(t, far, testParties())
	newcomer := setup.New(&e.local, near)
	place := e.enter(newcomer)
	rank, err := e.respond(newcomer, place)
	require.Equal(t, -1, rank)
	require.ErrorIs(t, err, transport.ErrRefused)
	require.ErrorContains(t, err, "others came when 128 such connections were open")
	require.NoError(t, near.Close())
	require.Equal(t, fmt.Sprintf("%d: too slow, or too many unauthenticated connections: try again",
		handshake.RejectBusy), r.last())
	require.Empty(t, e.pending)
	require.Len(t, e.admission.Pending, admission.MaxConns)
}

// What the other side of Connect says wrong comes back as its error, with rank and address; who listens there
// is told too.
func TestInitiator_HostileResponder(t *testing.T) {
	tests := []struct {
		name  string
		does  func(r *raw)
		cause error
		text  string
		heard string
	}{
		{"HTTP server", func(r *raw) { r.hearHello(); r.say([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
			transport.ErrNotWeft,
			`begins with "HTTP"`, "0: peer does not speak weft's protocol"},
		{"TLS alert", func(r *raw) { r.hearHello(); r.say([]byte("\x15\x03\x01\x00\x02\x02\x46")) },
			transport.ErrNotWeft,
			`begins with "\x15\x03\x01\x00"`, "0: peer does not speak weft's protocol"},
		{"other version", func(r *raw) {
			r.hearHello()
			b := r.AppendChallenge(nil, &testSecret)
			b[1] = 9
			r.say(b)
		}, transport.ErrVersion, "version 9, here 6", "1: this is version 6"},
		{"wrong secret", func(r *raw) { r.hearHello(); r.say(r.AppendChallenge(nil, &[32]byte{7})) },
			transport.ErrAuth,
			"peer does not know the job's secret", "2: peer does not know the job's secret"},
		{"Challenge without a whole proof", func(r *raw) {
			r.hearHello()
			r.say(append(message.AppendPrefix(nil, message.Challenge, 3), 1, 2, 3))
		}, transport.ErrProtocol, "a Challenge of 3 bytes", "0: protocol violation: a Challenge of 3 bytes"},
		{"Challenge longer than any message", func(r *raw) {
			r.hearHello()
			r.say(message.AppendPrefix(nil,
				message.Challenge, 0xffff))
		},
			transport.ErrNotWeft, "Challenge of 65535 bytes",
			"0: peer does not speak weft's protocol: Challenge of 65535 bytes"},
		{"Accept where Challenge is due", func(r *raw) {
			r.hearHello()
			r.say(r.AppendAccept(nil,
				&testSecret, testParameters, nil))
		}, transport.ErrProtocol,
			"Accept where Challenge is due", "0: protocol violation: Accept where Challenge is due"},
		{"empty Accept", func(r *raw) {
			r.challenges()
			r.hearRequest()
			r.say(message.AppendPrefix(nil, message.Accept,
				0))
		},
			transport.ErrProtocol, "Accept of 0 bytes", ""},
		{"one bit of Accept's parameters", func(r *raw) {
			r.challenges()
			r.hearRequest()
			b := r.AppendAccept(nil, &testSecret, testParameters, nil)
			b[message.PrefixSize+message.ProofSize+6] ^= 1
			r.say(b)
		}, transport.ErrAuth, "the proof of its Accept is wrong", ""},
		{"Accept proved by our own Request", func(r *raw) {
			r.challenges()
			r.hearRequest()
			b := r.AppendRequest(nil, &testSecret, testParameters, nil)
			b[0] = byte(message.Accept)
			r.say(b)
		}, transport.ErrAuth, "the proof of its Accept is wrong", ""},
		{"too long private data", func(r *raw) {
			r.challenges()
			r.hearRequest()
			r.say(r.AppendAccept(nil, &testSecret, testParameters, make([]byte, message.MaxPrivate+1)))
		}, transport.ErrProtocol, "Accept with 513 bytes of private data", ""},
		{"no reason at all", func(r *raw) { r.hearHello(); r.say(message.AppendPrefix(nil, message.Reject, 0)) },
			transport.ErrProtocol,
			"a Reject of 0 bytes", ""},
		{"says other version", func(r *raw) {
			r.hearHello()
			r.say(message.AppendReject(nil, handshake.RejectVersion,
				"this is version 9"))
		},
			transport.ErrVersion, `the peer says "this is version 9"`, ""},
		{"says wrong secret", func(r *raw) {
			r.hearHello()
			r.say(message.AppendReject(nil, handshake.RejectAuth,
				"who are you"))
		},
			transport.ErrAuth, `the peer says "who are you"`, ""},
		{"says wrong rank", func(r *raw) {
			r.hearHello()
			r.say(message.AppendReject(nil, handshake.RejectRank,
				"this is rank 2 of 4"))
		},
			transport.ErrRefused, `the peer says "this is rank 2 of 4"`, ""},
		{"Reject of another version", func(r *raw) {
			r.hearHello()
			r.say([]byte{byte(message.Reject), 9, 1, 0,
				1})
		},
			transport.ErrVersion, "version 9, here 6", ""},
		{"says a reason of a later version", func(r *raw) {
			r.hearHello()
			r.say(message.AppendReject(nil, 200,
				"\x1b[2Jtired"))
		},
			transport.ErrRefused, `the peer says "\x1b[2Jtired"`, ""},
	}
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				r, result := h.calls(l, 1)
				r.t = t
				test.does(r)
				err := <-result
				require.ErrorIs(t, err, test.cause)
				require.ErrorContains(t, err, "connecting to rank 1 at "+l.Addr().String())
				require.ErrorContains(t, err, test.text)
				if r.Conn.SetDeadline(time.Now().Add(patience)) == nil { // not closed
					heard := r.last()
					require.True(t, strings.HasPrefix(heard, test.heard) &&
						(heard == "") == (test.heard == ""), "heard %q", heard)
				}
			})
		}
		require.Empty(t, h.made)
		require.Empty(t, h.refused)
	})
}

// A connection that the other side cuts, or turns down for being busy, before it has accepted it is made
// again, whatever had been said on it.
func TestInitiator_TriesAgainWhenCut(t *testing.T) {
	hello := func(r *raw) { require.NoError(r.t, r.full(make([]byte, message.HelloSize))) }
	cuts := []struct {
		name string
		does func(r *raw)
	}{
		{"closes at once", func(r *raw) { r.Close() }},
		{"resets at once", func(r *raw) { r.Conn.(*net.TCPConn).SetLinger(0); r.Close() }},
		{"closes after Hello", func(r *raw) { hello(r); r.Close() }},
		{"closes in Challenge", func(r *raw) {
			r.hearHello()
			r.say(r.AppendChallenge(nil, &testSecret)[:50])
			r.Close()
		}},
		{"closes after Challenge", func(r *raw) { r.challenges(); r.Close() }},
		{"closes after Request", func(r *raw) { r.challenges(); r.hearRequest(); r.Close() }},
		{"resets after Request", func(r *raw) {
			r.challenges()
			r.hearRequest()
			r.Conn.(*net.TCPConn).SetLinger(0)
			r.Close()
		}},
		{"is busy", func(r *raw) { hello(r); r.say(message.AppendReject(nil, handshake.RejectBusy, "try again")); r.Close() }},
		{"is busy after Challenge", func(r *raw) {
			r.challenges()
			r.say(message.AppendReject(nil, handshake.RejectBusy,
				"try again"))
			r.Close()
		}},
	}
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
		defer l.Close()
		r, result := h.calls(l, 1)
		for _, cut := range cuts {
			t.Log(cut.name)
			cut.does(r)
			conn, err := l.Accept()
			if err != nil {
				select {
				case err := <-result:
					require.NoError(t, err, "the call has ended")
				default:
				}
			}
			require.NoError(t, err)
			r = newRaw(t, conn, testParties())
		}
		r.challenges()
		r.hearRequest()
		r.say(r.AppendAccept(nil, &testSecret, testParameters, nil))
		require.NoError(t, <-result)
		h.nextMade().qp.Release()
	})
}

// A call whose attempts are all cut ends when its time is over, with what went wrong.
func TestInitiator_CutUntilTheEnd(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		cut := atomic.NewInt64(0)
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				conn.Close()
				if cut.Inc() == 3 {
					cancel(context.DeadlineExceeded)
				}
			}
		})
		err = h.ep.Connect(ctx, 1, "tcp:"+l.Addr().String())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, transport.ErrPeerLost)
		require.ErrorContains(t, err, "connecting to rank 1 at "+l.Addr().String())
		require.GreaterOrEqual(t, cut.Load(), int64(3))
		l.Close()
		wg.Wait()
	})
}

// calls has the host connect to a rank, and answers the call.
func (h *host) calls(l net.Listener, rank uint32) (*raw, <-chan error) {
	h.t.Helper()
	result := make(chan error, 1)
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	go func() {
		defer cancel()
		result <- h.ep.Connect(ctx, rank, "tcp:"+l.Addr().String())
	}()
	conn, err := l.Accept()
	require.NoError(h.t, err)
	return newRaw(h.t, conn, testParties()), result
}

// challenges takes Hello and answers it.
func (r *raw) challenges() {
	r.t.Helper()
	r.hearHello()
	r.say(r.AppendChallenge(nil, &testSecret))
}

// hearRequest takes a Request and checks it.
func (r *raw) hearRequest() {
	r.t.Helper()
	body, err := r.expect(message.Proof)
	require.NoError(r.t, err)
	require.NoError(r.t, r.TakeProof(body, &testSecret))
	body, err = r.expect(message.Request)
	require.NoError(r.t, err)
	theirs, private, err := r.TakeRequest(body, &testSecret)
	require.NoError(r.t, err)
	require.Equal(r.t, testParameters, theirs)
	require.Equal(r.t, "mine", string(private))
}

// A responder that does not know the secret cannot have the initiator prove it to itself: it passes the
// initiator's Hello on to the initiator's own door, and gets a proof that is good for the other direction
// only.
func TestInitiator_ReflectionOfOurOwnProof(t *testing.T) {
	h := newHost(t, Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	r, result := h.calls(l, 1)
	r.hearHello()

	door := h.dial(1)
	door.Nonces[0] = r.Nonces[0]
	door.sayHello()
	body, err := door.expect(message.Challenge)
	require.NoError(t, err)
	r.say(append(message.AppendPrefix(nil, message.Challenge, len(body)), body...))
	err = <-result
	require.ErrorIs(t, err, transport.ErrAuth)
	require.ErrorContains(t, err,
		"connecting to rank 1 at "+l.Addr().String()+": peer does not know the job's secret")
	require.Equal(t, "2: peer does not know the job's secret", r.last())
}

// A peer that is gone after Accept ends the queue pair, not the Connect that made it.
func TestInitiator_C5_PeerVanishesAfterAccept(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		r, result := h.calls(l, 1)
		r.challenges()
		r.hearRequest()
		r.say(r.AppendAccept(nil, &testSecret, testParameters, []byte("raw")))
		require.NoError(t, r.Close())
		require.NoError(t, <-result)
		h.endsAlone(h.nextMade(), transport.ErrPeerLost, "rank 1 at "+l.Addr().String(), "after Accept")
	})
}

// A call that is given up in the middle of the handshake ends with the context's error and leaves nothing.
func TestInitiator_GivenUp(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		for name, does := range map[string]func(r *raw){
			"after Hello":   func(r *raw) { r.hearHello() },
			"after Request": func(r *raw) { r.challenges(); r.hearRequest() },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error, 1)
			go func() { result <- h.ep.Connect(ctx, 1, "tcp:"+l.Addr().String()) }()
			conn, err := l.Accept()
			require.NoError(t, err)
			r := newRaw(t, conn, testParties())
			does(r)
			cancel()
			err = <-result
			require.ErrorIs(t, err, context.Canceled, name)
			require.ErrorContains(t, err, "connecting to rank 1 at "+l.Addr().String(), name)
			require.Empty(t, r.last(), name)
		}
	})
}

// An acceptor whose private data is too long hears it from Connect or Refused; the other side is told as
// well.
func TestHandshake_OurPrivateDataTooLong(t *testing.T) {
	h := newHost(t, Options{})
	h.private = make([]byte, message.MaxPrivate+1)
	const text = "513 bytes of private data; at most 512 are possible"

	r := h.dial(1)
	r.sayHello()
	r.hearChallenge()
	r.say(r.request())
	refused := h.nextRefusal()
	require.ErrorContains(t, refused.err, text)
	require.Equal(t, "rank 1 at "+r.LocalAddr().String(), refused.from, "it has proved who it is")
	require.Contains(t, r.last(), text)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	r, result := h.calls(l, 1)
	r.challenges()
	require.ErrorContains(t, <-result, text)
	require.Contains(t, r.last(), text)
}

// Closing the endpoint cuts whoever is in the handshake, in any state of it, and nobody is told of them any more.
func TestListen_CloseCutsUnauthenticated(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{AuthTimeout: time.Hour})
		var all []*raw
		for _, does := range []func(r *raw){
			func(r *raw) {},
			func(r *raw) { r.say(r.AppendHello(nil)[:50]) },
			func(r *raw) { r.sayHello(); r.hearChallenge() },
			func(r *raw) { r.sayHello(); r.hearChallenge(); r.say(r.request()[:20]) },
		} {
			r := h.dial(1)
			does(r)
			all = append(all, r)
		}
		require.NoError(t, h.ep.Close())
		for _, r := range all {
			require.Empty(t, r.last())
		}
		require.Empty(t, h.refused)
		require.Empty(t, h.made)
	})
}

// Listen where another listens already says where.
func TestListen_PortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	d, err := New(Options{LowPort: port, HighPort: port})
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Listen(hostIdentity, nobody{})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, l.Addr().String())
}

// A port range that is all taken is named whole; ports that are none are refused before.
func TestListen_PortRange(t *testing.T) {
	for _, o := range []Options{{LowPort: -1, HighPort: 9}, {LowPort: 2, HighPort: 1},
		{LowPort: 1, HighPort: 65536}, {HighPort: 9}} {
		_, err := New(o)
		require.ErrorContains(t, err, fmt.Sprintf("ports %d to %d", o.LowPort, o.HighPort))
	}
	low, high := neighbors(t)
	d, err := New(Options{LowPort: low.Addr().(*net.TCPAddr).Port, HighPort: high.Addr().(*net.TCPAddr).Port})
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Listen(hostIdentity, nobody{})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, fmt.Sprintf("no port from %d to %d is free", d.opts.LowPort,
		d.opts.HighPort))
}

// neighbors takes two ports next to each other.
func neighbors(t *testing.T) (low, high net.Listener) {
	for {
		low, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { low.Close() })
		high, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", low.Addr().(*net.TCPAddr).Port+1))
		if err == nil {
			t.Cleanup(func() { high.Close() })
			return low, high
		}
	}
}
