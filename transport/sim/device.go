package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"

	"github.com/weft-mpi/weft/transport"
)

// The limits of a simulated device: small, so that tests reach them.
var attr = transport.DeviceAttr{
	Provider:    "sim",
	MaxSGE:      16,
	MaxSegments: 16,
	MaxInline:   1024,
	MaxMessage:  1 << 30,
	MaxQPDepth:  1 << 12,
	MaxReads:    64,
	MaxPrivate:  256,
	Handlers:    4,
	TailLast:    true, Lanes: true, DirectCopies: true, Atomics: true,
}

const maxCQDepth = 1 << 20

type device struct {
	net      *Network
	id       int
	rng      *rand.Rand // keys
	busy     busy
	ep       *endpoint
	cqs      []*cq
	keys     map[transport.Key]*mr
	free     []*mr // objects of deregistered regions, for reuse
	qps      map[transport.QPN]*qp
	lastQPN  transport.QPN
	handlers []*handler // by id, from 1; nil where closed
	cores    []*core    // of the handlers
	closing  bool
	gone     bool // closed, or vanished
}

func (d *device) Query() transport.DeviceAttr { return attr }

func (d *pd) DeviceAttr() transport.DeviceAttr { return attr }

// alive returns nil while the device can be used.
func (d *device) alive() error {
	if d.gone || d.closing {
		return d.goneErr()
	}
	return nil
}

func (d *device) AllocPD() (transport.PD, error) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if err := d.alive(); err != nil {
		return nil, fmt.Errorf("allocate protection domain: %w", err)
	}
	return &pd{dev: d}, nil
}

func (d *device) CreateCQ(depth int, h transport.HandlerID) (transport.CQ, error) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if err := d.alive(); err != nil {
		return nil, fmt.Errorf("create completion queue: %w", err)
	}
	if depth < 1 || depth > maxCQDepth {
		return nil, fmt.Errorf("create completion queue: depth %d is not within 1…%d: %w", depth, maxCQDepth,
			transport.ErrInvalid)
	}
	c := &cq{
		dev:    d,
		depth:  depth,
		rng:    rand.New(rand.NewPCG(d.net.seed, uint64(d.id)<<32|uint64(len(d.cqs)+1)<<16)),
		wakeup: make(chan struct{}, 1),
	}
	if err := d.give(c, h); err != nil {
		return nil, fmt.Errorf("create completion queue: %w", err)
	}
	d.cqs = append(d.cqs, c)
	return c, nil
}

// Close removes the device from the network. The peers of its queue pairs find them cut.
func (d *device) Close() error {
	d.net.mu.Lock()
	ep := d.ep
	d.net.mu.Unlock()
	if ep != nil {
		if err := ep.Close(); err != nil {
			return err
		}
	}
	d.net.mu.Lock()
	d.closing = true // no new objects from now on
	cqs, cores := slices.Clone(d.cqs), d.cores
	d.cores = nil
	d.net.mu.Unlock()
	for _, c := range cqs {
		c.end()
	}
	for _, k := range cores {
		k.stop()
	}
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	d.gone = true
	for _, m := range d.regions() {
		m.release()
	}
	for _, c := range d.cqs {
		c.closed = true
		c.signal()
	}
	return nil
}

func (d *device) goneErr() error { return fmt.Errorf("%s: %w", d.addr(), transport.ErrDeviceGone) }

func (d *device) rank() uint32 {
	if d.ep == nil {
		return 0
	}
	return d.ep.id.Rank
}

// openQPs returns the queue pairs ordered by number.
func (d *device) openQPs() []*qp {
	var list []*qp
	for num := transport.QPN(1); num <= d.lastQPN; num++ {
		if q := d.qps[num]; q != nil {
			list = append(list, q)
		}
	}
	return list
}

func (d *device) regions() []*mr {
	var list []*mr
	for _, m := range d.keys {
		list = append(list, m)
	}
	return list
}

type pd struct {
	dev    *device
	users  int // regions and queue pairs
	closed bool
}

