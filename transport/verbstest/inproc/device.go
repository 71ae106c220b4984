// Package inproc is a provider for the ranks of one process, over Go memory. It is an example of what a
// provider takes where speed does not matter: regions, windows, queues, completion handlers and connection
// management are the shared parts in transport/internal, and only how bytes move is here.
package inproc

import (
	"errors"
	"slices"
	"sync"
	"unsafe"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
	"github.com/weft-mpi/weft/transport/internal/plain"
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
	handlers.Verbs

	net      *Network
	attr     transport.DeviceAttr
	handlers *handlers.Set
	regions  *verbs.Table
	lastQP   atomic.Uint32
	closed   atomic.Bool

	mu  sync.Mutex // guards what follows
	cqs []*plain.CQ
	end *endpoint
}

// Device makes a device.
func (n *Network) Device() (transport.Device, error) {
	cores, err := handlers.Cores()
	if err != nil {
		return nil, err
	}
	set := handlers.NewSet(cores)
	d := &device{Verbs: set.Verbs(), net: n, handlers: set, attr: transport.DeviceAttr{
		Provider: "inproc", MaxSGE: 8, MaxSegments: 8, MaxInline: 64, MaxMessage: 1 << 30,
		MaxQPDepth: 1 << 12, MaxReads: 16, MaxPrivate: 512, Handlers: cores,
		TailLast: true, Atomics: true, Windows: true, PollableCQs: true,
	}}
	d.regions = verbs.NewTable(memory{d}, d.attr)
	return d, nil
}

func (d *device) Query() transport.DeviceAttr    { return d.attr }
func (d *device) AllocPD() (transport.PD, error) { return d.regions.AllocPD() }

func (d *device) CreateCQ(depth int, id transport.HandlerID) (transport.CQ, error) {
	if d.closed.Load() {
		return nil, transport.ErrDeviceGone
	}
	c, err := plain.NewCQ(d.handlers, depth, id)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cqs = append(d.cqs, c)
	return c, nil
}

// Close releases everything.
func (d *device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.mu.Lock()
	end, cqs := d.end, slices.Clone(d.cqs)
	d.mu.Unlock()
	var err error
	if end != nil {
		err = end.Close()
	}
	for _, c := range cqs {
		c.EndAll()
	}
	d.handlers.Stop()
	for _, c := range cqs {
		c.Dispose()
	}
	return errors.Join(err, d.regions.Close())
}

// memory is the device's part in regions: memory of the Go heap, about which peers need not be told.
type memory struct{ dev *device }

func (m memory) Closed() bool                                                { return m.dev.closed.Load() }
func (m memory) NewEntry(int) error                                          { return nil }
func (m memory) Publish(*verbs.Region, uint32, transport.QPN, transport.Key) {}
func (m memory) Revoke(*verbs.Region, bool, bool) error                      { return nil }

func (m memory) Map(n int, _ transport.Access) ([]byte, error) {
	mem := make([]byte, n+pageSize)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) & (pageSize - 1)
	return mem[skip : skip+n : skip+n], nil
}
