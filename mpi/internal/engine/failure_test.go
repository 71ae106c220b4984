package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
	"github.com/weft-mpi/weft/transport/tcp"
)

// rawPeer is a rank that has a device, and an engine's shape, and does with them what a test wants.
type rawPeer struct {
	t       *testing.T
	dev     transport.Device
	pd      transport.PD
	cq      transport.CQ
	ep      transport.Endpoint
	private []byte
	qp      chan transport.QP
}

func (s *rawPeer) Prepare(uint32) (transport.QPConfig, []byte, error) {
	return transport.QPConfig{PD: s.pd, SendCQ: s.cq, RecvCQ: s.cq, SendWR: 8, RecvWR: 8, Reads: 1},
		s.private, nil
}

func (s *rawPeer) Connected(_ uint32, qp transport.QP, _ []byte) { s.qp <- qp }
func (s *rawPeer) Refused(string, error)                         {}

// withRawPeer makes an engine of rank 0, and a rawPeer of rank 1.
func withRawPeer(t *testing.T) (*Engine, *rawPeer) {
	t.Helper()
	s := &rawPeer{t: t, qp: make(chan transport.QP, 1)}
	device := func() transport.Device {
		d, err := tcp.New(tcp.Options{})
		require.NoError(t, err)
		return d
	}
	id := transport.Identity{Job: "rawpeer", Size: 2}
	e, err := newEngine(Config{Fabrics: []Fabric{{Device: device()}}, Identity: id, ConnectTimeout: time.Minute,
		Log:    slog.New(slog.DiscardHandler),
		Lookup: func(uint32, string) (string, error) { return s.ep.Addr(), nil }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.hub.Destroy(ErrFinalized)) })
	s.dev = device()
	t.Cleanup(func() { require.NoError(t, s.dev.Close()) })
	s.pd, err = s.dev.AllocPD()
	require.NoError(t, err)
	s.cq, err = s.dev.CreateCQ(64, 0)
	require.NoError(t, err)
	id.Rank = 1
	s.ep, err = s.dev.Listen(id, s)
	require.NoError(t, err)
	ch, err := channel.New(s.pd, channel.Config{})
	require.NoError(t, err)
	s.private = ch.Descriptor()
	return e, s
}

// A peer that breaks a rule is given up, by name, and what waits for it says that it broke a rule. One that
// is lost broke none.
func TestEveryFailureIsOfItsClass(t *testing.T) {
	for name, c := range map[string]struct {
		does     func(s *rawPeer)
		protocol bool
		says     string
	}{
		"a message without room": {func(s *rawPeer) {
			mr, err := s.pd.Alloc(8, 0)
			require.NoError(s.t, err)
			require.NoError(s.t, (<-s.qp).PostSend(&transport.SendWR{Op: transport.OpSend,
				Local: []transport.SGE{{MR: mr, Length: 8}}}))
		}, true, "a message of the peer is longer than the posted Recv of 0 bytes"},
		"an access to what is not there": {func(s *rawPeer) {
			mr, err := s.pd.Alloc(8, 0)
			require.NoError(s.t, err)
			require.NoError(s.t, (<-s.qp).PostSend(&transport.SendWR{Op: transport.OpWrite,
				Local:  []transport.SGE{{MR: mr, Length: 8}},
				Remote: []transport.Segment{{Key: 7, Length: 8}}}))
		}, true, "no region has the key 0x7"},
		"an end": {func(s *rawPeer) { (<-s.qp).Abort(nil) }, false, "aborted"},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := withRawPeer(t)
			begun, err := e.Recvs.Irecv(world0, make([]byte, 8), 1, 0, 1)
			require.NoError(t, err)
			require.NoError(t, s.ep.Connect(t.Context(), 0, e.hub.Addr("tcp")))
			s.cq.Poll(nil)
			c.does(s)
			s.cq.Poll(nil)
			_, err = e.Requests.Wait(begun)
			require.ErrorIs(t, err, ErrProcFailed)
			require.ErrorContains(t, err, "rank 1")
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.protocol, errors.Is(err, transport.ErrProtocol) ||
				errors.Is(err, transport.ErrAccess), "%v", err)
		})
	}
}

