package verbstest

import (
	"errors"

	"github.com/weft-mpi/weft/transport"
)

// every is a view of bytes at equal distances in memory.
type every struct {
	mem    []byte
	stride int
}

func (v every) Gather(at int, dst []byte) {
	for i := range dst {
		dst[i] = v.mem[(at+i)*v.stride]
	}
}

func (v every) Scatter(at int, src []byte) {
	for i, b := range src {
		v.mem[(at+i)*v.stride] = b
	}
}

// view registers a view of bytes of the node's memory that are not contiguous.
func (n *node) view(v every, bytes int, access transport.Access) transport.MR {
	m, err := n.pd.(transport.ViewRegistrar).RegisterView(v, bytes, access)
	n.t.must(err)
	return m
}

// viewed returns views with the bytes of other regions; nil if the provider has no views.
func (n *node) viewed(list ...transport.MR) map[transport.MR]transport.MR {
	views := map[transport.MR]transport.MR{}
	if !n.dev.Query().Views {
		return nil
	}
	for _, m := range list {
		views[m] = n.view(every{m.Bytes(), 1}, len(m.Bytes()), transport.LocalWrite)
	}
	return views
}

// viewLengths are lengths of views: around a word, and more than one frame.
var viewLengths = []int{1, 7, 8, 9, 2 << 10, 60<<10 + 3, 300_001}

func views(d transport.DeviceAttr) (bool, string) { return d.Views, "regions of views" }

