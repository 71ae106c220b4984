package shm

import (
	"errors"
	"testing"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/verbstest"
)

// provider makes devices of this process.
type provider struct {
	options Options
	devices map[*Device]struct{} // that it has made
}

func newProvider(o Options) provider { return provider{o, map[*Device]struct{}{}} }

func (p provider) Devices(n int) ([]transport.Device, error) {
	var list []transport.Device
	for range n {
		d, err := New(p.options)
		if err != nil {
			return list, err
		}
		p.devices[d] = struct{}{}
		list = append(list, d)
	}
	return list, nil
}

// Cut ends the connections between two devices, as when both processes are killed.
func (p provider) Cut(a, b transport.Device) error {
	x, y := a.(*Device), b.(*Device)
	if cut(x, y)+cut(y, x) == 0 {
		return errors.New("there was nothing to cut")
	}
	return nil
}

// cut ends the connections of a device to another.
func cut(d, other *Device) (struck int) {
	for _, q := range pairs(d) {
		if q.Attr.Peer == other.end.id.Rank {
			q.peerGone()
			struck++
		}
	}
	return struck
}

// Vanish ends every connection of a device and its listener, as the kernel does for a process that is killed.
func (p provider) Vanish(device transport.Device) error {
	d := device.(*Device)
	for other := range p.devices {
		if other != d && !other.Closed() && other.end != nil {
			cut(other, d)
			cut(d, other)
		}
	}
	return d.end.Close()
}

// pairs are the connected queue pairs of a device.
func pairs(d *Device) (list []*qp) {
	for each := range d.EachCQ {
		c := each.Provider().(*cq)
		c.admit()
		for _, q := range c.qps {
			if q.rcq == c {
				list = append(list, q)
			}
		}
	}
	return list
}

func TestConformance(t *testing.T) { verbstest.Run(t, newProvider(Options{})) }

func TestConformanceWithoutCMA(t *testing.T) {
	verbstest.Run(t, newProvider(Options{NoCMA: true}))
}
