package tcp

import (
	"fmt"
	"net"
	"runtime"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// reach is a place that a peer aims at and may not have, whatever frame it uses.
type reach struct {
	name string
	// mine: a region that has the right that the frame needs
	at   func(p *prey, mine transport.MR) transport.Segment
	text string
}

var reaches = []reach{
	{"key 0", func(p *prey, mine transport.MR) transport.Segment { return transport.Segment{Length: 8} },
		"no region has the key 0x0"},
	{"unknown key", func(p *prey,
		mine transport.MR) transport.Segment {
		return transport.Segment{Key: 0xfffff, Length: 8}
	},
		"no region has the key 0xfffff"},
	{"key of which all bits are set", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: 1<<64 - 1, Length: 8}
	}, "no region has the key 0xffffffffffffffff"},
	{"key with its first bit wrong", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: mine.Key() ^ 1<<63, Length: 8}
	}, "no region has the key"},
	{"key of another generation", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: mine.Key() ^ 1<<verbs.IndexBits, Length: 8}
	}, "no region has the key"},
	{"key with one random bit wrong", func(p *prey, mine transport.MR) transport.Segment {
		return transport.Segment{Key: mine.Key() ^ 1<<(verbs.IndexBits+verbs.GenerationBits), Length: 8}
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

// reachers are the frames that name memory of who gets them. A frame type that does so joins by standing
// here.
var reachers = []struct {
	name string
	mine func(p *prey) transport.MR // with the right that it needs
	says func(r *raw, mine transport.MR, s transport.Segment)
	text string // before what is wrong with the place
	read uint64 // the Read that the Terminate names, plus one
}{
	{"Write", func(p *prey) transport.MR { return p.open }, func(r *raw, mine transport.MR,
		s transport.Segment) {
		r.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(s.Key), B: s.Offset},
			make([]byte, s.Length))
	}, "Write from the peer: access refused: ", 0},
	{"second frame of a Write", func(p *prey) transport.MR { return p.open },
		func(r *raw, mine transport.MR, s transport.Segment) {
			r.sayFrame(frame.Header{Op: frame.Write, A: uint64(mine.Key())}, make([]byte, 16)) // zeros, as were there
			r.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(s.Key), B: s.Offset},
				make([]byte, s.Length))
		}, "Write from the peer: access refused: ", 0},
	{"ReadRequest", func(p *prey) transport.MR { return p.readable },
		func(r *raw, mine transport.MR, s transport.Segment) {
			r.sayFrame(readRequest(0, s, transport.Segment{Length: s.Length}))
		}, "Read 0 from the peer: access refused: ", 1},
	{"second segment of a ReadRequest", func(p *prey) transport.MR { return p.readable },
		func(r *raw, mine transport.MR, s transport.Segment) {
			b := make([]byte, 3*frame.SegmentSize)
			frame.PutSegment(b, transport.Segment{Key: mine.Key(), Length: 8})
			frame.PutSegment(b[frame.SegmentSize:], s)
			frame.PutSegment(b[2*frame.SegmentSize:], transport.Segment{Length: s.Length + 8})
			r.sayFrame(frame.Header{Op: frame.ReadRequest, Flags: frame.Last, A: 3, B: 2<<32 | 1}, b)
		}, "Read 3 from the peer: access refused: ", 4},
	{"Atomic", func(p *prey) transport.MR { return p.words },
		func(r *raw, mine transport.MR, s transport.Segment) {
			r.sayFrame(atomicRequest(9, s.Key, s.Offset, 1))
		}, "Atomic 9 from the peer: access refused: ", 10},
	{"second ReadRequest", func(p *prey) transport.MR { return p.readable },
		func(r *raw, mine transport.MR, s transport.Segment) {
			r.sayFrame(readRequest(6, transport.Segment{Key: mine.Key(), Length: 8},
				transport.Segment{Length: 8}))
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
				if from.name == "Atomic" && to.name == "longer than the region" {
					continue // it has one length
				}
				test := violationTest{name: from.name + ", " + to.name, cause: transport.ErrAccess,
					text: to.text, code: frame.ReasonAccess,
					read: from.read, does: func(h *host, m made, r *raw,
						p *prey) {
						from.says(r, from.mine(p), to.at(p, from.mine(p)))
					}}
				t.Run(test.name, func(t *testing.T) { w.sees(t, test) })
			}
		}
		flat()
	})
}