var viewChecks = []Check{
	{"MR/ViewsOfAnyLength", func(t *trial) {
		a, b := t.pair(shape{})
		const stride = 3
		for i, n := range viewLengths {
			out, in := make([]byte, n*stride), make([]byte, n*stride)
			fill(out, 1, uint64(i))
			m := b.memory(n, all)
			from := a.view(every{out, stride}, n, 0)
			into := a.view(every{in, stride}, n, transport.LocalWrite)
			wr := &transport.SendWR{ID: 1, Op: transport.OpWrite, Flags: transport.FlagSignaled,
				Local: []transport.SGE{part(from, 0, n)}, Remote: []transport.Segment{segment(m, 0, n)}}
			t.must(a.qp.PostSend(wr))
			t.one(a, 1, transport.OpWrite, a, b)
			wr.ID, wr.Op, wr.Local[0].MR = 2, transport.OpRead, into
			t.must(a.qp.PostSend(wr))
			t.one(a, 2, transport.OpRead, a, b)
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: 3}))
			wr.ID, wr.Op, wr.Local[0].MR, wr.Imm = 4, transport.OpWriteImm, from, uint32(n)
			clear(m.Bytes())
			t.must(a.qp.PostSend(wr))
			t.one(a, 4, transport.OpWriteImm, a, b)
			t.until("the immediate", func() bool { return len(b.wcs) > 0 }, a, b)
			b.wcs = nil
			for k := range out {
				if k%stride != 0 {
					out[k] = 0
				}
			}
			t.must(equal(in, out))
			for k, got := range m.Bytes()[:n] {
				if got != out[k*stride] {
					t.failf("byte %d of %d is %#x, want %#x", k, n, got, out[k*stride])
				}
			}
			t.must(errors.Join(from.Deregister(), into.Deregister()))
		}
	}},
	{"MR/ViewsThatPeersRead", func(t *trial) {
		a, b := t.pair(shape{})
		const stride = 3
		for i, n := range viewLengths {
			out, in := make([]byte, n*stride), make([]byte, n*stride)
			fill(out, 1, uint64(i))
			from := b.view(every{out, stride}, n, transport.RemoteRead)
			into := a.view(every{in, stride}, n, transport.LocalWrite)
			m := a.memory(n, all)
			wr := &transport.SendWR{ID: 1, Op: transport.OpRead, Flags: transport.FlagSignaled,
				Local:  []transport.SGE{part(m, 0, n)},
				Remote: []transport.Segment{{Key: from.Key(), Length: uint64(n)}}}
			t.must(a.qp.PostSend(wr))
			t.one(a, 1, transport.OpRead, a, b)
			wr.ID, wr.Local[0].MR = 2, into
			t.must(a.qp.PostSend(wr))
			t.one(a, 2, transport.OpRead, a, b)
			for k, got := range m.Bytes()[:n] {
				if want := out[k*stride]; got != want || in[k*stride] != want {
					t.failf("byte %d of %d is %#x, and %#x in a view, want %#x", k, n, got, in[k*stride],
						want)
				}
			}
			// the last byte by itself
			wr.ID, wr.Local[0], wr.Remote[0] = 3, part(m, 0, 1), transport.Segment{Key: from.Key(),
				Offset: uint64(n - 1), Length: 1}
			t.must(a.qp.PostSend(wr))
			t.one(a, 3, transport.OpRead, a, b)
			if got := m.Bytes()[0]; got != out[(n-1)*stride] {
				t.failf("the last byte of %d is %#x, want %#x", n, got, out[(n-1)*stride])
			}
			t.must(errors.Join(from.Deregister(), into.Deregister()))
		}
	}},
	{"MR/ViewsThatPeersReadHaveBounds", func(t *trial) {
		for _, s := range []transport.Segment{{Offset: 60, Length: 8}, {Offset: 65, Length: 1}} {
			a, b := t.pair(shape{})
			s.Key = b.view(every{make([]byte, 64), 1}, 64, transport.RemoteRead).Key()
			t.refused(a, b, &transport.SendWR{ID: 1, Op: transport.OpRead, Flags: transport.FlagSignaled,
				Local:  []transport.SGE{part(a.memory(64, all), 0, int(s.Length))},
				Remote: []transport.Segment{s}})
		}
	}},
	{"MR/ViewsGivenUpBeforeTheyAreRead", func(t *trial) {
		a, b := t.pair(shape{})
		v := b.view(every{make([]byte, 64), 1}, 64, transport.RemoteRead)
		s := transport.Segment{Key: v.Key(), Length: 64}
		t.must(v.Deregister())
		t.refused(a, b, &transport.SendWR{ID: 1, Op: transport.OpRead, Flags: transport.FlagSignaled,
			Local:  []transport.SGE{part(a.memory(64, all), 0, 64)},
			Remote: []transport.Segment{s}})
	}},
	{"MR/ViewsAreForWritesAndReadsAlone", func(t *trial) {
		a, b := t.pair(shape{})
		pd, m := a.pd.(transport.ViewRegistrar), b.memory(64, allAtomic)
		_, err := pd.RegisterView(every{make([]byte, 64), 1}, 64, transport.RemoteWrite)
		t.is(err, "a view that peers write", transport.ErrInvalid)
		_, err = pd.RegisterView(every{}, 0, 0)
		t.is(err, "a view of no bytes", transport.ErrInvalid)
		v, err := pd.RegisterView(every{make([]byte, 64), 1}, 64, transport.LocalWrite)
		t.must(err)
		whole := transport.SGE{MR: v, Length: 64}
		t.is(a.qp.PostRecv(&transport.RecvWR{ID: 1, Local: []transport.SGE{whole}}), "a Recv into a view",
			transport.ErrInvalid)
		for what, wr := range map[string]*transport.SendWR{
			"Send":   {Op: transport.OpSend, Local: []transport.SGE{whole}},
			"Atomic": fetchAdd(1, v, m, 8, 1),
			"inline Write": with(&transport.SendWR{Op: transport.OpWrite,
				Local: []transport.SGE{part(v, 0, 8)}}, transport.FlagInline),
			"Write beyond":      {Op: transport.OpWrite, Local: []transport.SGE{part(v, 60, 8)}},
			"Write from before": {Op: transport.OpWrite, Local: []transport.SGE{part(v, -1, 8)}},
		} {
			if wr.Op == transport.OpWrite {
				wr.Remote = []transport.Segment{segment(m, 0, 8)}
			}
			t.is(a.qp.PostSend(wr), what, transport.ErrInvalid)
		}
	}},
}
