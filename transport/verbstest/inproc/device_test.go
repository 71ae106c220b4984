package inproc

import (
	"sync"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

const pageSize = 4 << 10

// Network connects the devices of one process.
type Network struct {
	mu        sync.Mutex
	endpoints map[string]*endpoint // by address
	made      int
}

// NewNetwork makes a network without devices.
func NewNetwork() *Network { return &Network{endpoints: map[string]*endpoint{}} }

type device struct {
	queuepair.Device

	net *Network
}

// Device makes a device.
func (n *Network) Device() (transport.Device, error) {
	d := &device{net: n}
	if err := d.Init(); err != nil {
		return nil, err
	}
	d.Regions = verbs.NewTable(memory{d}, d.Query)
	return d, nil
}

func (d *device) Query() transport.DeviceAttr {
	return transport.DeviceAttr{
		Provider: "inproc", MaxSGE: 8, MaxSegments: 8, MaxInline: 64, MaxMessage: 1 << 30,
		MaxQPDepth: 1 << 12, MaxReads: 16, MaxPrivate: 512, Handlers: d.Handlers,
		TailLast: true, Atomics: true, PollableCQs: true,
	}
}

// Close releases everything.
func (d *device) Close() error { return d.Device.Close(nil) }

// memory is the device's part in regions: memory of the Go heap, about which peers need not be told.
type memory struct{ dev *device }

func (m memory) Closed() bool                                 { return m.dev.Closed() }
func (m memory) NewEntry(int) error                           { return nil }
func (m memory) Publish(*verbs.Region, uint32, transport.Key) {}
func (m memory) Registered(*verbs.Region)                     {}
func (m memory) Revoke(*verbs.Region, bool, bool) error       { return nil }

func (m memory) Map(n int, _ transport.Access) ([]byte, error) {
	mem := make([]byte, n+pageSize)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) & (pageSize - 1)
	return mem[skip : skip+n : skip+n], nil
}
