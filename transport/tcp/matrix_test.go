package tcp

import (
	"fmt"
	"net"
	"runtime"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// reach is a place that a peer aims at and may not have, whatever frame it uses.
type reach struct {
	name string
	at   func(p *prey, mine transport.MR) transport.Segment // mine: a region that has the right that the frame needs
	text string
}

var reaches = []reach{
	{"key 0", func(p *prey, mine transport.MR) transport.Segment { return transport.Segment{Length: 8} }, "no region has the key 0x0"},
	{"unknown key", func(p *prey, mine transport.MR) transport.Segment { return transport.Segment{Key: 0xfffff, Length: 8} },
		"no region has the key 0xfffff"},
	{"key of which all bits are set", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: 1<<64 - 1, Length: 8}
	}, "no region has the key 0xffffffffffffffff"},
	{"key with its first bit wrong", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: mine.Key() ^ 1<<63, Length: 8}
	}, "no region has the key"},
	{"key of another generation", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: mine.Key() ^ 1<<indexBits, Length: 8}
	}, "no region has the key"},
	{"key with one random bit wrong", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: mine.Key() ^ 1<<(indexBits+generationBits), Length: 8}
	}, "no region has the key"},
	{"stale key", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: p.staleKey, Length: 8}
	},
		"no region has the key"},
	{"key of another domain", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: p.foreign.Key(), Length: 8}
	}, "is of another protection domain"},
	{"no right for peers at all", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: p.local.Key(), Length: 8}
	}, "has rights"},
	{"another right than the frame needs", func(p *prey, mine transport.MR) transport.Segment {
		other := p.open
		if mine == other {
			other = p.readable
		}
		return transport.Segment{Key: other.Key(), Length: 8}
	}, "has rights"},
	{"one byte beyond the end", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: mine.Key(), Offset: preySize - 7, Length: 8}
	}, "8 bytes at 121 of the region"},
	{"at the end", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: mine.Key(), Offset: preySize, Length: 8}
	}, "8 bytes at 128 of the region"},
	{"longer than the region", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: mine.Key(), Length: preySize + 8}
	}, "136 bytes at 0 of the region"},
	{"offset that wraps around", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: mine.Key(), Offset: 1<<64 - 8, Length: 8}
	}, "8 bytes at 18446744073709551608 of the region"},
	{"offset that looks negative", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: mine.Key(), Offset: 1 << 63, Length: 8}
	}, "8 bytes at 9223372036854775808 of the region"},
}

// reachers are the frames that name memory of who gets them. A frame type that does so joins by standing here.
var reachers = []struct {
	name string
	mine func(p *prey) transport.MR // with the right that it needs
	says func(r *raw, mine transport.MR, s transport.Segment)
	text string // before what is wrong with the place
	read uint64 // the Read that the Terminate names, plus one
}{
	{"Write", func(p *prey) transport.MR { return p.open }, func(r *raw, mine transport.MR, s transport.Segment) {
		r.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(s.Key), b: s.Offset}, make([]byte, s.Length))
	}, "Write from the peer: access refused: ", 0},
	{"second frame of a Write", func(p *prey) transport.MR { return p.open }, func(r *raw, mine transport.MR, s transport.Segment) {
		r.sayFrame(header{op: opWrite, a: uint64(mine.Key())}, make([]byte, 16)) // zeros, as were there
		r.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(s.Key), b: s.Offset}, make([]byte, s.Length))
	}, "Write from the peer: access refused: ", 0},
	{"ReadRequest", func(p *prey) transport.MR { return p.readable }, func(r *raw, mine transport.MR, s transport.Segment) {
		r.sayFrame(readRequest(0, s, transport.Segment{Length: s.Length}))
	}, "Read 0 from the peer: access refused: ", 1},
	{"second segment of a ReadRequest", func(p *prey) transport.MR { return p.readable }, func(r *raw, mine transport.MR, s transport.Segment) {
		b := make([]byte, 3*segmentSize)
		putSegment(b, transport.Segment{Key: mine.Key(), Length: 8})
		putSegment(b[segmentSize:], s)
		putSegment(b[2*segmentSize:], transport.Segment{Length: s.Length + 8})
		r.sayFrame(header{op: opReadRequest, flags: flagLast, a: 3, b: 2<<32 | 1}, b)
	}, "Read 3 from the peer: access refused: ", 4},
	{"second ReadRequest", func(p *prey) transport.MR { return p.readable }, func(r *raw, mine transport.MR, s transport.Segment) {
		r.sayFrame(readRequest(6, transport.Segment{Key: mine.Key(), Length: 8}, transport.Segment{Length: 8}))
		r.sayFrame(readRequest(7, s, transport.Segment{Length: s.Length}))
	}, "Read 7 from the peer: access refused: ", 8},
}

