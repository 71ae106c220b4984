package tcp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// work is one request of a scene.
type work struct {
	op    transport.Opcode
	n     int
	flags transport.Flags
}

// scene is what both ends of a connection do to each other, each all of it, before both close.
type scene []work

var (
	// smallScene has every request, with and without bytes, longer and shorter than the tail of a Write.
	smallScene = scene{{transport.OpWrite, 24, 0}, {transport.OpSend, 17, 0}, {transport.OpWriteImm, 40, 0},
		{transport.OpRead, 30, 0},
		{transport.OpWrite, 3, 0}, {transport.OpSend, 0, 0}, {transport.OpWriteImm, 0, 0},
		{transport.OpSend, 20, transport.FlagInline | transport.FlagSolicited}}
	// largeScene has frames whose payload is gathered where it lies and read straight to its place.
	largeScene = scene{{transport.OpWrite, 70_000, 0}, {transport.OpSend, 35_003, 0},
		{transport.OpRead, 40_000, 0},
		{transport.OpWriteImm, 3_000, 0}, {transport.OpSend, 140_000, 0}}
)

// gap is between what two requests of a scene use of a region.
const gap = 16

// at is where the k-th request of a scene has its bytes, and where all of them end.
func (s scene) at(k int) (off int) {
	for _, w := range s[:k] {
		off += w.n + gap
	}
	return off
}

// actor is one end of a scene: its memory, and what has become of its requests.
type actor struct {
	scene scene
	who   int
	pd    transport.PD
	qp    transport.QP
	wcs   []transport.WC

	posted int // of the scene's requests

	// what it sends, what its peer writes, receives of it, and what it reads
	source, target, recvs, into transport.MR
}

func newActor(tb testing.TB, s scene, who int, pd transport.PD) *actor {
	a := &actor{scene: s, who: who, pd: pd}
	for mr, access := range map[*transport.MR]transport.Access{&a.source: transport.RemoteRead,
		&a.target: transport.RemoteWrite,
		&a.recvs:  transport.LocalWrite, &a.into: transport.LocalWrite} {
		var err error
		*mr, err = pd.Alloc(s.at(len(s)), access)
		require.NoError(tb, err)
	}
	return a
}

// pattern is the data of the k-th request of one end, none of it 0.
func pattern(who, k, n int) []byte {
	b := make([]byte, n)
	for at, block := 0, 0; at < n; block++ {
		at += copy(b[at:], oddNoise[(who*104_729+k*7919+block*65_537)%(len(oddNoise)/2):])
	}
	return b
}

// oddNoise has random bytes, none of them 0.
var oddNoise = func() []byte {
	list := bytes.Clone(noise)
	for i := range list {
		list[i] |= 1
	}
	return list
}()

const (
	sendID = 100
	recvID = 200
)

// begin has the memory as it is at the beginning of a scene.
func (a *actor) begin() {
	for _, m := range []transport.MR{a.source, a.target, a.recvs, a.into} {
		clear(m.Bytes())
	}
	for k, w := range a.scene {
		copy(a.source.Bytes()[a.scene.at(k):], pattern(a.who, k, w.n))
	}
	a.wcs, a.posted = nil, 0
}

// act posts everything and closes.
func (a *actor) act(tb testing.TB, qp transport.QP, peer *actor) {
	a.qp = qp
	two := func(m transport.MR, at, n, first int) []transport.SGE {
		return []transport.SGE{{MR: m, Offset: at, Length: first},
			{MR: m, Offset: at + first, Length: n - first}}
	}
	for k, w := range a.scene {
		if w.op == transport.OpSend || w.op == transport.OpWriteImm {
			n := w.n
			if w.op == transport.OpWriteImm {
				n = 0
			}
			require.NoError(tb, qp.PostRecv(&transport.RecvWR{ID: uint64(recvID + k),
				Local: two(a.recvs, a.scene.at(k), n, n/4)}))
		}
	}
	for k, w := range a.scene {
		at := a.scene.at(k)
		wr := &transport.SendWR{ID: uint64(sendID + k), Op: w.op, Flags: w.flags | transport.FlagSignaled}
		far := func(m transport.MR, first int) []transport.Segment {
			return []transport.Segment{{Key: m.Key(), Offset: uint64(at), Length: uint64(first)},
				{Key: m.Key(), Offset: uint64(at + first), Length: uint64(w.n - first)}}
		}
		switch w.op {
		case transport.OpSend:
			wr.Local = two(a.source, at, w.n, w.n/3)
		case transport.OpWrite, transport.OpWriteImm:
			wr.Local, wr.Remote, wr.Imm = two(a.source, at, w.n, w.n/3), far(peer.target, w.n)[:1],
				imm(a.who, k)
		case transport.OpRead:
			wr.Local, wr.Remote = two(a.into, at, w.n, w.n/3), far(peer.source, w.n/2)
		}
		if err := qp.PostSend(wr); err != nil { // the connection may have ended
			require.ErrorIs(tb, err, transport.ErrState)
			return
		}
		a.posted++
	}
	qp.Close()
}

