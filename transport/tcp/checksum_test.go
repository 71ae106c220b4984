package tcp

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

func newCheckedSession(tb testing.TB) *session {
	s := newSessionDevice(tb)
	s.agreed.Checksum = true
	return s
}

var readyChecked = frame.Append(nil, frame.Header{Op: frame.Ready, Flags: frame.Last}, nil, true)

// The whole of a Write has come but for its checksum, or with a wrong one: its last bytes are not there, so
// that who polls them waits. With the right one they are, however it comes in pieces.
func TestChecksum_EndOfAWriteIsPlacedAfterItsChecksum(t *testing.T) {
	for _, rights := range []transport.Access{transport.RemoteWrite, transport.RemoteWrite | transport.SoleWriter} {
		t.Run(rights.String(), func(t *testing.T) { endAfterItsChecksum(t, rights) })
	}
}

func endAfterItsChecksum(t *testing.T, rights transport.Access) {
	s := newCheckedSession(t)
	target, err := s.pd.Alloc(100_000, rights)
	require.NoError(t, err)
	for _, n := range []int{1, 7, 8, 9, 64, 5000, stagingSize + 2*directMin} { // the last goes on straight
		data := pattern(1, n, n)
		whole := frame.Append(nil, frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(target.Key()), B: 8}, data,
			true)
		last := target.Bytes()[8+max(0, n-tailSize):][:min(n, tailSize)]
		for _, end := range [][]byte{whole[len(whole)-frame.SumSize:], {1, 2, 3, 4}} {
			for first := range frame.SumSize {
				s.begin(t, false)
				clear(target.Bytes())
				s.says(t, readyChecked)
				s.says(t, whole[:len(whole)-frame.SumSize])
				require.Equal(t, make([]byte, len(last)), last, "%d bytes without a checksum", n)
				s.says(t, end[:first:first])
				require.Equal(t, make([]byte, len(last)), last, "%d bytes with %d of a checksum", n, first)
				require.Zero(t, s.cq.Placed(make([]transport.QPN, 1)))
				s.says(t, end[first:])
				if end[0] == 1 {
					require.Equal(t, make([]byte, len(last)), last, "%d bytes with a wrong checksum", n)
					require.Zero(t, s.cq.Placed(make([]transport.QPN, 1)))
					require.ErrorContains(t, s.qp.Err(),
						fmt.Sprintf("the payload of a Write of %d bytes is %08x where 04030201 was sent", n,
							crc32.Checksum(data, frame.Castagnoli)))
					told := s.heard(t)
					require.Equal(t, []frame.Op{frame.Terminate}, kinds(told))
					require.Equal(t, frame.ReasonChecksum, frame.Reason(told[0].A))
				} else {
					require.Equal(t, data, target.Bytes()[8:8+n])
					require.Equal(t, 1, s.cq.Placed(make([]transport.QPN, 1)))
				}
				s.end(t)
			}
		}
	}
}

// A header with a wrong checksum is not looked at, whatever it says.
func TestChecksum_NothingOfADamagedHeaderIsBelieved(t *testing.T) {
	s := newCheckedSession(t)
	for _, h := range []frame.Header{{Op: frame.Write, A: 0xbad}, {Op: frame.Send, Length: 100}, {Op: frame.Terminate},
		{Op: 99}, {Length: 1 << 30},
		{Op: frame.Close}, {Op: frame.ReadWrite}} {
		s.begin(t, false)
		s.says(t, readyChecked)
		require.NoError(t, s.qp.PostRecv(&transport.RecvWR{ID: 1}))
		s.says(t, append(h.Append(nil), 0xde, 0xad, 0xbe, 0xef))
		require.ErrorIs(t, s.qp.Err(), transport.ErrProtocol)
		require.ErrorContains(t, s.qp.Err(), sessionPeer)
		require.ErrorContains(t, s.qp.Err(), "the CRC32C of a frame's header is")
		require.ErrorContains(t, s.qp.Err(), "where efbeadde was sent")
		require.Len(t, s.wcs, 1)
		require.Equal(t, transport.StatusFlushed, s.wcs[0].Status)
		require.Equal(t, frame.ReasonChecksum, frame.Reason(s.heard(t)[0].A))
		s.end(t)
	}
}

