package shm

import (
	"errors"
	"testing"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/verbstest"
)

// provider makes devices of this process.
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

// Cut ends the connections between two devices, as when both processes are killed.
func (provider) Cut(a, b transport.Device) error {
	struck := 0
	for _, q := range pairs(a.(*Device)) {
		if q.peer == b.(*Device).end.id.Rank {
			struck++
			if err := errors.Join(q.link.conn.CloseRead(), q.link.conn.CloseWrite()); err != nil {
				return err
			}
		}
	}
	if struck == 0 {
		return errors.New("there was nothing to cut")
	}
	return nil
}

// Vanish ends every connection of a device and its listener, as the kernel does for a process that is killed.
func (provider) Vanish(d transport.Device) error {
	for _, q := range pairs(d.(*Device)) {
		if err := errors.Join(q.link.conn.CloseRead(), q.link.conn.CloseWrite()); err != nil {
			return err
		}
	}
	return d.(*Device).end.Close()
}

// pairs are the connected queue pairs of a device.
func pairs(d *Device) (list []*qp) {
	for _, c := range d.cqs {
		c.admit()
		for _, q := range c.qps {
			if q.rcq == c {
				list = append(list, q)
			}
		}
	}
	return list
}

func TestConformance(t *testing.T) { verbstest.Run(t, provider{}) }

func TestConformanceWithoutCMA(t *testing.T) {
	verbstest.Run(t, provider{options: Options{NoCMA: true}})
}
