package shm

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// Options of a device. A zero field stands for its default.
type Options struct {
	// bytes of addresses for what peers map, used or not; twice the machine's memory, but at most 256 GiB
	Arena int64
	// never read the memory of another process: what is not shared goes through the rings
	NoCMA       bool
	NoHugePages bool          // leave memory of the program on the pages that it has
	CopyCall    time.Duration // what DeviceAttr.CopyCall is to be; 0: measure it
	AuthTimeout time.Duration // how long an unproven peer may take; 2 s
	PeerTimeout time.Duration // how long a peer may be silent; MinPeerTimeout or more; 10 s
	// whether a peer is known to run: see fabric.Config
	Running func(peer uint32) bool
	// called, from any goroutine, where this process can only end: see fabric.Config
	Fatal func(peer uint32, err error)
	Log   *slog.Logger // for what belongs to no call; nothing is logged without
}

const (
	maxSGE      = 8
	maxSegments = 8
	maxInline   = 64
	maxMessage  = 1 << 46
	maxDepth    = 1 << 15
	maxReads    = 64
	maxPrivate  = 512
	maxArena    = 256 << 30 // of a peer too
)

// Device is a rank's share of the memory of a host.
type Device struct {
	queuepair.Device

	opts       Options
	asymmetric bool
	probe      *[nonceSize]byte // what peers read to learn whether they can
	arena      *arena
	huge       hugePages
	liveness   liveness
	copyCall   copyCall

	live struct {
		sync.Mutex
		inbounds map[*receiveBlock]struct{} // where peers may write
		links    map[*connection]struct{}
		retired  []*connection // whose block waits for the end of the peer's process
	}

	end *endpoint
}

// New makes a device. It needs Linux.
func New(o Options) (*Device, error) {
	if o.AuthTimeout <= 0 {
		o.AuthTimeout = 2 * time.Second
	}
	if err := keepalive.CheckTimeout(&o.PeerTimeout); err != nil {
		return nil, err
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
	a, err := newArena(o.Arena)
	if err != nil {
		return nil, err
	}
	d := &Device{opts: o, asymmetric: sys.JoinBarrier(), probe: probe, arena: a}
	if err := d.Init(); err != nil {
		return nil, errors.Join(err, a.close())
	}
	d.huge.began = time.Now()
	d.copyCall.pin(o.CopyCall)
	d.huge.off = o.NoHugePages || o.NoCMA || os.Getpagesize() != minPage
	d.Regions = verbs.NewTable(memory{d}, d.Query)
	d.liveness.stopped = make(chan struct{})
	d.live.inbounds, d.live.links = map[*receiveBlock]struct{}{}, map[*connection]struct{}{}
	return d, nil
}

// Query tells the device's limits.
func (d *Device) Query() transport.DeviceAttr {
	return transport.DeviceAttr{
		Provider: "shm", MaxSGE: maxSGE, MaxSegments: maxSegments, MaxInline: maxInline,
		MaxMessage: maxMessage,
		MaxQPDepth: maxDepth, MaxReads: maxReads, MaxPrivate: maxPrivate, Handlers: d.Handlers,
		MaxPolledQPs: maxPolledQPs,
		TickPeriod:   d.tickPeriod(),
		TailLast:     true, InlineWrites: d.asymmetric, PeerMapped: true, DirectCopies: true, Atomics: true,
		Windows: true, PollableCQs: true, CopyCall: d.copyCall.known(),
	}
}

// Close releases everything.
func (d *Device) Close() error {
	return d.Device.Close(func() error {
		d.liveness.stop()
		return d.arena.close()
	})
}
