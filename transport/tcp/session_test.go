package tcp

import (
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// session is a queue pair in RDMA mode whose peer is the test: what it writes to wire is what the queue pair
// receives, at once.
type session struct {
	dev  *Device
	cq   transport.CQ
	pd   transport.PD
	qp   *qp
	wire int
	wcs  []transport.WC

	agreed message.Agreement // of the queue pairs that begin
	lanes  int               // of them; 0: one connection
	wires  []int             // of the lanes but the first
}

const sessionPeer = "rank 1 at the-peer"

// nobody is the acceptor of a device that is not called.
type nobody struct{}

func (nobody) Prepare(uint32) (transport.QPConfig, []byte, error) {
	return transport.QPConfig{}, nil, transport.ErrRefused
}
func (nobody) Connected(uint32, transport.QP, []byte) {}
func (nobody) Refused(string, error)                  {}

func newSessionDevice(tb testing.TB) *session {
	d, err := New(Options{})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, d.Close()) })
	d.Regions.Seed([32]byte{}) // keys that a corpus may hold
	_, err = d.Listen(transport.Identity{Job: "session", Size: 2}, nobody{})
	require.NoError(tb, err)
	s := &session{dev: d, agreed: testParameters.Negotiate(testParameters)}
	s.pd, err = d.AllocPD()
	require.NoError(tb, err)
	s.cq, err = d.CreateCQ(1<<12, 0)
	require.NoError(tb, err)
	return s
}

// begin puts a queue pair on one end of a socket pair.
func (s *session) begin(tb testing.TB, initiator bool) { s.beginShaped(tb, initiator, 8) }

// beginShaped begins with queues of a depth.
func (s *session) beginShaped(tb testing.TB, initiator bool, depth int) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(tb, err)
	s.beginOn(tb, initiator, depth, fds)
}

// beginOn puts a queue pair on the first of two connected sockets.
func (s *session) beginOn(tb testing.TB, initiator bool, depth int, fds [2]int) {
	for _, fd := range fds {
		require.NoError(tb, syscall.SetNonblock(fd, true))
	}
	s.wire, s.wcs = fds[1], nil
	conf := transport.QPConfig{PD: s.pd, SendCQ: s.cq, RecvCQ: s.cq, SendWR: depth, RecvWR: depth, Reads: 2}
	s.qp = s.dev.newQP(conf, 1, "here", "the-peer", initiator, s.agreed)
	if s.lanes > 0 {
		s.beginLanes(tb, fds[0], initiator)
	} else {
		newSingleLink(s.qp, fds[0], nil)
	}
	s.qp.scq.handOver(s.qp)
	s.poll()
}

func (s *session) end(tb testing.TB) {
	s.qp.Release()
	for _, fd := range append(s.wires, s.wire) {
		require.NoError(tb, syscall.Close(fd))
	}
	s.wires = nil
	for s.cq.Poll(make([]transport.WC, 16)) > 0 {
	}
	s.cq.Placed(make([]transport.QPN, 4))
}

func (s *session) poll() {
	var wc [16]transport.WC
	for {
		n := s.cq.Poll(wc[:])
		s.wcs = append(s.wcs, wc[:n]...)
		if n == 0 {
			return
		}
	}
}

// arena is memory with regions in it and guards around them.
type arena struct {
	mem  []byte
	open []int // first and last byte, alternating, of what the peer may change
}

func (a *arena) fill() {
	copy(a.mem, noise)
}

// untouched tells the first byte that was changed and must not have been, or -1.
func (a *arena) untouched() int {
	from := 0
	for i := 0; i <= len(a.open); i += 2 {
		to := len(a.mem)
		if i < len(a.open) {
			to = a.open[i]
		}
		if at := sameAt(a.mem[from:to], noise[from:]); at >= 0 {
			return from + at
		}
		if i < len(a.open) {
			from = a.open[i+1]
		}
	}
	return -1
}

