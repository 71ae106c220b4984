package tcp

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

var framesSeed = flag.Uint64("frames.seed", 1, "seed of the frames of TestFrames")

// ground is where hostile sessions are fought: a device, its memory, and guards between the regions that a
// peer may write.
type ground struct {
	*session
	mem, clean                      []byte
	guards                          [][2]int // what nobody may ever write
	open, recvs, into               transport.MR
	source, local, foreign, renewed transport.MR
	words, old                      transport.MR // for the peer's Atomics; where ours puts what it finds
	stale                           transport.Key
	posted                          int
}

const (
	// bytes of the region that the peer may write: frames that are read straight to their place fit in
	groundOpen  = 48 << 10
	groundRecv  = 256 // bytes of a Recv
	groundRecvs = 24
	groundInto  = 256 // bytes of the Read that is outstanding
)

func newGround(tb testing.TB) *ground {
	g := &ground{session: newSessionDevice(tb)}
	other, err := g.dev.AllocPD()
	require.NoError(tb, err)
	const guard = 512
	size := 0
	region := func(pd transport.PD, n int, access transport.Access, written bool) func() transport.MR {
		from := size + guard
		if size = from + n; !written {
			g.guards = append(g.guards, [2]int{from - guard, size})
		} else {
			g.guards = append(g.guards, [2]int{from - guard, from})
		}
		return func() transport.MR {
			mr, err := pd.Register(g.mem[from:from+n], access)
			require.NoError(tb, err)
			return mr
		}
	}
	plan := []struct {
		mr   *transport.MR
		make func() transport.MR
	}{
		{&g.open, region(g.pd, groundOpen, transport.RemoteWrite|transport.RemoteRead, true)},
		{&g.recvs, region(g.pd, groundRecv*groundRecvs, transport.LocalWrite, true)},
		{&g.into, region(g.pd, groundInto, transport.LocalWrite, true)},
		{&g.source, region(g.pd, 4096, transport.RemoteRead, false)},
		{&g.words, region(g.pd, 512, transport.RemoteAtomic, true)},
		{&g.old, region(g.pd, 8, transport.LocalWrite, true)},
		{&g.local, region(g.pd, 512, transport.LocalWrite, false)},
		{&g.foreign, region(other, 512, transport.RemoteWrite|transport.RemoteRead, false)},
		{&g.renewed, region(g.pd, 512, transport.RemoteWrite|transport.RemoteRead, false)},
	}
	g.guards = append(g.guards, [2]int{size, size + guard})
	g.mem = make([]byte, size+guard)
	for i := range g.mem {
		g.mem[i] = byte(i*7 + i>>8)
	}
	g.clean = bytes.Clone(g.mem)
	for _, p := range plan {
		*p.mr = p.make()
	}
	g.stale = g.renewed.Key()
	require.NoError(tb, g.renewed.Deregister())
	g.renewed = plan[len(plan)-1].make()
	return g
}

// enters begins a session with work of every kind on the queue pair's side.
func (g *ground) enters(tb testing.TB, initiator, closing bool) {
	g.beginShaped(tb, initiator, groundRecvs+8)
	g.posted = 0
	id := func() uint64 { g.posted++; return uint64(g.posted) }
	part := func(m transport.MR, off, n int) []transport.SGE {
		return []transport.SGE{{MR: m, Offset: off, Length: n}}
	}
	for i := range groundRecvs {
		n := groundRecv
		if i%4 == 3 {
			n /= 2 // the rest of its place is not the peer's: see untouched
		}
		require.NoError(tb, g.qp.PostRecv(&transport.RecvWR{ID: id(), Local: part(g.recvs, i*groundRecv, n)}))
	}
	for _, wr := range []*transport.SendWR{
		{Op: transport.OpRead, Local: part(g.into, 0, groundInto),
			Remote: []transport.Segment{{Key: 7, Length: groundInto}}},
		{Op: transport.OpFetchAdd, Operand: 1, Local: part(g.old, 0, 8),
			Remote: []transport.Segment{{Key: 7, Length: 8}}},
		{Op: transport.OpWrite, Local: part(g.source, 0, 64),
			Remote: []transport.Segment{{Key: 7, Length: 64}}},
		{Op: transport.OpSend, Local: part(g.source, 0, 64)},
	} {
		wr.ID, wr.Flags = id(), transport.FlagSignaled
		require.NoError(tb, g.qp.PostSend(wr))
	}
	if closing {
		g.qp.Close()
	}
	g.poll()
}

