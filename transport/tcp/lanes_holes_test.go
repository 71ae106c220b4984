package tcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// played is a queue pair over two lanes whose peer is the test, frame by frame.
type played struct {
	*session
	*testing.T
	mem transport.MR // all rights
	ack uint64       // what the peer acknowledges
}

func newPlayed(t *testing.T) *played {
	p := &played{session: newSessionDevice(t), T: t, ack: 1}
	p.lanes = 2
	var err error
	p.mem, err = p.pd.Alloc(4096, transport.RemoteRead|transport.RemoteWrite|transport.RemoteAtomic)
	require.NoError(t, err)
	p.begin(t, true)
	t.Cleanup(func() { p.end(t) })
	return p
}

// says has the peer send a frame on a lane.
func (p *played) says(on int, h frame.Header, n, ref uint64, payload ...byte) {
	p.Helper()
	fd := p.wire
	if on > 0 {
		fd = p.wires[on-1]
	}
	b := frame.AppendOverLane(nil, h, uint16(on), n, p.ack, ref, payload, false)
	k, err := syscall.Write(fd, b)
	require.NoError(p, err)
	require.Equal(p, len(b), k)
	p.poll()
}

// hears are the frames that have come to the peer on a lane.
func (p *played) hears(on int) (list []frame.LaneHeader, payloads [][]byte) {
	p.Helper()
	p.poll()
	fd := p.wire
	if on > 0 {
		fd = p.wires[on-1]
	}
	var b [1 << 16]byte
	n, err := syscall.Read(fd, b[:])
	if err != nil {
		return nil, nil
	}
	for raw := b[:n]; len(raw) > 0; {
		h, err := frame.ParseOverLane(raw, uint16(on))
		require.NoError(p, err)
		raw = raw[frame.LaneHeaderSize:]
		if h.Op != frame.Ready && h.Op != frame.Alive {
			list = append(list, h)
			payloads = append(payloads, bytes.Clone(raw[:h.Length]))
		}
		raw = raw[h.Length:]
	}
	return list, payloads
}

func (p *played) recv(id uint64, off, n int) {
	require.NoError(p, p.qp.PostRecv(&transport.RecvWR{ID: id,
		Local: []transport.SGE{{MR: p.mem, Offset: off, Length: n}}}))
}

func (p *played) at(off, n int) string { return string(p.mem.Bytes()[off:][:n]) }

func (p *played) write(on int, n, first uint64, flags uint8, off int, text string) {
	p.says(on, frame.Header{Op: frame.Write, Flags: flags, A: uint64(p.mem.Key()), B: uint64(off)}, n, first,
		[]byte(text)...)
}

// What comes beyond a hole is in its place at once: a Write, a Send in its Recv, the answer to a Read.
// Nothing is told before the hole has closed; then all of it is, in order.
func TestLanes_H1_H3_PlacedAtOnceAndToldInOrder(t *testing.T) {
	p := newPlayed(t)
	p.recv(1, 0, 16)
	p.recv(2, 16, 16)
	p.recv(3, 32, 16)
	require.NoError(t, p.qp.PostSend(&transport.SendWR{ID: 4, Op: transport.OpRead,
		Flags:  transport.FlagSignaled,
		Local:  []transport.SGE{{MR: p.mem, Offset: 100, Length: 8}},
		Remote: []transport.Segment{{Key: 7, Length: 8}}}))
	p.hears(0)
	p.ack = 2

	p.says(1, frame.Header{Op: frame.Send, Flags: frame.Last, A: 1}, 3, 0, []byte("second")...)
	p.write(1, 4, 4, frame.Last, 64, "a write of one frame")
	p.says(1, frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.mem.Key()), B: 100}, 5, 0,
		[]byte("answered")...)
	p.says(1, frame.Header{Op: frame.Immediate, Flags: frame.Last, A: 2, B: 42}, 7, 0)
	require.Equal(t, "second", p.at(16, 6))
	require.Equal(t, "a write of one frame", p.at(64, 20))
	require.Equal(t, "answered", p.at(100, 8))
	require.Empty(t, p.wcs, "nothing is told while something before it is missing")
	require.Equal(t, 2, p.qp.Lanes().Holes)

	p.says(0, frame.Header{Op: frame.Send, A: 0}, 1, 0, []byte("fir")...)
	require.Empty(t, p.wcs)
	p.says(0, frame.Header{Op: frame.Send, Flags: frame.Last, A: 0, B: 3}, 2, 0, []byte("st")...)
	require.Len(t, p.wcs, 3)
	for i, want := range []transport.WC{{ID: 1, Op: transport.OpRecv, Bytes: 5},
		{ID: 2, Op: transport.OpRecv, Bytes: 6},
		{ID: 4, Op: transport.OpRead, Bytes: 8}} {
		want.QP = p.qp.Num()
		require.Equal(t, want, p.wcs[i])
	}
	require.Equal(t, "first", p.at(0, 5))
	p.write(0, 6, 6, frame.Last, 200, "x")
	require.Equal(t, transport.WC{ID: 3, QP: p.qp.Num(), Op: transport.OpRecv, HasImm: true, Imm: 42}, p.wcs[3])
	require.Zero(t, p.qp.Lanes().Holes)
	require.Equal(t, uint64(2), p.qp.Lanes().HolesClosed)
}