// A region that is given up when a Write to it has come but for its checksum ends the queue pair, and is not
// written.
func TestChecksum_RegionGivenUpBeforeTheChecksum(t *testing.T) {
	s := newCheckedSession(t)
	mem := make([]byte, 64)
	target, err := s.pd.Register(mem, transport.RemoteWrite)
	require.NoError(t, err)
	whole := frame.Append(nil, frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(target.Key())},
		pattern(1, 1, 64), true)
	s.begin(t, false)
	defer s.end(t)
	s.says(t, readyChecked)
	s.says(t, whole[:len(whole)-1])
	require.NoError(t, target.Deregister())
	s.says(t, whole[len(whole)-1:])
	require.ErrorIs(t, s.qp.Err(), transport.ErrAccess)
	require.Equal(t, make([]byte, tailSize), mem[64-tailSize:])
}

// The memory that a peer writes may be written by others at the same time, and that is no damage of what has
// come: so the checksum is never taken of what stands there. What only this frame may write is read straight
// to its place.
func TestChecksum_IsNotOfMemoryThatOthersWrite(t *testing.T) {
	for _, checked := range []bool{false, true} {
		s := newSessionDevice(t)
		s.agreed.Checksum = checked
		mem, err := s.pd.Alloc(frame.MaxPayload, transport.RemoteWrite)
		require.NoError(t, err)
		sole, err := s.pd.Alloc(frame.MaxPayload, transport.RemoteWrite|transport.SoleWriter)
		require.NoError(t, err)
		for _, h := range []frame.Header{{Op: frame.Write, A: uint64(mem.Key())}, {Op: frame.Send},
			{Op: frame.Write, A: uint64(sole.Key())}} {
			s.begin(t, false)
			require.NoError(t, s.qp.PostRecv(&transport.RecvWR{Local: []transport.SGE{{MR: mem,
				Length: frame.MaxPayload}}}))
			s.says(t, frame.Append(nil, frame.Header{Op: frame.Ready}, nil, checked))
			whole := frame.Append(nil, h, make([]byte, frame.MaxPayload), checked)
			s.says(t, whole[:1000])
			require.Equal(t, checked && h.A == uint64(mem.Key()), firstLink(s.qp).direct() == nil, "%v", h.Op)
			s.end(t)
		}
	}
}

