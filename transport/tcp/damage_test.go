package tcp

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
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
	smallScene = scene{{transport.OpWrite, 24, 0}, {transport.OpSend, 17, 0}, {transport.OpWriteImm, 40, 0}, {transport.OpRead, 30, 0},
		{transport.OpWrite, 3, 0}, {transport.OpSend, 0, 0}, {transport.OpWriteImm, 0, 0},
		{transport.OpSend, 20, transport.FlagInline | transport.FlagSolicited}}
	// largeScene has frames whose payload is gathered where it lies and read straight to its place.
	largeScene = scene{{transport.OpWrite, 70_000, 0}, {transport.OpSend, 35_003, 0}, {transport.OpRead, 40_000, 0},
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
	cq    transport.CQ
	qp    transport.QP
	wcs   []transport.WC

	posted int // of the scene's requests

	source, target, recvs, into transport.MR // what it sends, what its peer writes, receives of it, and what it reads
}

func newActor(tb testing.TB, s scene, who int, pd transport.PD) *actor {
	a := &actor{scene: s, who: who, pd: pd}
	for mr, access := range map[*transport.MR]transport.Access{&a.source: transport.RemoteRead, &a.target: transport.RemoteWrite,
		&a.recvs: transport.LocalWrite, &a.into: transport.LocalWrite} {
		var err error
		*mr, err = pd.Alloc(s.at(len(s)), access)
		require.NoError(tb, err)
	}
	return a
}

// pattern is the data of the k-th request of one end, none of it 0.
func pattern(who, k, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(who*101+k*37+i*7+i>>8) | 1
	}
	return b
}

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
		return []transport.SGE{{MR: m, Offset: at, Length: first}, {MR: m, Offset: at + first, Length: n - first}}
	}
	for k, w := range a.scene {
		if w.op == transport.OpSend || w.op == transport.OpWriteImm {
			n := w.n
			if w.op == transport.OpWriteImm {
				n = 0
			}
			require.NoError(tb, qp.PostRecv(&transport.RecvWR{ID: uint64(recvID + k), Local: two(a.recvs, a.scene.at(k), n, n/4)}))
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
			wr.Local, wr.Remote, wr.Imm = two(a.source, at, w.n, w.n/3), far(peer.target, w.n)[:1], imm(a.who, k)
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

func imm(who, k int) uint64 { return uint64(who+1)<<32 | uint64(k) }

// check tells what is wrong with what an end has been told: a completion that came twice or not at all, out of order, or without its
// bytes; a Write that looks complete and is not right; a byte that nobody may have written.
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
					return fmt.Errorf("Recv %d succeeds behind one that did not", wc.ID)
				}
				delivered = succeeded[wc.ID]
				if delivered && wc.HasImm != (w.op == transport.OpWriteImm) || wc.HasImm && wc.Imm != imm(peer.who, k) {
					return fmt.Errorf("Recv %d: %+v", wc.ID, wc)
				}
				if delivered && w.op == transport.OpSend && (wc.Bytes != w.n || !bytes.Equal(used(a.recvs, k, w.n), want)) {
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
		e.agreed.checksum = checked
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
							require.GreaterOrEqual(t, wires[i].pieces.Load(), wires[i].passed.Load()/int64(chop))
						}
					}
					st.leave(t)
				})
			}
		}
	}
}

// Every bit of a session with checksums, flipped by itself: it is noticed, no byte of it is delivered, and both sides end.
func TestDamage_EveryBitOfASessionIsNoticed(t *testing.T) {
	st := newStage(t, smallScene, true)
	sound := st.play(t, faults{}, faults{})
	st.leave(t)
	for direction := range sound {
		for bit := range int(sound[direction].passed.Load()) * 8 {
			var f [2]faults
			f[direction].flip = bit + 1
			wires := st.play(t, f[0], f[1])
			require.Equal(t, int64(1), wires[direction].struck.Load(), "bit %d was not flipped", bit)
			require.NoError(t, st.errs(), "bit %d of direction %d", bit, direction)
			st.ended(t)
			// It is the receiver of the bit that finds it, by a checksum.
			require.ErrorContains(t, st.ends[1-direction].qp.Err(), "bytes were changed on the way", "bit %d of direction %d", bit, direction)
			st.leave(t)
		}
	}
}
