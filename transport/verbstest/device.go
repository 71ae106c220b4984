package verbstest

import (
	"strings"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
)

var deviceChecks = []Check{
	{"Device/AttributesAreSaneAndConstant", func(t *trial) {
		d := t.newDevices(1)[0]
		a := d.Query()
		if a.Provider == "" || a != d.Query() {
			t.failf("attributes %+v, then %+v", a, d.Query())
		}
		for name, v := range map[string]int{"MaxSGE": a.MaxSGE, "MaxSegments": a.MaxSegments,
			"MaxInline":  a.MaxInline,
			"MaxMessage": a.MaxMessage, "MaxQPDepth": a.MaxQPDepth, "MaxReads": a.MaxReads,
			"MaxPrivate": a.MaxPrivate} {
			if v < 1 {
				t.failf("%s is %d", name, v)
			}
		}
	}},
	{"Device/CloseTwiceIsHarmlessAndThenNothingWorks", func(t *trial) {
		d := t.newDevices(1)[0]
		n := t.open(d, shape{})
		n.listen(t.identity(0, 2))
		t.must(d.Close())
		t.must(d.Close())
		_, err := d.AllocPD()
		t.is(err, "AllocPD of a closed device", transport.ErrDeviceGone)
		_, err = d.CreateCQ(8, 0)
		t.is(err, "CreateCQ of a closed device", transport.ErrDeviceGone)
		_, err = d.Listen(t.identity(0, 2), n)
		t.is(err, "Listen of a closed device", transport.ErrDeviceGone)
		if err := n.dialAs(1, "nowhere"); err == nil {
			t.failf("Connect of a closed endpoint succeeded")
		}
	}},
	{"Device/OneEndpointWithAPrintableAddress", func(t *trial) {
		n := t.ranks(1, shape{})[0]
		addr := n.ep.Addr()
		if addr == "" || len(addr) > 200 || strings.ContainsAny(addr, " =;\n") {
			t.failf("address %q", addr)
		}
		if _, err := n.dev.Listen(t.identity(0, 1), n); err == nil {
			t.failf("a second endpoint was made")
		}
	}},
	{"Device/CQDepthMustBePositive", func(t *trial) {
		d := t.newDevices(1)[0]
		for _, depth := range []int{0, -1} {
			if _, err := d.CreateCQ(depth, 0); err == nil {
				t.failf("a completion queue of depth %d was made", depth)
			}
		}
	}},
	{"PD/CloseIsRefusedWhileUsed", func(t *trial) {
		a, _ := t.pair(shape{})
		if err := a.pd.Close(); err == nil {
			t.failf("a domain with a queue pair was closed")
		}
		pd, err := a.dev.AllocPD()
		t.must(err)
		m, err := pd.Register(make([]byte, 8), all)
		t.must(err)
		if err := pd.Close(); err == nil {
			t.failf("a domain with a region was closed")
		}
		t.must(m.Deregister())
		t.must(pd.Close())
	}},
	{"PD/ClosesWhenItsQueuePairIsReleased", func(t *trial) {
		a, _ := t.pair(shape{})
		a.qp.Release()
		t.must(a.pd.Close())
		for _, cq := range a.cqs() {
			t.must(cq.Close())
		}
	}},
	{"MR/TellsWhatItIs", func(t *trial) {
		n := t.open(t.newDevices(1)[0], shape{})
		buf := make([]byte, 100)
		m, err := n.pd.Register(buf, transport.RemoteRead)
		t.must(err)
		if len(m.Bytes()) != 100 || unsafe.SliceData(m.Bytes()) != unsafe.SliceData(buf) {
			t.failf("Bytes is not the registered memory")
		}
		if m.Access() != transport.RemoteRead {
			t.failf("Access is %v", m.Access())
		}
		t.must(m.Deregister())
	}},
	{"MR/AllocIsZeroedAndPageAligned", func(t *trial) {
		n := t.open(t.newDevices(1)[0], shape{})
		for _, size := range []int{1, 4096, 10000} {
			m := n.memory(size, all)
			t.must(zero(m.Bytes()))
			if len(m.Bytes()) != size || uintptr(unsafe.Pointer(unsafe.SliceData(m.Bytes())))%4096 != 0 {
				t.failf("Alloc(%d): %d bytes at %p", size, len(m.Bytes()), m.Bytes())
			}
			fill(m.Bytes(), 1, 1)
			t.must(m.Deregister())
		}
		for _, size := range []int{0, -1} {
			if _, err := n.pd.Alloc(size, all); err == nil {
				t.failf("Alloc(%d) succeeded", size)
			}
		}
	}},
	{"MR/KeysNeverComeBack", func(t *trial) {
		n := t.open(t.newDevices(1)[0], shape{})
		seen := map[transport.Key]bool{}
		buf := make([]byte, 64)
		high := transport.Key(0)
		for range 1000 {
			m, err := n.pd.Register(buf, all)
			t.must(err)
			if seen[m.Key()] {
				t.failf("key %#x was given twice", m.Key())
			}
			seen[m.Key()] = true
			high |= m.Key()
			t.must(m.Deregister())
		}
		if high>>48 == 0 {
			t.failf("the keys use no more than 48 bits")
		}
	}},
}