// What is read straight to its place is checked as it comes. So a region that is given up meanwhile is not
// written any more, nor is the one that has its entry then; a bit that is wrong anywhere is noticed; and what
// others write there between the pieces is no damage: the same queue pair over another lane, or another one.
func TestChecksum_SoleWriterInPieces(t *testing.T) {
	const n, rights = frame.MaxPayload, transport.RemoteWrite | transport.SoleWriter
	write := func(m transport.MR, k int) []byte {
		return frame.Append(nil, frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(m.Key())},
			pattern(1, k, n), true)
	}
	// begun has the first half of a Write come, more than the staging memory takes.
	begun := func(t *testing.T, s *session, m transport.MR, whole []byte) {
		s.says(t, readyChecked)
		s.says(t, whole[:len(whole)/2])
		require.NotNil(t, firstLink(s.qp).direct())
		require.Equal(t, whole[frame.HeaderSizeWith(true):len(whole)/2],
			m.Bytes()[:len(whole)/2-frame.HeaderSizeWith(true)])
	}
	t.Run("given up", func(t *testing.T) {
		s := newCheckedSession(t)
		m, err := s.pd.Alloc(n, rights)
		require.NoError(t, err)
		s.begin(t, false)
		defer s.end(t)
		whole := write(m, 1)
		begun(t, s, m, whole)
		entry := m.(*verbs.Region).Index()
		require.NoError(t, m.Deregister())
		other, err := s.pd.Alloc(n, rights)
		require.NoError(t, err)
		require.Equal(t, entry, other.(*verbs.Region).Index())
		s.says(t, whole[len(whole)/2:])
		require.ErrorIs(t, s.qp.Err(), transport.ErrAccess)
		require.Equal(t, make([]byte, n), other.Bytes())
	})
	t.Run("given up after a frame", func(t *testing.T) {
		s := newCheckedSession(t)
		m, err := s.pd.Alloc(n, rights)
		require.NoError(t, err)
		s.begin(t, false)
		defer s.end(t)
		s.says(t, readyChecked)
		s.says(t, write(m, 1))
		require.True(t, firstLink(s.qp).expectsLong())
		require.NoError(t, m.Deregister())
		// The entry may be used by others, beside this goroutine.
		require.False(t, firstLink(s.qp).expectsLong())
	})
	t.Run("damaged", func(t *testing.T) {
		s := newCheckedSession(t)
		m, err := s.pd.Alloc(n, rights)
		require.NoError(t, err)
		for _, at := range []int{0, directMin, stagingSize, n / 2, n - directMin, n - tailSize - 1, n - 1, n} {
			clear(m.Bytes())
			s.begin(t, false)
			whole := write(m, 1)
			whole[frame.HeaderSizeWith(true)+at] ^= 1
			s.says(t, readyChecked)
			for piece := range slices.Chunk(whole, n/3) {
				s.says(t, piece)
			}
			require.ErrorContains(t, s.qp.Err(), "the payload of a Write")
			require.Equal(t, make([]byte, tailSize), m.Bytes()[n-tailSize:])
			require.Zero(t, s.cq.Placed(make([]transport.QPN, 1)))
			s.end(t)
		}
	})
	t.Run("two queue pairs", func(t *testing.T) {
		s := newCheckedSession(t)
		m, err := s.pd.Alloc(n, rights)
		require.NoError(t, err)
		s.begin(t, false)
		defer s.end(t)
		first := write(m, 1)
		begun(t, s, m, first)
		o := *s
		o.begin(t, false)
		defer o.end(t)
		second := write(m, 2)
		begun(t, &o, m, second)
		s.says(t, first[len(first)/2:])
		o.says(t, second[len(second)/2:])
		require.NoError(t, s.qp.Err())
		require.NoError(t, o.qp.Err())
		require.Equal(t, pattern(1, 2, n), m.Bytes())
	})
	t.Run("two lanes", func(t *testing.T) {
		p := &played{session: newCheckedSession(t), T: t, ack: 1}
		p.lanes = 2
		m, err := p.pd.Alloc(n, rights)
		require.NoError(t, err)
		p.begin(t, true)
		defer p.end(t)
		var frames [2][]byte
		for i := range frames {
			frames[i] = frame.AppendOverLane(nil, frame.Header{Op: frame.Write, Flags: frame.Last,
				A: uint64(m.Key())}, uint16(i), uint64(i+1), p.ack, uint64(i+1), pattern(1, i, n), true)
		}
		p.session.says(t, frames[0][:n/2])
		require.NotNil(t, firstLink(p.qp).direct())
		for piece := range slices.Chunk(frames[1], n/3) {
			_, err := syscall.Write(p.wires[0], piece)
			require.NoError(t, err)
			p.poll()
		}
		require.Equal(t, pattern(1, 1, n), m.Bytes())
		p.session.says(t, frames[0][n/2:])
		require.NoError(t, p.qp.Err())
		require.Len(t, lanesOf(p.qp).conns, 2)
		require.Equal(t, pattern(1, 0, n)[n/2:], m.Bytes()[n/2:])
	})
}

// The memory that a peer reads may change at any time: what goes out always has the checksum of itself.
func TestChecksum_MemoryThatIsReadMayChange(t *testing.T) {
	s := newCheckedSession(t)
	const n = 300_000
	source, err := s.pd.Alloc(n, transport.RemoteRead)
	require.NoError(t, err)
	copy(source.Bytes(), pattern(1, 1, n))
	s.begin(t, true)
	defer s.end(t)
	require.NoError(t, syscall.SetsockoptInt(firstLink(s.qp).fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 1))
	s.heard(t)
	h, payload := readRequest(0, transport.Segment{Key: source.Key(), Length: n},
		transport.Segment{Key: 7, Length: n})
	s.says(t, frame.Append(nil, h, payload, true))
	require.True(t, s.qp.blocked, "the socket has taken everything at once: nothing could change meanwhile")
	frames, changes := s.slowly(t, 5000, func(i int) {
		copy(source.Bytes(), noise[i:])
	})
	require.Greater(t, changes, 5)
	last := frames[len(frames)-1]
	require.Equal(t, []any{frame.ReadWrite, uint8(frame.Last)}, []any{last.Op, last.Flags})
	total := 0
	for _, f := range frames {
		total += f.Length // the checksums are checked already
	}
	require.Equal(t, n, total)
}