// The doorbell of a Read Request, and of an Atomic, rings when the hole before it has closed: the Read finds
// the Write that was missing, and the Atomic is carried out then, once.
func TestLanes_H3_DoorbellRingsWhenTheHoleCloses(t *testing.T) {
	p := newPlayed(t)
	request := make([]byte, 2*frame.SegmentSize)
	frame.PutSegment(request, transport.Segment{Key: p.mem.Key(), Offset: 8, Length: 4})
	frame.PutSegment(request[frame.SegmentSize:], transport.Segment{Key: 5, Length: 4})
	h, atomic := atomicRequest(1, p.mem.Key(), 16, 5)
	p.says(1, frame.Header{Op: frame.ReadRequest, Flags: frame.Last, A: 0, B: 1<<32 | 1}, 2, 0, request...)
	p.says(1, h, 3, 1, atomic...)
	heard, _ := p.hears(0)
	require.Empty(t, heard)
	require.Zero(t, binary.NativeEndian.Uint64(p.mem.Bytes()[16:]))
	p.write(0, 1, 1, frame.Last, 8, "late")
	heard, payloads := p.hears(0)
	require.Len(t, heard, 2)
	require.Equal(t, "late", string(payloads[0]))
	require.Equal(t, []frame.Op{frame.ReadWrite, frame.AtomicDone}, []frame.Op{heard[0].Op, heard[1].Op})
	require.Equal(t, uint64(5), binary.NativeEndian.Uint64(p.mem.Bytes()[16:]))
}

// The last bytes of a Write come last, whichever of its frames comes first.
func TestLanes_H1_TailWaitsForTheWholeWrite(t *testing.T) {
	p := newPlayed(t)
	p.write(1, 3, 1, frame.Last, 20, "67890123ABCDEFGH")
	require.Equal(t, "67890123", p.at(20, 8))
	require.Equal(t, make([]byte, 8), []byte(p.at(28, 8)), "the tail is placed before the rest")
	p.write(0, 1, 1, 0, 0, "0123456789")
	require.Equal(t, make([]byte, 8), []byte(p.at(28, 8)), "the tail is placed before the rest")
	p.write(0, 2, 1, 0, 10, "0123456789")
	require.Equal(t, "01234567890123456789"+"67890123ABCDEFGH", p.at(0, 36))

	// What is missing need not be a Write's frame.
	p.recv(1, 200, 8)
	p.write(0, 4, 4, 0, 100, "begin")
	p.write(1, 6, 4, frame.Last, 105, "and the end")
	require.Equal(t, make([]byte, 8), []byte(p.at(108, 8)))
	p.says(0, frame.Header{Op: frame.Send, Flags: frame.Last}, 5, 0, 1)
	require.Equal(t, "beginand the end", p.at(100, 16))
}