func imm(who, k int) uint32 { return uint32(who+1)<<24 | uint32(k) }

// check tells what is wrong with what an end has been told: a completion that came twice or not at all, out
// of order, or without its bytes; a Write that looks complete and is not right; a byte that nobody may have
// written.
func (a *actor) check(peer *actor) error {
	seen := map[uint64]int{}
	succeeded := map[uint64]bool{}
	var received []transport.WC
	for _, wc := range a.wcs {
		if seen[wc.ID]++; seen[wc.ID] > 1 {
			return fmt.Errorf("request %d completes a second time", wc.ID)
		}
		if wc.Op == transport.OpRecv {
			received = append(received, wc)
		}
		succeeded[wc.ID] = wc.Status == transport.StatusSuccess
	}
	final := a.qp.State() == transport.StateClosed || a.qp.State() == transport.StateError
	used := func(m transport.MR, k, n int) []byte { return m.Bytes()[a.scene.at(k):][:n] }
	delivered := true // every Recv so far
	next := 0
	var open [2][][2]int // of target and of what receives: what the peer may write
	for k, w := range a.scene {
		want := pattern(peer.who, k, w.n)
		if w.op == transport.OpSend || w.op == transport.OpWriteImm {
			if next < len(received) {
				wc := received[next]
				next++
				if wc.ID != uint64(recvID+k) {
					return fmt.Errorf("Recv %d completes where %d is due", wc.ID, recvID+k)
				}
				if succeeded[wc.ID] && !delivered {
					return fmt.Errorf("Recv %d succeeds after one that did not", wc.ID)
				}
				delivered = succeeded[wc.ID]
				if delivered && wc.HasImm != (w.op == transport.OpWriteImm) || wc.HasImm &&
					wc.Imm != imm(peer.who, k) {
					return fmt.Errorf("Recv %d: %+v", wc.ID, wc)
				}
				if delivered && w.op == transport.OpSend && (wc.Bytes != w.n ||
					!bytes.Equal(used(a.recvs, k, w.n), want)) {
					return fmt.Errorf("Send %d was delivered with wrong bytes", k)
				}
			} else if delivered = false; final {
				return fmt.Errorf("Recv %d does not complete", recvID+k)
			}
		}
		switch w.op {
		case transport.OpSend:
			open[1] = append(open[1], [2]int{a.scene.at(k), w.n})
		case transport.OpWrite, transport.OpWriteImm:
			open[0] = append(open[0], [2]int{a.scene.at(k), w.n})
			got := used(a.target, k, w.n)
			visible := !bytes.Equal(got[max(0, w.n-tailSize):], make([]byte, min(w.n, tailSize)))
			if visible && !bytes.Equal(got, want) {
				return fmt.Errorf("the end of Write %d is there, and its bytes are wrong", k)
			}
			if w.op == transport.OpWriteImm && delivered && !bytes.Equal(got, want) {
				return fmt.Errorf("Write %d was delivered without its bytes", k)
			}
		case transport.OpRead:
			if succeeded[uint64(sendID+k)] && !bytes.Equal(used(a.into, k, w.n), want) {
				return fmt.Errorf("Read %d is complete with wrong bytes", k)
			}
		}
		if final && k < a.posted && seen[uint64(sendID+k)] == 0 {
			return fmt.Errorf("request %d does not complete", sendID+k)
		}
	}
	for i, m := range []transport.MR{a.target, a.recvs} {
		rest := slices.Clone(m.Bytes())
		for _, r := range open[i] {
			clear(rest[r[0]:][:r[1]])
		}
		if at := slices.IndexFunc(rest, func(b byte) bool { return b != 0 }); at >= 0 {
			return fmt.Errorf("byte %d was written, which nobody may write", at)
		}
	}
	return nil
}

// stage is two sessions and what they act.
type stage struct {
	ends   [2]*session
	actors [2]*actor
}

func newStage(tb testing.TB, s scene, checked bool) *stage {
	st := &stage{}
	for i := range st.ends {
		e := newSessionDevice(tb)
		e.agreed.Checksum = checked
		st.ends[i], st.actors[i] = e, newActor(tb, s, i, e.pd)
	}
	return st
}