// slowly takes what the queue pair sends in pieces of at most n bytes, calling back between them, and checks
// every frame.
func (s *session) slowly(tb testing.TB, n int, between func(i int)) (list []heardFrame, pieces int) {
	var all []byte
	b := make([]byte, n)
	for {
		k, err := syscall.Read(s.wire, b)
		if err == syscall.EAGAIN {
			s.poll()
			if k, err = syscall.Read(s.wire, b); err == syscall.EAGAIN {
				break
			}
		}
		require.NoError(tb, err)
		all = append(all, b[:k]...)
		between(pieces)
		pieces++
		s.poll()
	}
	return s.framesOf(tb, all), pieces
}

// The rest of a frame is the rest of its bytes, in their order, wherever the socket stopped, and wherever it
// stops again.
func TestChecksum_RestOfAFrame(t *testing.T) {
	parts := [][]byte{pattern(1, 1, 5), pattern(1, 2, 3)}
	var o frame.Batch
	o.Reset(frame.HeaderSizeWith(true))
	var ends []int
	for _, gathered := range []bool{false, true} {
		h := frame.Header{Length: 8, Op: frame.Send}
		if gathered {
			o.Begin(h, 0)
			o.Direct(parts[0])
			o.Direct(parts[1])
		} else {
			b := o.Begin(h, 8)
			copy(b[copy(b, parts[0]):], parts[1])
		}
		o.Sum()
		ends = append(ends, o.Size())
	}
	o.Seal()
	bytesOf := func(o *frame.Batch) (b []byte) {
		for _, v := range o.Pieces() {
			b = append(b, v...)
		}
		return b
	}
	all := bytesOf(&o)
	payload := slices.Concat(parts...)
	encoded := frame.Append(nil, frame.Header{Op: frame.Send}, payload, true)
	require.Equal(t, slices.Concat(encoded, encoded), all)
	for i, end := range ends {
		for from := end - len(encoded); from < end; from++ {
			for again := range end - from + 1 {
				var c frame.Partial
				c.Save(&o, from, end)
				c.Advance(again)
				var rest frame.Batch
				c.AppendTo(&rest)
				if got := bytesOf(&rest); c.Empty() != (from+again == end) || !bytes.Equal(got, all[from+again:end]) {
					t.Fatalf("frame %d from %d, again from %d: %x, want %x; empty: %v", i, from, again, got,
						all[from+again:end], c.Empty())
				}
			}
		}
	}
}

// Whatever is sent, and however little of it the socket takes at a time, what goes out are whole frames with
// their checksums, and nothing is left out or sent twice.
func TestChecksum_FramesTakenInPieces(t *testing.T) {
	s := newCheckedSession(t)
	const maxBytes = 200_000
	source, err := s.pd.Alloc(maxBytes, 0)
	require.NoError(t, err)
	copy(source.Bytes(), pattern(1, 2, maxBytes))
	s.agreed.PeerRecv = 8
	rapid.Check(t, func(rt *rapid.T) {
		s.begin(t, true)
		defer s.end(t)
		require.NoError(t, syscall.SetsockoptInt(firstLink(s.qp).fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 1))
		var want []byte
		for range rapid.IntRange(1, 8).Draw(rt, "requests") {
			n := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 5000),
				rapid.IntRange(0, maxBytes)).Draw(rt, "bytes")
			first := rapid.IntRange(0, n).Draw(rt, "first element")
			require.NoError(t, s.qp.PostSend(&transport.SendWR{Op: transport.OpSend,
				Local: []transport.SGE{{MR: source, Length: first},
					{MR: source, Offset: first, Length: n - first}}}))
			want = append(want, source.Bytes()[:n]...)
		}
		piece := rapid.IntRange(1000, 30_000).Draw(rt, "piece")
		frames, _ := s.slowly(t, piece, func(int) {})
		var got []byte
		for _, f := range frames {
			got = append(got, f.payload...)
		}
		require.True(t, slices.Equal(want, got), "what was sent is not what came out")
	})
}