// leaves ends a session and wants what holds of every one: only granted memory was written, what is kept of
// the peer is bounded, every request has completed once if the queue pair has ended and at most once if not,
// and every failure names the peer.
func (g *ground) leaves(tb testing.TB, what string) {
	for _, r := range g.guards {
		if !bytes.Equal(g.mem[r[0]:r[1]], g.clean[r[0]:r[1]]) {
			tb.Fatalf("%s: the peer has written between %d and %d", what, r[0], r[1])
		}
	}
	first := g.recvs.Bytes()
	for i := 3; i < groundRecvs; i += 4 {
		from := i*groundRecv + groundRecv/2
		at := bytesAt(g.mem, first) + from
		if !bytes.Equal(first[from:from+groundRecv/2], g.clean[at:at+groundRecv/2]) {
			tb.Fatalf("%s: the peer has written after Recv %d", what, i)
		}
	}
	q := g.qp
	if len(q.answer.queue.Ring) > message.MaxReads || cap(firstLink(q).in.control) > 2*frame.MaxControl ||
		firstLink(q).partial.Held() > 2*frame.BatchSize {
		tb.Fatalf("%s: %d answers, %d bytes of control, %d carried", what, len(q.answer.queue.Ring),
			cap(firstLink(q).in.control), firstLink(q).partial.Held())
	}
	var seen [groundRecvs + 8]bool
	for _, wc := range g.wcs {
		if seen[wc.ID] {
			tb.Fatalf("%s: request %d completed twice", what, wc.ID)
		}
		seen[wc.ID] = true
		if wc.Status != transport.StatusSuccess && !bytes.Contains([]byte(wc.Err.Error()),
			[]byte(sessionPeer)) {
			tb.Fatalf("%s: the peer is not named: %v", what, wc.Err)
		}
	}
	state, err := q.State(), q.Err()
	if state == transport.StateError || state == transport.StateClosed {
		if len(g.wcs) != g.posted {
			tb.Fatalf("%s: %v, %d of %d requests completed", what, state, len(g.wcs), g.posted)
		}
		if q.open {
			tb.Fatalf("%s: %v, and its descriptor is open", what, state)
		}
	}
	if state != transport.StateReady && state != transport.StateClosing &&
		!bytes.Contains([]byte(err.Error()), []byte(sessionPeer)) {
		tb.Fatalf("%s: %v, and the peer is not named: %v", what, state, err)
	}
	if state == transport.StateReady && err != nil {
		tb.Fatalf("%s: ready, and %v", what, err)
	}
	g.end(tb)
	for _, m := range []transport.MR{g.open, g.recvs, g.into, g.words, g.old} {
		at := bytesAt(g.mem, m.Bytes())
		copy(m.Bytes(), g.clean[at:])
	}
}

// bytesAt tells where a part of some memory begins.
func bytesAt(all, part []byte) int { return cap(all) - cap(part) }

// tells sends bytes to the queue pair, drives it, and takes what it answers. It reports whether the connection
// stands still.
func (g *ground) tells(tb testing.TB, b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Write(g.wire, b)
		switch {
		case err == syscall.EPIPE:
			return false
		case err != nil && err != syscall.EAGAIN:
			tb.Fatal(err)
		}
		b = b[max(n, 0):]
		g.poll()
		for n := 1; n > 0; {
			n, _ = syscall.Read(g.wire, sink[:])
		}
	}
	g.poll()
	return g.qp.open
}

var sink [256 << 10]byte

// script makes the frames of a peer that keeps the rules, one after the other.
type script struct {
	*ground
	rand     *rand.Rand
	msn      uint64 // of the next message
	off      int    // of the Send that is under way
	got      int    // bytes of the queue pair's Read
	added    bool   // the end of its Atomic
	asked    int    // Reads
	messages int
}