func (p *pd) Register(buf []byte, access transport.Access) (transport.MR, error) {
	p.dev.net.mu.Lock()
	defer p.dev.net.mu.Unlock()
	if err := p.check(access); err != nil {
		return nil, fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	if access&transport.RemoteAtomic != 0 && !aligned(buf, 0) {
		return nil, fmt.Errorf("register %d bytes for Atomics: they must begin at a multiple of %d: %w",
			len(buf), wordSize,
			transport.ErrInvalid)
	}
	return p.register(buf, access), nil
}

func (p *pd) Alloc(n int, access transport.Access) (transport.MR, error) {
	p.dev.net.mu.Lock()
	defer p.dev.net.mu.Unlock()
	if err := p.check(access); err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	if n <= 0 {
		return nil, fmt.Errorf("allocate %d bytes: the length must be positive: %w", n, transport.ErrInvalid)
	}
	mem, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes: mmap: %w", n, err)
	}
	m := p.register(mem, access)
	m.mapped = true
	return m, nil
}

func (p *pd) check(access transport.Access) error {
	const known = transport.LocalWrite | transport.RemoteRead | transport.RemoteWrite |
		transport.RemoteAtomic | transport.Unchanging | transport.SoleWriter | transport.Mappable
	switch {
	case p.dev.gone:
		return p.dev.goneErr()
	case p.closed:
		return fmt.Errorf("protection domain is closed: %w", transport.ErrInvalid)
	case access&^known != 0:
		return fmt.Errorf("unknown access %v: %w", access, transport.ErrInvalid)
	}
	return nil
}

func (p *pd) register(buf []byte, access transport.Access) *mr {
	d := p.dev
	var m *mr
	if last := len(d.free) - 1; last >= 0 {
		m, d.free = d.free[last], d.free[:last]
	} else {
		m = new(mr)
	}
	key := m.key
	if d.net.mutant != keysStay || key == 0 {
		key = d.newKey()
	}
	*m = mr{pd: p, buf: buf, access: access, key: key, live: true}
	d.keys[key] = m
	p.users++
	return m
}

func (d *device) newKey() transport.Key {
	for {
		if key := transport.Key(d.rng.Uint64()); key != 0 && d.keys[key] == nil {
			return key
		}
	}
}

func (p *pd) Close() error {
	p.dev.net.mu.Lock()
	defer p.dev.net.mu.Unlock()
	if p.users > 0 && !p.dev.gone {
		return fmt.Errorf("close protection domain: %d regions and queue pairs still use it: %w",
			p.users,
			transport.ErrInvalid)
	}
	p.closed = true
	return nil
}

type mr struct {
	pd     *pd
	buf    []byte
	access transport.Access
	key    transport.Key
	mapped bool // by Alloc
	live   bool
}

func (m *mr) Bytes() []byte            { return m.buf }
func (m *mr) Key() transport.Key       { return m.key }
func (m *mr) Access() transport.Access { return m.access }

func (m *mr) Deregister() error {
	d := m.pd.dev
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if !m.live {
		if d.gone {
			return nil // the device released it
		}
		return fmt.Errorf("deregister: the region is gone already: %w", transport.ErrInvalid)
	}
	m.release()
	d.free = append(d.free, m)
	return nil
}

func (m *mr) Detach() error {
	m.pd.dev.net.mu.Lock()
	m.mapped = false
	m.pd.dev.net.mu.Unlock()
	return m.Deregister()
}

func (m *mr) release() {
	delete(m.pd.dev.keys, m.key)
	m.pd.users--
	m.live = false
	if m.mapped {
		_ = syscall.Munmap(m.buf) // fails only for an address that is not a mapping
	}
	m.buf = nil
}

// reach checks a peer's access to a segment of a region: key, domain, right, bounds.
func (q *qp) reach(s transport.Segment, need transport.Access) (*mr, error) {
	d, p := q.dev, q.pd()
	m := d.keys[s.Key]
	switch {
	case m == nil:
		return nil, fmt.Errorf("no region has key %#x: %w", s.Key, transport.ErrAccess)
	case m.pd != p && d.net.mutant != noDomain:
		return nil, fmt.Errorf("region of key %#x belongs to another protection domain: %w", s.Key,
			transport.ErrAccess)
	case m.access&need == 0 && d.net.mutant != noRights:
		return nil, fmt.Errorf("region of key %#x does not give the right: %w", s.Key, transport.ErrAccess)
	}
	size := uint64(len(m.buf))
	if s.Offset > size || s.Length > size-s.Offset {
		if d.net.mutant == noBounds && s.Offset < size {
			return m, nil
		}
		return nil, fmt.Errorf("%d bytes at %d are beyond the %d bytes of the region of key %#x: %w",
			s.Length, s.Offset, size, s.Key, transport.ErrAccess)
	}
	return m, nil
}
