package tcp

import (
	"errors"
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/verbstest"
)

// TestMain has garbage collected less often: connections make much of it at their start, and tests make thousands.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	goleak.VerifyTestMain(m)
}

// provider makes devices on the loopback interface.
type provider struct {
	options Options
	narrow  bool // sockets that take little at a time
}

func (p provider) Devices(n int) ([]transport.Device, error) {
	var list []transport.Device
	for range n {
		d, err := New(p.options)
		if err != nil {
			return list, err
		}
		if p.narrow {
			list = append(list, narrowDevice{d})
			continue
		}
		list = append(list, d)
	}
	return list, nil
}

// narrowSocket is what a socket takes at a time, about: less than the frames of one write.
const narrowSocket = 64 << 10

// narrowDevice is a device with sockets so small that nearly every write is taken in part.
type narrowDevice struct{ *Device }

func (d narrowDevice) inner() *Device { return d.Device }

type narrowAcceptor struct{ transport.Acceptor }

func (d narrowDevice) Listen(id transport.Identity, a transport.Acceptor) (transport.Endpoint, error) {
	return d.Device.Listen(id, narrowAcceptor{a})
}

func (a narrowAcceptor) Connected(rank uint32, made transport.QP, private []byte) {
	for _, fd := range made.(*qp).fds() {
		if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, narrowSocket); err != nil {
			panic(err)
		}
	}
	a.Acceptor.Connected(rank, made, private)
}

// inside is the device as this package knows it.
func inside(d transport.Device) *Device {
	if w, ok := d.(interface{ inner() *Device }); ok {
		return w.inner()
	}
	return d.(*Device)
}

// queuePairs are those of a device that have not ended.
func queuePairs(d transport.Device) (list []*qp) {
	admit(d)
	for c := range inside(d).EachCQ {
		for _, q := range c.Provider().(*cq).qps {
			if q.rcq == c.Provider() {
				list = append(list, q)
			}
		}
	}
	return list
}

// Cut resets the connections between two devices.
func (provider) Cut(a, b transport.Device) error {
	struck := 0
	theirs := queuePairs(b)
	mine := queuePairs(a)
	for _, q := range theirs {
		if lanesOf(q) != nil && q.Attr.Peer == inside(a).end.local.ID.Rank {
			lanesOf(q).dial.ended.Store(true)
		}
	}
	for _, q := range mine {
		if !q.open || q.Attr.Peer != inside(b).end.local.ID.Rank {
			continue
		}
		if err := q.cut(); err != nil {
			return err
		}
		struck++
	}
	if struck == 0 {
		return errors.New("there was nothing to cut")
	}
	return nil
}

// admit has a device know the connections that were handed to it.
func admit(d transport.Device) {
	for c := range inside(d).EachCQ {
		c.Provider().Admit()
	}
}

// Vanish resets every connection of a device and closes its listener, as the kernel does for a process that
// is killed.
func (provider) Vanish(d transport.Device) error {
	x := inside(d)
	for _, q := range queuePairs(d) {
		if q.open {
			if err := q.cut(); err != nil {
				return err
			}
		}
	}
	defer admit(d) // lanes that have just come are closed too
	return x.end.Close()
}

// fds are the sockets of a queue pair.
func (q *qp) fds() (list []int) {
	if lanesOf(q) == nil {
		return []int{firstLink(q).fd}
	}
	for _, l := range lanesOf(q).conns {
		list = append(list, l.fd)
	}
	return list
}

// cut resets the connections of a queue pair, and keeps others from taking their place.
func (q *qp) cut() (err error) {
	for _, fd := range q.fds() {
		err = errors.Join(err, reset(fd))
	}
	if lanesOf(q) != nil {
		lanesOf(q).dial.ended.Store(true)
	}
	return err
}

// reset cuts a connection without a word: connecting a socket to no address at all takes its connection away.
func reset(fd int) error {
	unspecified := [16]byte{}
	_, _, e := syscall.RawSyscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)),
		uintptr(len(unspecified)))
	if e != 0 {
		return e
	}
	return nil
}

// onlyAtLength skips a run of the suite each of whose options another run has, too.
func onlyAtLength(t *testing.T) {
	if !testlength.Whole() {
		t.Skip("other runs have these options between them; WEFT_TEST_WHOLE=1 runs this, too")
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	verbstest.Run(t, provider{})
}

func TestConformanceWithChecksum(t *testing.T) {
	t.Parallel()
	onlyAtLength(t)
	verbstest.Run(t, provider{options: Options{Checksum: ChecksumAlways}})
}

// Frames that the socket takes in pieces go on where they stopped, with their checksums.
func TestConformanceWithChecksumInNarrowSockets(t *testing.T) {
	t.Parallel()
	onlyAtLength(t)
	verbstest.Run(t, provider{options: Options{Checksum: ChecksumAlways}, narrow: true})
}

// Encrypted writes that the socket takes in pieces, with checksums inside.
func TestConformanceWithTLSInNarrowSockets(t *testing.T) {
	t.Parallel()
	if raced { // lanes have the same goroutines
		onlyAtLength(t)
	}
	verbstest.Run(t, provider{options: Options{TLS: true, Checksum: ChecksumAlways}, narrow: true})
}

func TestConformanceWithTLS(t *testing.T) {
	t.Parallel()
	onlyAtLength(t)
	verbstest.Run(t, provider{options: Options{TLS: true}})
}