// ruleAbiding makes a frame of each type such as a peer may send now; false if it may not. A type that is not
// in the table is sent with whatever its header can say: a new type joins by standing here.
var ruleAbiding = map[frame.Op]func(s *script) (frame.Header, []byte, bool){
	// the first frame, once: see begins
	frame.Ready: func(s *script) (frame.Header, []byte, bool) { return frame.Header{}, nil, false },
	frame.Alive: func(s *script) (frame.Header, []byte, bool) { return frame.Header{Flags: frame.Last}, nil, true },
	frame.Write: func(s *script) (frame.Header, []byte, bool) {
		n := s.rand.IntN(65)
		switch s.rand.IntN(60) {
		case 0:
			n = directMin + s.rand.IntN(groundOpen-directMin)
		case 1:
			n = s.rand.IntN(4096)
		}
		off := s.edge(groundOpen - n)
		return frame.Header{Flags: s.last(), A: uint64(s.open.Key()), B: uint64(off)}, s.bytes(n), true
	},
	frame.Send: func(s *script) (frame.Header, []byte, bool) {
		if s.messages == groundRecvs {
			return frame.Header{}, nil, false
		}
		room := groundRecv
		if s.messages%4 == 3 {
			room /= 2
		}
		n := s.edge(room - s.off)
		h := frame.Header{Flags: s.last(), A: s.msn, B: uint64(s.off)}
		if s.off += n; h.Flags&frame.Last != 0 {
			s.msn, s.off, s.messages = s.msn+1, 0, s.messages+1
		}
		return h, s.bytes(n), true
	},
	frame.Immediate: func(s *script) (frame.Header, []byte, bool) {
		if s.messages == groundRecvs || s.off > 0 {
			return frame.Header{}, nil, false
		}
		s.msn, s.messages = s.msn+1, s.messages+1
		return frame.Header{Flags: frame.Last | uint8(s.rand.IntN(2))*frame.Solicited, A: s.msn - 1,
			B: uint64(s.rand.Uint32())}, nil, true
	},
	frame.ReadRequest: func(s *script) (frame.Header, []byte, bool) {
		if s.asked == message.MaxReads {
			return frame.Header{}, nil, false
		}
		s.asked++
		n := 1 + s.rand.Uint64N(2000)
		cut := s.rand.Uint64N(n + 1)
		key := []transport.Key{s.source.Key(), s.open.Key()}[s.rand.IntN(2)]
		b := make([]byte, 3*frame.SegmentSize)
		frame.PutSegment(b, transport.Segment{Key: key, Offset: uint64(s.edge(4096 - int(n))), Length: n})
		frame.PutSegment(b[frame.SegmentSize:], transport.Segment{Key: 5, Offset: 1, Length: cut})
		frame.PutSegment(b[2*frame.SegmentSize:], transport.Segment{Key: 6, Offset: 2, Length: n - cut})
		return frame.Header{Flags: frame.Last, A: uint64(s.asked), B: 1<<32 | 2}, b, true
	},
	frame.ReadWrite: func(s *script) (frame.Header, []byte, bool) {
		if s.got == groundInto {
			return frame.Header{}, nil, false
		}
		n := 1 + s.rand.IntN(min(100, groundInto-s.got))
		at := s.got
		h := frame.Header{A: uint64(s.into.Key()), B: uint64(at)} // of Read 0
		if s.got += n; s.got == groundInto {
			h.Flags = frame.Last
		}
		return h, s.bytes(n), true
	},
	frame.Atomic: func(s *script) (frame.Header, []byte, bool) {
		if s.asked == message.MaxReads {
			return frame.Header{}, nil, false
		}
		s.asked++
		h, payload := atomicRequest(uint64(s.asked), s.words.Key(), uint64(8*s.edge(63)), s.rand.Uint64())
		return h, payload, true
	},
	frame.AtomicDone: func(s *script) (frame.Header, []byte, bool) {
		if s.got < groundInto || s.added {
			return frame.Header{}, nil, false
		}
		s.added = true
		return frame.Header{Flags: frame.Last, A: 1, B: s.rand.Uint64()}, nil, true
	},
	frame.Close: func(s *script) (frame.Header, []byte, bool) {
		return frame.Header{Flags: frame.Last}, nil,
			s.rand.IntN(100) == 0
	},
	frame.Terminate: func(s *script) (frame.Header, []byte, bool) {
		if s.rand.IntN(100) > 0 {
			return frame.Header{}, nil, false
		}
		code := []frame.Reason{frame.ReasonAccess, frame.ReasonNoRecv, frame.ReasonLocal, 0xffffff}[s.rand.IntN(4)]
		return frame.Header{Flags: frame.Last, A: uint64(code), B: s.rand.Uint64N(3)},
			s.bytes(s.rand.IntN(frame.MaxControl)), true
	},
}