// A number that has come is dropped before its key is looked at: the region may be gone by then. And it is
// not carried out again.
func TestLanes_H5_AgainIsDroppedBeforeItsKey(t *testing.T) {
	p := newPlayed(t)
	gone, err := p.pd.Alloc(64, transport.RemoteWrite)
	require.NoError(t, err)
	h := frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(gone.Key())}
	p.says(0, h, 1, 1, []byte("payload")...)
	add, atomic := atomicRequest(0, p.mem.Key(), 0, 1)
	p.says(0, add, 2, 0, atomic...)
	require.NoError(t, gone.Deregister())
	p.says(1, h, 1, 1, []byte("payload")...)
	p.says(1, add, 2, 0, atomic...)
	require.NoError(t, p.qp.Err())
	require.Equal(t, uint64(2), p.qp.Lanes().Duplicates)
	require.Equal(t, uint64(1), binary.NativeEndian.Uint64(p.mem.Bytes()))
	p.says(1, h, 3, 3, []byte("payload")...) // a new one with that key is what it always was
	require.ErrorIs(t, p.qp.Err(), transport.ErrAccess)
}

// An error beyond a hole is told when all before it has been: the messages before it complete.
func TestLanes_H3_ErrorsWaitForTheirTurn(t *testing.T) {
	p := newPlayed(t)
	p.recv(1, 0, 8)
	p.says(1, frame.Header{Op: frame.Write, Flags: frame.Last, A: 12345}, 2, 2, []byte("nowhere")...)
	p.write(1, 3, 3, frame.Last, 64, "after")
	require.NoError(t, p.qp.Err())
	p.says(0, frame.Header{Op: frame.Send, Flags: frame.Last}, 1, 0, []byte("first")...)
	require.Equal(t, uint64(1), p.wcs[0].ID)
	require.Equal(t, transport.StatusSuccess, p.wcs[0].Status)
	require.ErrorIs(t, p.qp.Err(), transport.ErrAccess)
	heard, _ := p.hears(0)
	require.Equal(t, frame.Terminate, heard[len(heard)-1].Op)
	require.Equal(t, uint64(2), heard[len(heard)-1].Ref, "the frame that was wrong is named")
}

// A request completes, and its buffer is free, when its last frame is acknowledged and not before. What a
// lost lane carried goes over another one when the peer has told that it takes nothing of that lane any more,
// and not before; what has arrived does not go again; and what goes is what the buffer has.
func TestLanes_H5_AgainWhenThePeerHasClosedTheLane(t *testing.T) {
	p := newPlayed(t)
	copy(p.mem.Bytes(), "onetwo")
	post := func(id uint64, off int) {
		require.NoError(t, p.qp.PostSend(&transport.SendWR{ID: id, Op: transport.OpSend,
			Flags: transport.FlagSignaled,
			Local: []transport.SGE{{MR: p.mem, Offset: off, Length: 3}}}))
	}
	post(1, 0)
	post(2, 3)
	add := &transport.SendWR{ID: 3, Op: transport.OpFetchAdd, Operand: 1, Flags: transport.FlagSignaled,
		Local:  []transport.SGE{{MR: p.mem, Offset: 8, Length: 8}},
		Remote: []transport.Segment{{Key: 9, Length: 8}}}
	require.NoError(t, p.qp.PostSend(add))
	heard, _ := p.hears(0)
	require.Len(t, heard, 3)
	require.Empty(t, p.wcs, "complete before it is acknowledged")
	h, atomic := atomicRequest(0, p.mem.Key(), 16, 1)
	p.says(0, h, 1, 0, atomic...)
	heard, _ = p.hears(0)
	require.Equal(t, []frame.Op{frame.AtomicDone}, []frame.Op{heard[0].Op})

	require.NoError(t, syscall.Close(p.wire)) // the lane that carried all that
	p.wire = p.wires[0]
	p.wires = nil
	heard, payloads := p.hearsOn1()
	require.Len(t, heard, 1, "something goes again before the peer has closed its side")
	require.Equal(t, frame.Lost, heard[0].Op)
	told, _, err := frame.ParseLost(payloads[0], heard[0].Ack)
	require.NoError(t, err)
	require.Equal(t, []uint16{0}, told.Closed)

	binary.NativeEndian.PutUint64(p.mem.Bytes()[16:], 99) // the answer is not made anew
	lost := frame.AppendLost(nil, frame.LostLanes{Version: 1, Heard: 1, Closed: []uint16{0}}, 1,
		[]frame.Range{{From: 2, To: 2}})
	p.saysOn1(frame.Header{Op: frame.Lost, Flags: frame.Last}, 0, 0, lost...)
	heard, payloads = p.hearsOn1()
	var ops []frame.Op
	var numbers []uint64
	for _, h := range heard {
		ops, numbers = append(ops, h.Op), append(numbers, h.Number)
	}
	require.Equal(t, []frame.Op{frame.Lost, frame.Send, frame.Atomic, frame.AtomicDone}, ops)
	require.Equal(t, []uint64{0, 1, 3, 4}, numbers, "what has arrived does not go again")
	require.Equal(t, "one", string(payloads[1]))
	require.Zero(t, heard[3].B, "the word as it was")
	require.Empty(t, p.wcs)
	p.ack = 3
	p.saysOn1(frame.Header{Op: frame.Alive, Flags: frame.Last}, 0, 0)
	require.Equal(t, []uint64{1, 2}, []uint64{p.wcs[0].ID, p.wcs[1].ID})
	require.Len(t, p.wcs, 2)
	p.ack = 5
	p.saysOn1(frame.Header{Op: frame.AtomicDone, Flags: frame.Last, A: 0, B: 77}, 2, 0)
	require.Equal(t, uint64(3), p.wcs[2].ID)
	require.Equal(t, uint64(77), binary.NativeEndian.Uint64(p.mem.Bytes()[8:]))
	require.Equal(t, uint64(1), p.qp.Lanes().Down)
	require.NotZero(t, p.qp.Lanes().Resent)
}