// play acts the scene over a line with faults, and ends when nothing moves any more.
func (st *stage) play(tb testing.TB, to, from faults) [2]*wire {
	l := &line{wires: [2]*wire{{faults: to}, {faults: from}}}
	for i, e := range st.ends {
		st.actors[i].begin()
		e.begin(tb, i == 0)
	}
	for i, e := range st.ends {
		l.ends[i] = e
		st.actors[i].act(tb, e.qp, st.actors[1-i])
	}
	l.run(tb)
	for i, e := range st.ends {
		st.actors[i].wcs = e.wcs
	}
	return l.wires
}

// leave gives the queue pairs back.
func (st *stage) leave(tb testing.TB) {
	for _, e := range st.ends {
		e.end(tb)
	}
}

// errs is what is wrong at either end.
func (st *stage) errs() error {
	for i, a := range st.actors {
		if err := a.check(st.actors[1-i]); err != nil {
			return fmt.Errorf("end %d: %w", i, err)
		}
	}
	return nil
}

// ended wants both ends to have ended and at least one of them in error, with the peer named.
func (st *stage) ended(tb testing.TB) {
	failed := 0
	for i, e := range st.ends {
		switch e.qp.State() {
		case transport.StateError:
			failed++
			require.ErrorContains(tb, e.qp.Err(), sessionPeer)
		case transport.StateClosed:
		default:
			require.Fail(tb, "it goes on", "end %d is %v", i, e.qp.State())
		}
	}
	require.Positive(tb, failed, "nobody has noticed")
}

// Without faults a scene ends in order with everything right, in pieces of whatever size it comes.
func TestDamage_WithoutFaults(t *testing.T) {
	for name, s := range map[string]scene{"small": smallScene, "large": largeScene} {
		for _, checked := range []bool{false, true} {
			st := newStage(t, s, checked)
			for _, chop := range []int{0, 1, 7, 29, 4096, 20_011} {
				if chop > 0 && chop < 1000 && s.at(len(s)) > 10_000 {
					continue
				}
				t.Run(fmt.Sprintf("%s/checksum=%v/pieces=%d", name, checked, chop), func(t *testing.T) {
					wires := st.play(t, faults{chop: chop}, faults{chop: chop})
					require.NoError(t, st.errs())
					for i, e := range st.ends {
						require.Equal(t, transport.StateClosed, e.qp.State(), "%v", e.qp.Err())
						require.Equal(t, checked, e.qp.Query().Checksum)
						for _, wc := range e.wcs {
							require.Equal(t, transport.StatusSuccess, wc.Status)
						}
						if chop > 0 {
							require.GreaterOrEqual(t, wires[i].pieces.Load(),
								wires[i].passed.Load()/int64(chop))
						}
					}
					st.leave(t)
				})
			}
		}
	}
}

// lengths are how many bytes each direction of a scene has.
func (st *stage) lengths(tb testing.TB) (n [2]int) {
	for i, w := range st.play(tb, faults{}, faults{}) {
		n[i] = int(w.passed.Load())
	}
	st.leave(tb)
	return n
}

// noticed flips a bit of one direction. Its receiver finds it by a checksum, nothing of it is delivered, and
// both sides end. It reports whether the sender has heard why.
func (st *stage) noticed(t *testing.T, direction, bit int) (told bool) {
	var f [2]faults
	f[direction].flip = bit + 1
	wires := st.play(t, f[0], f[1])
	defer st.leave(t)
	require.Equal(t, int64(1), wires[direction].struck.Load(), "bit %d of direction %d was not flipped",
		bit, direction)
	require.NoError(t, st.errs(), "bit %d of direction %d", bit, direction)
	st.ended(t)
	receiver, sender := st.ends[1-direction].qp, st.ends[direction].qp
	require.ErrorIs(t, receiver.Err(), transport.ErrProtocol)
	require.ErrorContains(t, receiver.Err(), "bytes were changed on the way", "bit %d of direction %d", bit,
		direction)
	return strings.Contains(fmt.Sprint(sender.Err()), frame.ReasonChecksum.String())
}

// Every bit of a session with checksums, flipped by itself.
func TestDamage_EveryBitOfASessionIsNoticed(t *testing.T) {
	step := testlength.Of(1, 11)
	st := newStage(t, smallScene, true)
	told, all := 0, 0
	for direction, n := range st.lengths(t) {
		for bit := 0; bit < n*8; bit += step {
			all++
			if st.noticed(t, direction, bit) {
				told++
			}
		}
	}
	// Who has sent and received Close is through; and a responder that has not got Ready says nothing.
	require.Greater(t, told, all*8/10, "of %d senders", all)
}