// Ranks that do not fit together are given up at the connect, and say what does not fit.
func TestRanksThatDoNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		private func(d []byte) []byte
		is      error
		says    string
	}{
		"half a descriptor": {func(d []byte) []byte { return d[:len(d)-1] }, transport.ErrProtocol,
			"a ring's descriptor of"},
		"another version": {func([]byte) []byte { return []byte("none") }, transport.ErrVersion,
			"run the same weft on all hosts"},
		"other phases": {func([]byte) []byte {
			return channel.Descriptor{Phases: []int{576}, Key: 1, Generation: 1}.Append(nil)
		}, transport.ErrInvalid, "all ranks of a job need the same"},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := withRawPeer(t)
			s.private = c.private(s.private)
			err := e.Sends.Send(world0, make([]byte, 8), 1, 0)
			require.ErrorIs(t, err, ErrProcFailed)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, "rank 1")
			require.ErrorContains(t, err, c.says)
		})
	}
}

// Where nobody tells of failures, whoever waits for a rank that has failed before it connected finds that out.
func TestFailureBeforeAnyConnectionIsFound(t *testing.T) {
	for name, receive := range map[string]func(e *Engine) error{
		"Recv": func(e *Engine) error {
			return e.Recvs.Recv(world0, make([]byte, 8), 1, 0, 1, new(Status))
		},
		"Recv from any source": func(e *Engine) error {
			return e.Recvs.Recv(world0, make([]byte, 8), AnySource, 0, 1, new(Status))
		},
		"Probe": func(e *Engine) error {
			_, err := e.Probes.Probe(world0, 1, 0, nil)
			return err
		},
		"Probe for any source": func(e *Engine) error {
			_, err := e.Probes.Probe(world0, AnySource, 0, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := tcp.New(tcp.Options{Host: "127.0.0.1"})
			require.NoError(t, err)
			e, err := newEngine(Config{Fabrics: []Fabric{{Device: d}}, DetectsFailures: true, ConnectTimeout: time.Minute,
				Identity: transport.Identity{Job: "test", Size: 2}, Log: slog.New(slog.DiscardHandler),
				Lookup: func(uint32, string) (string, error) { return "", errors.New("it has gone") }})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, e.hub.Destroy(ErrFinalized)) })
			ended := make(chan error, 1)
			go func() { ended <- receive(e) }()
			select {
			case err := <-ended:
				require.ErrorIs(t, err, ErrProcFailed)
			case <-time.After(time.Minute):
				t.Fatal("it waits for ever")
			}
		})
	}
}

// A second connection of a rank that is connected is turned away, and nothing becomes of the first.
func TestTurnedAwayConnectionIsNoDeadPeer(t *testing.T) {
	e, s := withRawPeer(t)
	require.NoError(t, s.ep.Connect(t.Context(), 0, e.hub.Addr("tcp")))
	s.cq.Poll(nil)
	other := *s
	other.qp = make(chan transport.QP, 1)
	d, err := tcp.New(tcp.Options{})
	require.NoError(t, err)
	defer d.Close()
	other.dev = d
	other.pd, err = d.AllocPD()
	require.NoError(t, err)
	other.cq, err = d.CreateCQ(64, 0)
	require.NoError(t, err)
	other.ep, err = d.Listen(transport.Identity{Job: "rawpeer", Rank: 1, Size: 2}, &other)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, other.ep.Connect(ctx, 0, e.hub.Addr("tcp")))
	_, _, err = e.Probes.Iprobe(world0, 1, 0)
	require.NoError(t, err)
	require.Equal(t, transport.StateReady, (<-s.qp).State())
	e.mu.Lock()
	defer e.mu.Unlock()
	require.Equal(t, peerOpen, e.peers[1].state)
}