// Whatever a peer that has proved who it is sends in RDMA mode: no panic, nothing is written but what it may
// write, the queue pair goes on or ends with an error that names the peer, and every posted request completes
// once.
func FuzzSession(f *testing.F) {
	s := newSessionDevice(f)
	mem := &arena{mem: make([]byte, 8<<10), open: []int{1024, 2048, 3072, 3328, 3584, 3840, 4096, 4352,
		5120, 5640}}
	foreignPD, err := s.dev.AllocPD()
	require.NoError(f, err)
	region := func(pd transport.PD, from, to int, access transport.Access) transport.MR {
		mr, err := pd.Register(mem.mem[from:to], access)
		require.NoError(f, err)
		return mr
	}
	target := region(s.pd, 1024, 2048, transport.RemoteWrite|transport.RemoteRead)
	recvs := region(s.pd, 3072, 4096, transport.LocalWrite)
	into := region(s.pd, 5120, 5640, transport.LocalWrite)
	source := region(s.pd, 6144, 7168, transport.RemoteRead)
	foreign := region(foreignPD, 7168, 8192, transport.RemoteWrite)
	words := region(s.pd, 4096, 4352, transport.RemoteAtomic)

	encoded := func(h frame.Header, payload ...byte) []byte {
		h.Length = len(payload)
		return append(h.Append(nil), payload...)
	}
	key := func(m transport.MR) uint64 { return uint64(m.Key()) }
	request := func(src, dst transport.Segment) []byte {
		b := make([]byte, 2*frame.SegmentSize)
		frame.PutSegment(b, src)
		frame.PutSegment(b[frame.SegmentSize:], dst)
		return encoded(frame.Header{Op: frame.ReadRequest, Flags: frame.Last, B: 1<<32 | 1}, b...)
	}
	atomic := func(number, key, off uint64) []byte {
		h, payload := atomicRequest(number, transport.Key(key), off, 5)
		return encoded(h, payload...)
	}
	data := make([]byte, 64)
	for i := range data {
		data[i] = 0xa5
	}
	ready := encoded(frame.Header{Op: frame.Ready, Flags: frame.Last})
	for _, frames := range [][][]byte{
		{},
		{encoded(frame.Header{Op: frame.Write, Flags: frame.Last, A: key(target), B: 960}, data...)},
		{encoded(frame.Header{Op: frame.Write, Flags: frame.Last, A: key(target), B: 961}, data...)},
		{encoded(frame.Header{Op: frame.Write, Flags: frame.Last, A: key(target), B: 1<<64 - 8}, data...)},
		{encoded(frame.Header{Op: frame.Write, A: key(recvs)}, data...)},
		{encoded(frame.Header{Op: frame.Write, A: key(foreign)}, data...)},
		{encoded(frame.Header{Op: frame.Send, Flags: 0}, data...), encoded(frame.Header{Op: frame.Send, Flags: frame.Last, B: 64},
			data...),
			encoded(frame.Header{Op: frame.Immediate, Flags: frame.Last | frame.Solicited, A: 1, B: 42})},
		{encoded(frame.Header{Op: frame.Send, Flags: frame.Last, A: 1}, data...)},
		{encoded(frame.Header{Op: frame.ReadWrite, A: key(into)}, data...),
			encoded(frame.Header{Op: frame.Send, Flags: frame.Last}, data...),
			encoded(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: key(into), B: 64}, data...)},
		{encoded(frame.Header{Op: frame.ReadWrite, A: key(target)}, data...)},
		{encoded(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: key(into), B: frame.Placement(0, 1)},
			make([]byte, 512)...)},
		{request(transport.Segment{Key: source.Key(), Length: 1024},
			transport.Segment{Key: 1, Length: 1024}), encoded(frame.Header{Op: frame.Close})},
		{request(transport.Segment{Key: source.Key(), Offset: 1<<64 - 1, Length: 2},
			transport.Segment{Length: 2})},
		{encoded(frame.Header{Op: frame.Close, Flags: frame.Last}), encoded(frame.Header{Op: frame.Send, Flags: frame.Last}, data...)},
		{encoded(frame.Header{Op: frame.Terminate, Flags: frame.Last, A: uint64(frame.ReasonAccess), B: 1},
			[]byte("because")...)},
		{atomic(0, key(words), 248), atomic(1, key(words), 0), atomic(2, key(words), 56)},
		{atomic(0, key(words), 249)},
		{atomic(0, key(words), 1<<64-8)},
		{atomic(0, key(target), 0), atomic(0, key(words), 0)},
		{encoded(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: key(into)}, make([]byte, 512)...),
			encoded(frame.Header{Op: frame.AtomicDone, Flags: frame.Last, A: 1, B: 1 << 63})},
		{encoded(frame.Header{Op: frame.AtomicDone, Flags: frame.Last, A: 0, B: 1})},
		{alive(), encoded(frame.Header{Op: frame.Send}, data...), alive(),
			encoded(frame.Header{Op: frame.Send, Flags: frame.Last, B: 64}, data...),
			encoded(frame.Header{Op: frame.Close, Flags: frame.Last}), alive()},
		{ready},
	} {
		for _, chunk := range []uint16{1, 29, 4096} {
			f.Add(append(ready[:frame.HeaderSize:frame.HeaderSize], slices.Concat(frames...)...), false, false, chunk)
			f.Add(slices.Concat(frames...), true, false, chunk)
			f.Add(slices.Concat(frames...), true, true, chunk)
		}
	}

	f.Fuzz(func(t *testing.T, sent []byte, initiator, closing bool, chunk uint16) {
		mem.fill()
		s.begin(t, initiator)
		defer s.end(t)
		sge := func(m transport.MR, off, n int) []transport.SGE {
			return []transport.SGE{{MR: m, Offset: off, Length: n}}
		}
		require.NoError(t, s.qp.PostRecv(&transport.RecvWR{ID: 1, Local: sge(recvs, 0, 256)}))
		require.NoError(t, s.qp.PostRecv(&transport.RecvWR{ID: 2, Local: sge(recvs, 512, 256)}))
		require.NoError(t, s.qp.PostSend(&transport.SendWR{ID: 3, Op: transport.OpRead,
			Flags: transport.FlagSignaled,
			Local: sge(into, 0, 512), Remote: []transport.Segment{{Key: 7, Length: 512}}}))
		require.NoError(t, s.qp.PostSend(&transport.SendWR{ID: 4, Op: transport.OpFetchAdd,
			Flags: transport.FlagSignaled,
			Local: sge(into, 512, 8), Remote: []transport.Segment{{Key: 7, Length: 8}}}))
		if closing {
			s.qp.Close()
		}
		s.poll()
		answers := make([]byte, 1<<16)
		sent = sent[:min(len(sent), 1<<14)]
		for len(sent) > 0 {
			n, err := syscall.Write(s.wire, sent[:min(len(sent), max(1, int(chunk)))])
			if err != nil {
				require.ErrorIs(t, err, syscall.EPIPE)
				require.Contains(t, []transport.State{transport.StateError, transport.StateClosed},
					s.qp.State(),
					"a queue pair that is well has closed its socket")
				break
			}
			sent = sent[n:]
			s.poll()
			for n := 1; n > 0; { // the peer takes what it is answered
				n, _ = syscall.Read(s.wire, answers)
			}
		}
		s.poll()

		require.Equal(t, -1, mem.untouched(), "the peer has written a byte that it may not")
		require.LessOrEqual(t, len(s.qp.answer.queue.Ring), message.MaxReads)
		require.LessOrEqual(t, cap(firstLink(s.qp).in.control), 2*frame.MaxControl)
		ids := map[uint64]int{}
		for _, wc := range s.wcs {
			ids[wc.ID]++
			require.Equal(t, 1, ids[wc.ID], "request %d completed twice", wc.ID)
			if wc.Status != transport.StatusSuccess {
				require.ErrorContains(t, wc.Err, sessionPeer)
			}
		}
		switch s.qp.State() {
		case transport.StateReady:
			require.False(t, closing)
			require.NoError(t, s.qp.Err())
		case transport.StateClosing:
			require.True(t, closing)
		case transport.StateClosed:
			require.True(t, closing)
			require.ErrorIs(t, s.qp.Err(), transport.ErrClosed)
			require.Len(t, ids, 4, "every request completes when the queue pair ends")
		case transport.StateDraining:
			require.ErrorIs(t, s.qp.Err(), transport.ErrClosed)
			require.ErrorContains(t, s.qp.Err(), sessionPeer)
		case transport.StateError:
			require.ErrorContains(t, s.qp.Err(), sessionPeer)
			require.Len(t, ids, 4, "every request completes when the queue pair ends")
		default:
			t.Fatalf("the queue pair is %v", s.qp.State())
		}
	})
}