// A checksum costs no allocation.
func TestChecksum_AllocatesNothing(t *testing.T) {
	a, b := newCheckedSession(t), newCheckedSession(t)
	source, err := a.pd.Alloc(4096, 0)
	require.NoError(t, err)
	target, err := b.pd.Alloc(4096, transport.RemoteWrite)
	require.NoError(t, err)
	a.begin(t, true)
	defer a.end(t)
	b.begin(t, false)
	defer b.end(t)
	buf := make([]byte, 64<<10)
	wc := make([]transport.WC, 4)
	qpn := make([]transport.QPN, 1)
	wr := &transport.SendWR{Op: transport.OpWrite, Local: []transport.SGE{{MR: source}},
		Remote: []transport.Segment{{Key: target.Key()}}}
	for _, n := range []int{64, 4096} {
		wr.Local[0].Length, wr.Remote[0].Length = n, uint64(n)
		allocations := testing.AllocsPerRun(100, func() {
			if err := a.qp.PostSend(wr); err != nil {
				t.Fatal(err)
			}
			n, _ := syscall.Read(a.wire, buf)
			syscall.Write(b.wire, buf[:n])
			b.cq.Poll(wc)
			b.cq.Placed(qpn)
		})
		require.Zero(t, allocations, "%d bytes", n)
	}
	require.NoError(t, b.qp.Err())
}

// BenchmarkWrite is a Write over the loopback interface, from its posting until it is placed, with and
// without checksums.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{64, 8 << 10, 128 << 10} {
		for _, c := range []struct {
			name string
			Checksum
		}{{"none", ChecksumNever}, {"CRC32C", ChecksumAlways}} {
			b.Run(fmt.Sprintf("bytes=%d/checksum=%s", n, c.name), func(b *testing.B) {
				var hosts [2]*host
				for i := range hosts {
					hosts[i] = newHostOfRank(b, Options{Checksum: c.Checksum}, uint32(i))
				}
				source, err := hosts[0].pd.Alloc(n, 0)
				require.NoError(b, err)
				target, err := hosts[1].pd.Alloc(n, transport.RemoteWrite)
				require.NoError(b, err)
				require.NoError(b, hosts[0].ep.Connect(b.Context(), 1, hosts[1].ep.Addr()))
				from := hosts[0].nextMade().qp
				hosts[1].nextMade()
				wr := &transport.SendWR{Op: transport.OpWrite,
					Local:  []transport.SGE{{MR: source, Length: n}},
					Remote: []transport.Segment{{Key: target.Key(), Length: uint64(n)}}}
				wc, placed := make([]transport.WC, 16), make([]transport.QPN, 1)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					if err := from.PostSend(wr); err != nil {
						b.Fatal(err)
					}
					for hosts[1].cq.Poll(wc); hosts[1].cq.Placed(placed) == 0; hosts[1].cq.Poll(wc) {
						hosts[0].cq.Poll(wc)
					}
				}
			})
		}
	}
}

// The checksums of a frame stand where the specification says, and are those that it names.
func TestSpec_Checksums(t *testing.T) {
	require.Equal(t, uint32(0xE3069283), crc32.Checksum([]byte("123456789"), frame.Castagnoli))
	payload := []byte("the payload")
	h := frame.Header{Op: frame.Send, Flags: frame.Last, A: 7}
	b := frame.Append(nil, h, payload, true)
	h.Length = len(payload)
	parts := map[string][]byte{
		"header": h.Append(nil), "CRC32C of the header": le32(crc32.Checksum(h.Append(nil), frame.Castagnoli)),
		"payload": payload, "CRC32C of the payload": le32(crc32.Checksum(payload, frame.Castagnoli)),
	}
	for _, row := range specTable(t, "Checksums", "bytes") {
		part := parts[row[1]]
		if row[0] != "n" {
			require.Len(t, part, int(number(t, row[0])), row[1])
		}
		require.NotEmpty(t, part, row[1])
		require.Equal(t, part, b[:len(part)], row[1])
		b = b[len(part):]
	}
	require.Empty(t, b)
	require.Len(t, frame.Append(nil, frame.Header{Op: frame.Close}, nil, true), frame.HeaderSize+frame.SumSize,
		"no checksum where there is no payload")
}