// saysOn1 and hearsOn1 are for when lane 0 is gone, and lane 1 has its place.
func (p *played) saysOn1(h frame.Header, n, ref uint64, payload ...byte) {
	p.Helper()
	b := frame.AppendOverLane(nil, h, 1, n, p.ack, ref, payload, false)
	_, err := syscall.Write(p.wire, b)
	require.NoError(p, err)
	p.poll()
}

func (p *played) hearsOn1() ([]frame.LaneHeader, [][]byte) {
	p.wires = []int{p.wire}
	defer func() { p.wires = nil }()
	return p.hears(1)
}

// A frame of another lane, and one whose number cannot be, ends the queue pair.
func TestLanes_WrongWordsAreViolations(t *testing.T) {
	for text, f := range map[string]func(p *played) []byte{
		"Write with flags": func(p *played) []byte {
			return frame.AppendOverLane(nil, frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(p.mem.Key())}, 1, 1,
				1, 1, []byte("x"), false)
		},
		"with sequence number 0": func(p *played) []byte {
			return frame.AppendOverLane(nil, frame.Header{Op: frame.Send, Flags: frame.Last}, 0, 0, 1, 0, nil, false)
		},
		"Alive with sequence number 1": func(p *played) []byte {
			return frame.AppendOverLane(nil, frame.Header{Op: frame.Alive, Flags: frame.Last}, 0, 1, 1, 0, nil, false)
		},
		"beyond the window": func(p *played) []byte {
			return frame.AppendOverLane(nil, frame.Header{Op: frame.Send, Flags: frame.Last}, 0, 1+frame.Window, 1, 0, nil,
				false)
		},
		"what was not sent": func(p *played) []byte {
			return frame.AppendOverLane(nil, frame.Header{Op: frame.Alive, Flags: frame.Last}, 0, 0, 2, 0, nil, false)
		},
	} {
		p := newPlayed(t)
		_, err := syscall.Write(p.wire, f(p))
		require.NoError(t, err)
		p.poll()
		require.ErrorIs(t, p.qp.Err(), transport.ErrProtocol, text)
		require.ErrorContains(t, p.qp.Err(), text)
	}
}