// Every frame that names memory, with every place that it may not have: key, domain, right, bounds.
func TestViolation_EveryReachOfEveryFrame(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		w := newWitness(t)
		flat := w.flat(t)
		for _, from := range reachers {
			for _, to := range reaches {
				test := violationTest{name: from.name + ", " + to.name, cause: transport.ErrAccess, text: to.text, code: terminateAccess,
					read: from.read, does: func(h *host, m made, r *raw, p *prey) { from.says(r, from.mine(p), to.at(p, from.mine(p))) }}
				t.Run(test.name, func(t *testing.T) { w.sees(t, test) })
			}
		}
		flat()
	})
}

// flat wants what the process holds to be the same at the end as after the first violation.
func (w *witness) flat(t *testing.T) func() {
	w.sees(t, violationTest{name: "first", cause: transport.ErrProtocol, text: "Ready a second time", code: terminateProto,
		does: func(_ *host, _ made, r *raw, _ *prey) { r.say(header{op: opReady}.append(nil)) }})
	runtime.GC()
	before := used(t)
	return func() {
		runtime.GC()
		after := used(t)
		require.Less(t, after.heap, before.heap+4<<20)
		require.LessOrEqual(t, after.goroutines, before.goroutines)
	}
}

// mostOf is the greatest payload of a frame of a type.
func mostOf(o op) int {
	return sort.Search(framePayload+1, func(n int) bool {
		_, err := parseHeader(header{length: n + 1, op: o}.append(nil))
		return err != nil
	})
}

// behindClose are the frames that a side sends behind its Close.
var behindClose = map[op]bool{opReadWrite: true, opReadDone: true, opAtomicDone: true, opTerminate: true, opAlive: true}

// Every frame type with everything that can be wrong with any: flags, lane, length, its place before Ready or behind Close, and a stream
// that ends in the middle of it.
func TestViolation_EveryHeaderOfEveryFrame(t *testing.T) {
	var tests []violationTest
	add := func(name, text string, does func(r *raw)) *violationTest {
		tests = append(tests, violationTest{name: name, cause: transport.ErrProtocol, text: text, code: terminateProto,
			does: func(_ *host, _ made, r *raw, _ *prey) { does(r) }})
		return &tests[len(tests)-1]
	}
	for o := opReady; o < ops; o++ {
		most := mostOf(o)
		for bit := 2; bit < 8; bit++ {
			flags := uint8(1)<<bit | flagLast
			add(fmt.Sprintf("%v with flag %d", o, bit), fmt.Sprintf("%v with flags %#x", o, flags), func(r *raw) {
				r.say(header{op: o, flags: flags}.append(nil))
			})
		}
		for _, lane := range []byte{1, 0x80} {
			add(fmt.Sprintf("%v of lane %d", o, lane), fmt.Sprintf("%v with flags %#x", o, int(lane)<<8), func(r *raw) {
				b := header{op: o}.append(nil)
				b[6] = lane
				r.say(b)
			})
		}
		for _, n := range []int{most + 1, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
			add(fmt.Sprintf("%v of %d bytes", o, n), fmt.Sprintf("%v of %d bytes, at most %d", o, n, most), func(r *raw) {
				r.say(header{op: o, length: n}.append(nil))
			})
		}
		if o != opReady {
			add(fmt.Sprintf("%v in the place of Ready", o), fmt.Sprintf("%v where Ready must come first", o), func(r *raw) {
				r.say(header{op: o, flags: flagLast}.append(nil))
			}).early = true
			if !behindClose[o] {
				add(fmt.Sprintf("%v behind Close", o), fmt.Sprintf("%v behind Close", o), func(r *raw) {
					r.say(header{op: o, flags: flagLast}.append(header{op: opClose, flags: flagLast}.append(nil)))
				})
			}
		}
		for _, n := range []int{1, headerSize - 1} {
			add(fmt.Sprintf("%v that ends after %d bytes", o, n), "the connection ended", func(r *raw) {
				r.say(header{op: o}.append(nil)[:n])
				require.NoError(r.t, r.Conn.(*net.TCPConn).CloseWrite())
			}).cause = transport.ErrPeerLost
		}
	}
	for o := ops; o != 0; o += 23 { // numbers that are no frame, up to the last
		add(fmt.Sprintf("opcode %d", o), fmt.Sprintf("frame type %d with flags 0x1", o), func(r *raw) {
			r.say(header{op: o, flags: flagLast}.append(nil))
		})
		if o > 255-23 {
			break
		}
	}
	leaksNone(t, func(t *testing.T) {
		w := newWitness(t)
		flat := w.flat(t)
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) { w.sees(t, test) })
		}
		flat()
	})
}