// Ranks that fail, in all states that a connection can be in, leave no memory mapped and no descriptor open
// in those that are left.
func TestFailedPeersLeaveNothing(t *testing.T) {
	round := func(i int) {
		devices := make([]transport.Device, 2)
		for k := range devices {
			d, err := tcp.New(tcp.Options{})
			require.NoError(t, err)
			devices[k] = d
		}
		w := make([]*Engine, 2)
		for k := range w {
			var err error
			w[k], err = newEngine(Config{Fabrics: []Fabric{{Device: devices[k]}},
				Identity:       transport.Identity{Job: "leaks", Rank: uint32(k), Size: 2},
				ConnectTimeout: time.Minute, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
				Lookup: func(rank uint32, provider string) (string, error) {
					return w[rank].hub.Addr(provider),
						nil
				}})
			require.NoError(t, err)
		}
		var open []Request
		for n := range 1 + i%8 {
			buf := make([]byte, 1<<(2*n))
			s, err := w[0].Sends.Isend(world0, buf, 1, n)
			require.NoError(t, err)
			r, err := w[0].Recvs.Irecv(world0, buf, 1, 100+n, 1)
			require.NoError(t, err)
			open = append(open, s, r)
		}
		if i%4 != 0 { // in the others it may be in the middle of the connect
			_, err := w[1].Probes.Probe(world0, 0, 0, nil)
			require.NoError(t, err)
			require.NoError(t, w[1].Sends.Send(world0, make([]byte, 100), 0, 99))
		}
		require.NoError(t, w[1].hub.Destroy(ErrAborted))
		for _, h := range open {
			w[0].Requests.Wait(h)
		}
		_, err := w[0].recv(world0, nil, 1, 98, 1)
		require.ErrorIs(t, err, ErrProcFailed)
		require.NoError(t, w[0].hub.Destroy(ErrFinalized))
	}
	round(1)
	files, bytes := openFiles(t), sys.Mapped()
	for i := range 100 {
		round(i)
		require.Equal(t, files, openFiles(t), "descriptors after round %d", i)
		require.Equal(t, bytes, sys.Mapped(), "mapped bytes after round %d", i)
	}
}

// Messages that a rank sent before its end are received, whether a pass finds its connection's end after them
// or its failure is reported first.
func TestMessagesBeforeTheEndAreReceived(t *testing.T) {
	const messages = 40 // so many that credits are due, which nobody takes any more
	for name, failed := range map[string]func(w []*Engine){
		"connection": func(w []*Engine) { require.NoError(t, w[1].hub.Destroy(ErrAborted)) },
		"report":     func(w []*Engine) { w[0].hub.PeerFailed(1, transport.ErrPeerLost) },
		"both": func(w []*Engine) {
			require.NoError(t, w[1].hub.Destroy(ErrAborted))
			w[0].hub.PeerFailed(1, transport.ErrPeerLost)
		},
	} {
		for fabric, devices := range map[string]func() []transport.Device{
			"tcp": func() []transport.Device { return tcpDevices(t, 2) },
			"shm": func() []transport.Device { return shmDevices(t, 2, shm.Options{}) },
		} {
			t.Run(name+"/"+fabric, func(t *testing.T) {
				w := world(t, devices())
				require.NoError(t, w[1].Sends.Send(world0, []byte{0}, 0, 1))
				_, err := w[0].recv(world0, make([]byte, 1), 1, 1, 1)
				require.NoError(t, err)
				for n := range byte(messages) { // from now on rank 0 makes no pass
					require.NoError(t, w[1].Sends.Send(world0, []byte{n}, 0, 1))
				}
				failed(w)
				for n := range byte(messages) {
					got := make([]byte, 1)
					_, err := w[0].recv(world0, got, 1, 1, 1)
					require.NoError(t, err)
					require.Equal(t, n, got[0])
				}
				_, err = w[0].recv(world0, make([]byte, 1), 1, 1, 1)
				require.ErrorIs(t, err, ErrProcFailed)
			})
		}
	}
}

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}