// readOf is a Read Request for a stretch of a region, into memory of the peer.
func readOf(number uint64, mr transport.MR, off, n uint64) (frame.Header, []byte) {
	b := make([]byte, 2*frame.SegmentSize)
	frame.PutSegment(b, transport.Segment{Key: mr.Key(), Offset: off, Length: n})
	frame.PutSegment(b[frame.SegmentSize:], transport.Segment{Key: 5, Length: n})
	return frame.Header{Op: frame.ReadRequest, Flags: frame.Last, A: number, B: 1<<32 | 1}, b
}

// A Read Request that is wrong, or claims the place of another one, ends the queue pair when its turn comes,
// and spoils nothing of the one that is stored there.
func TestLanes_H3_WrongReadRequestSpoilsNoOther(t *testing.T) {
	for name, wrong := range map[string]func(p *played) (frame.Header, []byte){
		"too many segments": func(*played) (frame.Header, []byte) {
			return frame.Header{Op: frame.ReadRequest, Flags: frame.Last, A: 1, B: 1<<63 | 1}, nil
		},
		"no segments": func(*played) (frame.Header, []byte) {
			return frame.Header{Op: frame.ReadRequest, Flags: frame.Last, A: 1}, nil
		},
		"another length": func(p *played) (frame.Header, []byte) {
			h, b := readOf(1, p.mem, 8, 4)
			b[2*frame.SegmentSize-8]++
			return h, b
		},
		"the same place": func(p *played) (frame.Header, []byte) {
			return readOf(1, p.mem, 64, 4)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlayed(t)
			good, request := readOf(0, p.mem, 8, 4)
			p.says(1, good, 2, 0, request...)
			bad, request := wrong(p)
			p.says(0, bad, 3, 0, request...)
			require.NoError(t, p.qp.Err(), "what is wrong beyond a hole is said when the hole is closed")
			p.write(0, 1, 1, frame.Last, 8, "read")
			require.ErrorIs(t, p.qp.Err(), transport.ErrProtocol)
			require.ErrorContains(t, p.qp.Err(), "rank 1")
		})
	}
}

// A frame that comes whole over one lane while another is in the middle of it ends the queue pair, and does
// not count twice.
func TestLanes_H5_OneFrameOverTwoLanesAtOnce(t *testing.T) {
	for name, encoded := range map[string]func(p *played) (frame.Header, uint64, []byte){
		"Write": func(p *played) (frame.Header, uint64, []byte) {
			return frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(p.mem.Key())}, 2, []byte("twelve bytes")
		},
		"Read Request": func(p *played) (frame.Header, uint64, []byte) {
			h, b := readOf(0, p.mem, 8, 4)
			return h, 0, b
		},
		"Atomic": func(p *played) (frame.Header, uint64, []byte) {
			h, b := atomicRequest(0, p.mem.Key(), 16, 5)
			return h, 0, b
		},
		"Send": func(p *played) (frame.Header, uint64, []byte) {
			return frame.Header{Op: frame.Send, Flags: frame.Last}, 0, []byte("hello")
		},
	} {
		for _, hole := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/beyond a hole %v", name, hole), func(t *testing.T) {
				p := newPlayed(t)
				p.recv(1, 200, 64)
				h, ref, payload := encoded(p)
				if !hole {
					p.write(0, 1, 1, frame.Last, 100, "first")
				}
				whole := frame.AppendOverLane(nil, h, 1, 2, p.ack, ref, payload, false)
				part := len(whole) - 1
				_, err := syscall.Write(p.wires[0], whole[:part])
				require.NoError(t, err)
				p.poll()
				p.says(0, h, 2, ref, payload...)
				if p.qp.Err() == nil { // a Send is found out when its message would be complete
					_, err = syscall.Write(p.wires[0], whole[part:])
					require.NoError(t, err)
					p.poll()
				}
				require.ErrorIs(t, p.qp.Err(), transport.ErrProtocol)
				require.Equal(t, uint64(0), binary.NativeEndian.Uint64(p.mem.Bytes()[16:])%5,
					"once, or not at all")
				require.LessOrEqual(t, binary.NativeEndian.Uint64(p.mem.Bytes()[16:]), uint64(5))
			})
		}
	}
}
