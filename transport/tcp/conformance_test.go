package tcp

import (
	"errors"
	"syscall"
	"testing"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/verbstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// provider makes devices on the loopback interface.
type provider struct{ options Options }

func (p provider) Devices(n int) ([]transport.Device, error) {
	var list []transport.Device
	for range n {
		d, err := New(p.options)
		if err != nil {
			return list, err
		}
		list = append(list, d)
	}
	return list, nil
}

// Cut resets the connections between two devices.
func (provider) Cut(a, b transport.Device) error {
	struck := 0
	admit(a)
	for _, q := range a.(*Device).qps {
		if q == nil || q.fd < 0 || q.peer != b.(*Device).end.id.Rank {
			continue
		}
		if err := reset(q.fd); err != nil {
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
	for _, c := range d.(*Device).cqs {
		c.admit()
	}
}

// Vanish resets every connection of a device and closes its listener, as the kernel does for a process that is killed.
func (provider) Vanish(d transport.Device) error {
	x := d.(*Device)
	admit(d)
	for _, q := range x.qps {
		if q != nil && q.fd >= 0 {
			if err := reset(q.fd); err != nil {
				return err
			}
		}
	}
	return x.end.Close()
}

// reset cuts a connection without a word: connecting a socket to no address at all takes its connection away.
func reset(fd int) error {
	unspecified := [16]byte{}
	_, _, e := syscall.RawSyscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)), uintptr(len(unspecified)))
	if e != 0 {
		return e
	}
	return nil
}

func TestConformance(t *testing.T) { verbstest.Run(t, provider{}) }

func TestConformanceWithTLS(t *testing.T) { verbstest.Run(t, provider{Options{TLS: true}}) }