// edge is a number up to limit, and often limit itself: one more then breaks a rule.
func (s *script) edge(limit int) int {
	if s.rand.IntN(6) == 0 {
		return limit
	}
	return s.rand.IntN(limit + 1)
}

func (s *script) last() uint8 { return uint8(s.rand.IntN(2)) * frame.Last }

func (s *script) bytes(n int) []byte {
	return bytes.Clone(noise[n:][:n])
}

// next appends a frame of a type, or of another if that one cannot be sent now.
func (s *script) next(b []byte, o frame.Op) ([]byte, frame.Op) {
	for ; ; o = s.some() {
		h, payload := frame.Header{Flags: uint8(s.rand.IntN(4)), A: s.rand.Uint64N(3), B: s.rand.Uint64N(3)},
			s.bytes(8*s.rand.IntN(6))
		if rule := ruleAbiding[o]; rule != nil {
			var may bool
			if h, payload, may = rule(s); !may {
				continue
			}
		}
		h.Op, h.Length = o, len(payload)
		return append(h.Append(b), payload...), o
	}
}

func (s *script) some() frame.Op {
	return frame.Ready + frame.Op(s.rand.IntN(int(frame.Ops-frame.Ready)))
}

// breaks changes a frame, which begins at from and ends the bytes, so that it most likely breaks a rule.
func (s *script) breaks(b []byte, from int) []byte {
	f := b[from:]
	odd := []uint64{0, 1, 7, 8, 1 << 31, 1<<32 - 1, 1 << 32, 1<<40 | 1<<32 | 2, 1<<63 - 1, 1 << 63, 1<<64 - 8, 1<<64 - 1,
		groundOpen, groundOpen - 1, maxMessage + 1,
		uint64(s.open.Key()), uint64(s.recvs.Key()), uint64(s.into.Key()), uint64(s.words.Key()),
		uint64(s.source.Key()), uint64(s.local.Key()), uint64(s.foreign.Key()),
		uint64(s.stale), uint64(s.open.Key()) ^ 1<<s.rand.IntN(64), s.rand.Uint64()}
	value := odd[s.rand.IntN(len(odd))]
	switch s.rand.IntN(10) {
	case 9: // one byte more, and all of it comes
		f = append(f, 0x5a)
		binary.LittleEndian.PutUint32(f, uint32(len(f)-frame.HeaderSize))
		return append(b[:from], f...)
	case 0:
		f[s.rand.IntN(frame.HeaderSize)] ^= 1 << s.rand.IntN(8)
	case 1:
		binary.LittleEndian.PutUint64(f[8:], value)
		if s.rand.IntN(2) == 0 { // at the beginning of what it names, if it names a region
			binary.LittleEndian.PutUint64(f[16:], 0)
		}
	case 2:
		binary.LittleEndian.PutUint64(f[16:], value)
	case 3:
		binary.LittleEndian.PutUint32(f, uint32(value))
	case 4:
		f[4] = byte(s.rand.IntN(int(frame.Ops) + 2))
	case 5: // something in the payload
		if n := len(f) - frame.HeaderSize; n > 0 {
			at := frame.HeaderSize + s.rand.IntN(n)&^7
			copy(f[at:], binary.LittleEndian.AppendUint64(nil, value))
		} else {
			return append(b, f...) // the same again
		}
	case 6:
		for i := range f[:min(len(f), frame.HeaderSize)] {
			f[i] = byte(s.rand.Uint32())
		}
	case 7: // bytes get lost, and what follows is read as something else
		return b[:len(b)-1-s.rand.IntN(len(f))]
	case 8: // a word goes elsewhere by a little
		at := 8 + 8*s.rand.IntN(2)
		binary.LittleEndian.PutUint64(f[at:], binary.LittleEndian.Uint64(f[at:])+uint64(s.rand.IntN(17))-8)
	}
	return b
}