// Numbers, offsets and depths that are not what is due, of every frame that has one.
func TestViolation_EveryNumberOfEveryFrame(t *testing.T) {
	const far = 1<<64 - 1
	data := []byte("0123456789abcdef")
	var tests []violationTest
	add := func(name, text string, does func(h *host, m made, r *raw, p *prey)) {
		tests = append(tests, violationTest{name: name, cause: transport.ErrProtocol, text: text, code: terminateProto, does: does})
	}
	for _, n := range []uint64{1, 2, 1 << 32, 1 << 63, far} {
		add(fmt.Sprintf("Send of number %d", n), fmt.Sprintf("Send %d at 0 where 0 at 0 is due", n), func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opSend, flags: flagLast, a: n}, data)
		})
		add(fmt.Sprintf("Send of offset %d", n), fmt.Sprintf("Send 0 at %d where 0 at 0 is due", n), func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opSend, flags: flagLast, b: n}, data)
		})
		add(fmt.Sprintf("Immediate of number %d", n), fmt.Sprintf("message %d where 0 at 0 is due", n), func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opImmediate, flags: flagLast, a: n}, nil)
		})
		add(fmt.Sprintf("ReadDone of number %d", n), fmt.Sprintf("end of Read %d, 128 bytes, which is not what is due", n),
			func(h *host, m made, r *raw, p *prey) {
				h.reads(m, p.into)
				r.sayFrame(header{op: opReadWrite, flags: flagLast, a: uint64(p.into.Key())}, make([]byte, preySize))
				r.sayFrame(header{op: opReadDone, flags: flagLast, a: n, b: preySize}, nil)
			})
		add(fmt.Sprintf("ReadWrite at %d", n), fmt.Sprintf("at %d, which is not what is due", n), func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.local)
			r.sayFrame(header{op: opReadWrite, flags: flagLast, a: uint64(p.local.Key()), b: n}, data)
		})
	}
	for _, n := range []uint64{0, 1, preySize - 1, preySize + 1, far} {
		add(fmt.Sprintf("ReadDone of %d bytes", n), fmt.Sprintf("end of Read 0, %d bytes, which is not what is due", n),
			func(h *host, m made, r *raw, p *prey) {
				h.reads(m, p.into)
				r.sayFrame(header{op: opReadWrite, flags: flagLast, a: uint64(p.into.Key())}, make([]byte, preySize))
				r.sayFrame(header{op: opReadDone, flags: flagLast, b: n}, nil)
			})
	}
	add("ReadDone twice", "end of Read 0, 128 bytes, which is not what is due", func(h *host, m made, r *raw, p *prey) {
		h.reads(m, p.into)
		r.sayFrame(header{op: opReadWrite, flags: flagLast, a: uint64(p.into.Key())}, make([]byte, preySize))
		r.sayFrame(header{op: opReadDone, flags: flagLast, b: preySize}, nil)
		r.sayFrame(header{op: opReadDone, flags: flagLast, b: preySize}, nil)
	})
	add("ReadWrite behind the last byte", "which is not what is due", func(h *host, m made, r *raw, p *prey) {
		h.reads(m, p.into)
		r.sayFrame(header{op: opReadWrite, flags: flagLast, a: uint64(p.into.Key())}, make([]byte, preySize))
		r.sayFrame(header{op: opReadWrite, flags: flagLast, a: uint64(p.into.Key()), b: preySize}, data)
	})
	add("ReadWrite of what has come", "16 bytes of a Read for", func(h *host, m made, r *raw, p *prey) {
		h.reads(m, p.into)
		r.sayFrame(header{op: opReadWrite, a: uint64(p.into.Key())}, make([]byte, 16))
		r.sayFrame(header{op: opReadWrite, a: uint64(p.into.Key())}, data)
	})
	add("ReadRequest of the same number", "Read 4 behind Read 4", func(h *host, m made, r *raw, p *prey) {
		s, d := transport.Segment{Key: p.readable.Key(), Length: 8}, transport.Segment{Length: 8}
		r.sayFrame(readRequest(4, s, d))
		r.sayFrame(readRequest(4, s, d))
	})
	add("ReadRequest of an earlier number", "Read 3 behind Read 4", func(h *host, m made, r *raw, p *prey) {
		s, d := transport.Segment{Key: p.readable.Key(), Length: 8}, transport.Segment{Length: 8}
		r.sayFrame(readRequest(4, s, d))
		r.sayFrame(readRequest(3, s, d))
	})
	for _, n := range []int{0, 1, segmentSize, 2*segmentSize - 1, 2*segmentSize + 1, 3 * segmentSize} {
		add(fmt.Sprintf("ReadRequest with %d bytes of segments", n), fmt.Sprintf("a Read of 1 into 1 segments, %d bytes of them", n),
			func(h *host, m made, r *raw, p *prey) {
				r.sayFrame(header{op: opReadRequest, flags: flagLast, b: 1<<32 | 1}, make([]byte, n))
			})
	}
	for _, o := range []op{opSend, opImmediate} {
		text := map[op]string{opSend: "a message of the peer found no Recv posted", opImmediate: "an immediate of the peer found no Recv posted"}[o]
		add(fmt.Sprintf("%v behind the last Recv", o), text, func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opImmediate, flags: flagLast}, nil)
			r.sayFrame(header{op: o, flags: flagLast, a: 1}, nil)
		})
		tests[len(tests)-1].code = terminateNoRecv
	}
	leaksNone(t, func(t *testing.T) {
		w := newWitness(t)
		flat := w.flat(t)
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) { w.sees(t, test) })
		}
		flat()
	})
}