// flat wants what the process holds to be the same at the end as after the first violation.
func (w *witness) flat(t *testing.T) func() {
	w.sees(t, violationTest{name: "first", cause: transport.ErrProtocol, text: "Ready a second time",
		code: frame.ReasonProtocol,
		does: func(_ *host, _ made, r *raw, _ *prey) { r.say(frame.Header{Op: frame.Ready}.Append(nil)) }})
	runtime.GC()
	before := used(t)
	return func() { awaitUsage(t, before) }
}

// maxOf is the greatest payload of a frame of a type.
func maxOf(o frame.Op) int {
	return sort.Search(frame.MaxPayload+1, func(n int) bool {
		_, err := frame.Parse(frame.Header{Length: n + 1, Op: o}.Append(nil))
		return err != nil
	})
}

// afterClose are the frames that a side sends after its Close.
var afterClose = map[frame.Op]bool{frame.ReadWrite: true, frame.AtomicDone: true, frame.Terminate: true,
	frame.Alive: true}

// Every frame type with everything that can be wrong with any: flags, lane, length, its place before Ready or
// after Close, and a stream that ends in the middle of it.
func TestViolation_EveryHeaderOfEveryFrame(t *testing.T) {
	var tests []violationTest
	add := func(name, text string, does func(r *raw)) *violationTest {
		tests = append(tests, violationTest{name: name, cause: transport.ErrProtocol, text: text,
			code: frame.ReasonProtocol,
			does: func(_ *host, _ made, r *raw, _ *prey) { does(r) }})
		return &tests[len(tests)-1]
	}
	for o := frame.Ready; o < frame.Ops; o++ {
		limit := maxOf(o)
		for bit := 2; bit < 8; bit++ {
			flags := uint8(1)<<bit | frame.Last
			add(fmt.Sprintf("%v with flag %d", o, bit), fmt.Sprintf("%v with flags %#x", o, flags),
				func(r *raw) {
					r.say(frame.Header{Op: o, Flags: flags}.Append(nil))
				})
		}
		for _, lane := range []byte{1, 0x80} {
			add(fmt.Sprintf("%v of lane %d", o, lane), fmt.Sprintf("%v with flags %#x", o, int(lane)<<8),
				func(r *raw) {
					b := frame.Header{Op: o}.Append(nil)
					b[6] = lane
					r.say(b)
				})
		}
		for _, n := range []int{limit + 1, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
			add(fmt.Sprintf("%v of %d bytes", o, n), fmt.Sprintf("%v of %d bytes, at most %d", o, n, limit),
				func(r *raw) {
					r.say(frame.Header{Op: o, Length: n}.Append(nil))
				})
		}
		if o != frame.Ready {
			add(fmt.Sprintf("%v in the place of Ready", o), fmt.Sprintf("%v where Ready must come first",
				o), func(r *raw) {
				r.say(frame.Header{Op: o, Flags: frame.Last}.Append(nil))
			}).early = true
			if !afterClose[o] {
				add(fmt.Sprintf("%v after Close", o), fmt.Sprintf("%v after Close", o), func(r *raw) {
					r.say(frame.Header{Op: o, Flags: frame.Last}.Append(frame.Header{Op: frame.Close,
						Flags: frame.Last}.Append(nil)))
				})
			}
		}
		for _, n := range []int{1, frame.HeaderSize - 1} {
			add(fmt.Sprintf("%v that ends after %d bytes", o, n), "the connection ended", func(r *raw) {
				r.say(frame.Header{Op: o}.Append(nil)[:n])
				require.NoError(r.t, r.Conn.(*net.TCPConn).CloseWrite())
			}).cause = transport.ErrPeerLost
		}
	}
	for o := frame.Ops; o != 0; o += 23 { // numbers that are no frame, up to the last
		add(fmt.Sprintf("opcode %d", o), fmt.Sprintf("frame type %d with flags 0x1", o), func(r *raw) {
			r.say(frame.Header{Op: o, Flags: frame.Last}.Append(nil))
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
		tests = append(tests, violationTest{name: name, cause: transport.ErrProtocol, text: text,
			code: frame.ReasonProtocol, does: does})
	}
	for _, n := range []uint64{1, 2, 1 << 32, 1 << 63, far} {
		add(fmt.Sprintf("Send of number %d", n), fmt.Sprintf("Send %d at 0 where 0 at 0 is due", n),
			func(h *host, m made, r *raw, p *prey) {
				r.sayFrame(frame.Header{Op: frame.Send, Flags: frame.Last, A: n}, data)
			})
		add(fmt.Sprintf("Send of offset %d", n), fmt.Sprintf("Send 0 at %d where 0 at 0 is due", n),
			func(h *host, m made, r *raw, p *prey) {
				r.sayFrame(frame.Header{Op: frame.Send, Flags: frame.Last, B: n}, data)
			})
		add(fmt.Sprintf("Immediate of number %d", n), fmt.Sprintf("message %d where 0 at 0 is due", n),
			func(h *host, m made, r *raw, p *prey) {
				r.sayFrame(frame.Header{Op: frame.Immediate, Flags: frame.Last, A: n}, nil)
			})
	}
	for _, n := range []uint64{1, 2, 1 << 15, 1<<16 - 1} {
		add(fmt.Sprintf("end of a Read of number %d", n),
			fmt.Sprintf("a Write of Read 0, flags 0x1, immediate %d, which is not what is due", n),
			func(h *host, m made, r *raw, p *prey) {
				h.reads(m, p.into)
				r.sayFrame(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.into.Key()),
					B: frame.Placement(0, n)}, make([]byte, preySize))
			})
	}
	for _, n := range []uint64{1, 2, 1 << 32, 1 << 47, frame.MaxOffset - 1} {
		add(fmt.Sprintf("ReadWrite at %d", n), fmt.Sprintf("at %d, which is not what is due", n),
			func(h *host, m made, r *raw, p *prey) {
				h.reads(m, p.local)
				r.sayFrame(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.local.Key()), B: n}, data)
			})
	}
	for _, n := range []int{0, 1, preySize - 1} {
		add(fmt.Sprintf("end of a Read after %d bytes", n),
			"a Write of Read 0, flags 0x1, immediate 0, which is not what is due",
			func(h *host, m made, r *raw, p *prey) {
				h.reads(m, p.local)
				r.sayFrame(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.local.Key())},
					make([]byte, n))
			})
	}
	add("ReadWrite after the last byte", "a Read that was not requested", func(h *host, m made, r *raw, p *prey) {
		h.reads(m, p.into)
		r.sayFrame(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.into.Key())}, make([]byte, preySize))
		r.sayFrame(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.into.Key()), B: preySize}, data)
	})
	add("ReadWrite of what has come", "16 bytes of a Read for", func(h *host, m made, r *raw, p *prey) {
		h.reads(m, p.into)
		r.sayFrame(frame.Header{Op: frame.ReadWrite, A: uint64(p.into.Key())}, make([]byte, 16))
		r.sayFrame(frame.Header{Op: frame.ReadWrite, A: uint64(p.into.Key())}, data)
	})
	add("ReadRequest of the same number", "Read or Atomic 4 after 4", func(h *host, m made, r *raw, p *prey) {
		s, d := transport.Segment{Key: p.readable.Key(), Length: 8}, transport.Segment{Length: 8}
		r.sayFrame(readRequest(4, s, d))
		r.sayFrame(readRequest(4, s, d))
	})
	add("ReadRequest of an earlier number", "Read or Atomic 3 after 4",
		func(h *host, m made, r *raw, p *prey) {
			s, d := transport.Segment{Key: p.readable.Key(), Length: 8}, transport.Segment{Length: 8}
			r.sayFrame(readRequest(4, s, d))
			r.sayFrame(readRequest(3, s, d))
		})
	for _, n := range []int{0, 1, frame.SegmentSize, 2*frame.SegmentSize - 1, 2*frame.SegmentSize + 1, 3 * frame.SegmentSize} {
		add(fmt.Sprintf("ReadRequest with %d bytes of segments", n),
			fmt.Sprintf("a Read of 1 into 1 segments, %d bytes of them", n),
			func(h *host, m made, r *raw, p *prey) {
				r.sayFrame(frame.Header{Op: frame.ReadRequest, Flags: frame.Last, B: 1<<32 | 1}, make([]byte, n))
			})
	}
	for _, o := range []frame.Op{frame.Send, frame.Immediate} {
		text := map[frame.Op]string{frame.Send: "a message of the peer found no Recv posted",
			frame.Immediate: "a message of the peer found no Recv posted"}[o]
		add(fmt.Sprintf("%v after the last Recv", o), text, func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Immediate, Flags: frame.Last}, nil)
			r.sayFrame(frame.Header{Op: o, Flags: frame.Last, A: 1}, nil)
		})
		tests[len(tests)-1].code = frame.ReasonNoRecv
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