// Of frames that are gathered, read to their place, and come in many pieces: a bit of every byte near the
// ends of frames, and others.
func TestDamage_LargeFrames(t *testing.T) {
	st := newStage(t, largeScene, true)
	random := rand.New(rand.NewPCG(1, 2))
	for direction, n := range st.lengths(t) {
		var bits []int
		for _, f := range st.frames(t, direction) {
			for at := f.begins; at < f.begins+frame.HeaderSize+frame.SumSize+tailSize; at += 13 {
				bits = append(bits, at*8+random.IntN(8))
			}
			for at := f.ends - tailSize - frame.SumSize; at < f.ends; at += 3 {
				bits = append(bits, at*8+random.IntN(8))
			}
		}
		for range 15 {
			bits = append(bits, random.IntN(n*8))
		}
		for i, bit := range bits {
			if bit < n*8 && (testlength.Whole() || i%8 == 0) {
				st.noticed(t, direction, bit)
			}
		}
	}
}

// extent is where a frame stands in the stream.
type extent struct{ begins, ends int }

// frames finds the frames of a direction.
func (st *stage) frames(t *testing.T, direction int) (list []extent) {
	var f [2]faults
	f[direction].keep = true
	wires := st.play(t, f[0], f[1])
	st.leave(t)
	for b, at := wires[direction].kept, 0; at < len(b); {
		h, err := frame.Parse(b[at:])
		require.NoError(t, err)
		size := len(frame.Append(nil, h, make([]byte, h.Length), true))
		list = append(list, extent{at, at + size})
		at += size
	}
	return list
}

// A connection that is cut after any byte of a session: what is posted completes once, both sides end, what
// was delivered is right.
func TestDamage_C5_CutAfterEveryByte(t *testing.T) {
	step := 1
	if raced && !testlength.Whole() {
		step = 5
	}
	for _, checked := range []bool{false, true} {
		st := newStage(t, smallScene, checked)
		for direction, n := range st.lengths(t) {
			for at := 0; at < n; at += step {
				var f [2]faults
				f[direction].cut = at + 1
				wires := st.play(t, f[0], f[1])
				require.Equal(t, int64(1), wires[direction].struck.Load(), "not cut at %d", at)
				require.Equal(t, int64(at), wires[direction].passed.Load())
				require.NoError(t, st.errs(), "cut at byte %d of direction %d", at, direction)
				st.ended(t)
				st.leave(t)
			}
		}
	}
}

// Without checksums a bit of a payload gets through: so the tests above would notice if there were none.
func TestDamage_WithoutChecksumItGetsThrough(t *testing.T) {
	for want, of := range map[string]struct {
		op frame.Op
		k  int // of the frames of that kind
	}{
		"the end of Write 0 is there, and its bytes are wrong": {frame.Write, 0},
		"Send 1 was delivered with wrong bytes":                {frame.Send, 0},
		"Read 3 is complete with wrong bytes":                  {frame.ReadWrite, 0},
	} {
		st := newStage(t, smallScene, false)
		wires := st.play(t, faults{keep: true}, faults{})
		st.leave(t)
		b, seen := wires[0].kept, 0
		for at := 0; ; {
			h, err := frame.Parse(b[at:])
			require.NoError(t, err)
			if h.Op == of.op {
				if seen++; seen > of.k {
					wires = st.play(t, faults{flip: (at+frame.HeaderSize+1)*8 + 1}, faults{})
					break
				}
			}
			at += frame.HeaderSize + h.Length
		}
		require.Equal(t, int64(1), wires[0].struck.Load())
		require.ErrorContains(t, st.errs(), want)
		require.Equal(t, transport.StateClosed, st.ends[1].qp.State(), "%v", st.ends[1].qp.Err())
		st.leave(t)
	}
}

// Whatever is done to the bytes of a session, by one that knows no checksum: nothing wrong is delivered.
func FuzzDamage(f *testing.F) {
	st := newStage(f, smallScene, true)
	n := st.lengths(f)
	f.Add(uint16(0), uint8(1), uint16(40), uint8(0xff), false)
	f.Add(uint16(28), uint8(0x80), uint16(52), uint8(0x80), true)
	f.Add(uint16(600), uint8(7), uint16(601), uint8(7), true)
	f.Fuzz(func(t *testing.T, first uint16, a uint8, second uint16, b uint8, answer bool) {
		direction := 0
		if answer {
			direction = 1
		}
		masks := map[int]byte{}
		masks[int(first)%n[direction]] ^= a
		masks[int(second)%n[direction]] ^= b
		var done [2]faults
		done[direction].masks = masks
		st.play(t, done[0], done[1])
		defer st.leave(t)
		require.NoError(t, st.errs())
	})
}
