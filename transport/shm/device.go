package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// Options of a device. A zero field stands for its default.
type Options struct {
	// bytes of addresses for what peers map, used or not; twice the machine's memory, but at most 256 GiB
	Arena int64
	// never read the memory of another process: what is not shared goes through the rings
	NoCMA           bool
	StrangerTimeout time.Duration // how long an unproven peer may take; 2 s
	PeerTimeout     time.Duration // how long a peer may be silent; MinPeerTimeout or more; 10 s
	Log             *slog.Logger  // for what belongs to no call; nothing is logged without
}

const (
	maxSGE      = 8
	maxSegments = 8
	maxInline   = 64
	maxMessage  = 1 << 46
	maxDepth    = 1 << 15
	maxReads    = 64
	maxPrivate  = 512
	maxCQDepth  = 1 << 20
	maxArena    = 256 << 30 // of a peer too
)

// Device is a rank's share of the memory of a host.
type Device struct {
	handlers.Verbs

	opts       Options
	cores      int // that this process may use
	handlers   *handlers.Set
	asymmetric bool
	probe      *[nonceSize]byte // what peers read to learn whether they can
	arena      *arena
	regions    *verbs.Table
	lastQP     atomic.Uint32
	closed     atomic.Bool
	liveness   liveness

	live struct {
		sync.Mutex
		inbounds map[*receiveBlock]struct{} // where peers may write
		links    map[*connection]struct{}
	}

	mu  sync.Mutex // guards what follows
	cqs []*cq
	end *endpoint
}

// New makes a device. It needs Linux.
func New(o Options) (*Device, error) {
	if o.StrangerTimeout <= 0 {
		o.StrangerTimeout = 2 * time.Second
	}
	switch {
	case o.PeerTimeout == 0:
		o.PeerTimeout = 10 * time.Second
	case o.PeerTimeout < MinPeerTimeout:
		return nil, fmt.Errorf("a peer timeout of %v: %v is the least", o.PeerTimeout, MinPeerTimeout)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Arena == 0 {
		total, err := sys.TotalMemory()
		if err == nil {
			err = sys.UnlimitedAddresses()
		}
		if err != nil {
			return nil, err
		}
		o.Arena = max(min(2*total, maxArena), minArena)
	}
	probe := new([nonceSize]byte)
	rand.Read(probe[:])
	cores, err := handlers.Cores()
	if err != nil {
		return nil, err
	}
	a, err := newArena(o.Arena)
	if err != nil {
		return nil, err
	}
	set := handlers.NewSet(cores)
	d := &Device{opts: o, cores: cores, handlers: set, Verbs: set.Verbs(), asymmetric: sys.JoinBarrier(),
		probe: probe, arena: a}
	d.regions = verbs.NewTable(memory{d}, d.Query())
	d.liveness.stopped = make(chan struct{})
	d.live.inbounds, d.live.links = map[*receiveBlock]struct{}{}, map[*connection]struct{}{}
	return d, nil
}

// Query tells the device's limits.
func (d *Device) Query() transport.DeviceAttr {
	return transport.DeviceAttr{
		Provider: "shm", MaxSGE: maxSGE, MaxSegments: maxSegments, MaxInline: maxInline,
		MaxMessage: maxMessage,
		MaxQPDepth: maxDepth, MaxReads: maxReads, MaxPrivate: maxPrivate, Handlers: d.cores,
		MaxPolledQPs: maxPolledQPs,
		TickPeriod:   d.tickPeriod(),
		TailLast:     true, InlineWrites: true, PeerMapped: true, DirectReads: true, Atomics: true,
		Windows: true, PollableCQs: true,
	}
}

// AllocPD makes a protection domain.
func (d *Device) AllocPD() (transport.PD, error) { return d.regions.AllocPD() }

// Close releases everything.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	var errs []error
	d.mu.Lock()
	end, cqs := d.end, slices.Clone(d.cqs)
	d.mu.Unlock()
	if end != nil {
		errs = append(errs, end.Close())
	}
	for _, c := range cqs {
		c.end()
	}
	d.handlers.Stop()
	d.liveness.stop()
	d.mu.Lock()
	for _, c := range cqs {
		c.release()
	}
	d.mu.Unlock()
	return errors.Join(append(errs, d.regions.Close(), d.arena.close())...)
}