// A million frames of peers that have proved who they are, nearly all right, each session with one or more
// that are not: nothing is placed where the peer may not, nothing panics or grows, and each session goes on
// or ends with an error that names the peer. The frames after the first that is wrong are not counted.
func TestFrames_AMillionOfHostilePeers(t *testing.T) {
	want := testlength.Of(1_000_000, 100_000)
	leaksNone(t, func(t *testing.T) {
		g := newGround(t)
		t.Logf("seed %d: run it again with -frames.seed=%d", *framesSeed, *framesSeed)
		var sent [frame.Ops]int
		ended := map[transport.State]int{}
		frames, sessions := 0, 0
		var before usage
		s := &script{}
		var b []byte
		for ; frames < want; sessions++ {
			if sessions == 100 {
				runtime.GC()
				before = used(t)
			}
			r := rand.New(rand.NewPCG(*framesSeed, uint64(sessions)))
			*s = script{ground: g, rand: r}
			initiator, closing := r.IntN(2) == 0, r.IntN(8) == 0
			g.enters(t, initiator, closing)
			// the peer answers no Read that it has not been asked for, and it is asked after its Ready
			if !initiator {
				g.tells(t, frame.Header{Op: frame.Ready, Flags: frame.Last}.Append(b[:0]))
				sent[frame.Ready]++
				frames++
			}
			b = b[:0]
			wrong := false
			for range 20 + r.IntN(120) {
				from := len(b)
				var o frame.Op
				b, o = s.next(b, s.some())
				if !wrong {
					sent[o]++
					frames++
				}
				if r.IntN(100) == 0 {
					b = s.breaks(b, from)
					wrong = true
				}
				// nothing is right after these
				wrong = wrong || o == frame.Close || o == frame.Terminate || ruleAbiding[o] == nil
				if len(b) > 64<<10 {
					if !g.tells(t, b) {
						break
					}
					b = b[:0]
				}
			}
			g.tells(t, b)
			ended[g.qp.State()]++
			if state := g.qp.State(); !wrong && state != transport.StateReady &&
				state != transport.StateClosing {
				t.Fatalf("session %d of seed %d: the peer has kept the rules, and %v: %v", sessions,
					*framesSeed, state, g.qp.Err())
			}
			g.leaves(t, fmt.Sprintf("session %d of seed %d", sessions, *framesSeed))
		}
		after := awaitUsage(t, before)
		t.Logf("%d frames in %d sessions, by type %v; ended %v; %+v before, %+v after", frames, sessions,
			sent[1:], ended, before, after)
		for o := frame.Ready; o < frame.Ops; o++ {
			require.Greater(t, sent[o], want/5000, "%v", o)
		}
		require.Greater(t, ended[transport.StateError], sessions/4)
		require.Greater(t, ended[transport.StateReady], sessions/20)
		require.Equal(t, before.goroutines, after.goroutines)
		require.Equal(t, before.descriptors, after.descriptors)
	})
}

// One frame of any type and with anything in it, in each state in which a peer can send one: as the first,
// after Ready, in the middle of a Send, with a Read half answered, after Close, and while this side closes.
func FuzzFrame(f *testing.F) {
	g := newGround(f)
	for o := frame.Ready; o <= frame.Ops; o++ {
		for state := range uint8(6) {
			s := &script{ground: g, rand: rand.New(rand.NewPCG(uint64(o), uint64(state)))}
			h, payload := frame.Header{Flags: frame.Last, A: 1, B: 1}, s.bytes(16)
			if rule := ruleAbiding[o]; rule != nil {
				if made, bytes, may := rule(s); may {
					h, payload = made, bytes
				}
			}
			f.Add(state, uint8(o), h.Flags, uint16(0), uint32(len(payload)), h.A, h.B, payload)
		}
	}
	f.Fuzz(func(t *testing.T, state, kind, flags uint8, lane uint16, length uint32, a, b uint64,
		payload []byte) {
		s := &script{ground: g, rand: rand.New(rand.NewPCG(1, 1))}
		g.enters(t, false, state%6 == 5)
		defer g.leaves(t, "the session")
		if state%6 > 0 {
			g.tells(t, frame.Header{Op: frame.Ready, Flags: frame.Last}.Append(nil))
		}
		part := s.bytes(16)
		switch state % 6 {
		case 2:
			g.tells(t, append(frame.Header{Length: len(part), Op: frame.Send}.Append(nil), part...))
		case 3:
			g.tells(t, append(frame.Header{Length: len(part), Op: frame.ReadWrite,
				A: uint64(g.into.Key())}.Append(nil), part...))
		case 4:
			g.tells(t, frame.Header{Op: frame.Close, Flags: frame.Last}.Append(nil))
		}
		encoded := frame.Header{Length: int(length), Op: frame.Op(kind), Flags: flags, A: a, B: b}.Append(nil)
		binary.LittleEndian.PutUint16(encoded[6:], lane)
		g.tells(t, append(encoded, payload[:min(len(payload), 64<<10)]...))
	})
}
