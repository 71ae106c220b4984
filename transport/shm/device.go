package shm

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/weft-mpi/weft/internal/firstmessage"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// Options of a device. A zero field stands for its default.
type Options struct {
	// size of the address range that peers map, used or not; default: twice the machine's memory, at most 256
	// GiB
	Arena int64
	// never access the memory of another process by system calls: what is not in an arena goes through the
	// rings
	NoCMA       bool
	NoHugePages bool                // do not move the program's memory to huge pages
	CopyCosts   transport.CopyCosts // the value of DeviceAttr.CopyCosts; zero: measure it
	// for messages without a connection; nil: there are none. Close closes it
	FirstMessages *firstmessage.Memory
	AuthTimeout   time.Duration // for an unauthenticated peer; 2 s
	PeerTimeout   time.Duration // how long a peer may be silent; MinPeerTimeout or more; 10 s
	// whether a peer is known to run: see fabric.Config
	Running func(peer uint32) bool
	// called, from any goroutine, when this process cannot continue: see fabric.Config
	Fatal func(peer uint32, err error)
	Log   *slog.Logger // for events outside calls; nil: nothing is logged
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

// Device is a rank's endpoint in the shared memory of a host.
type Device struct {
	queuepair.Device

	opts       Options
	asymmetric bool             // membarrier (asymmetric fences) is available
	probe      *[nonceSize]byte // nonce that peers read to test whether they can read this process's memory
	arena      *arena
	huge       hugePages
	liveness   liveness
	copyCall   copyCall

	live struct {
		sync.Mutex
		inbounds map[*receiveBlock]struct{} // where peers may write
		links    map[*connection]struct{}
		retired  []*connection // whose block is freed when the peer's process ends
		fatal    []uint32      // peers for which Options.Fatal was called
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
	probe := make([]byte, max(nonceSize, sys.TimedBytes)) // peers measure how long all of it takes
	rand.Read(probe)
	a, err := newArena(o.Arena)
	if err != nil {
		return nil, err
	}
	d := &Device{opts: o, asymmetric: sys.JoinBarrier(), probe: (*[nonceSize]byte)(probe), arena: a}
	if err := d.Init(); err != nil {
		return nil, errors.Join(err, a.close())
	}
	d.huge.began = time.Now()
	d.copyCall.pin(o.CopyCosts)
	d.huge.off = o.NoHugePages || o.NoCMA || os.Getpagesize() != minPage || !sys.CanCollapse()
	d.Regions = verbs.NewTable(memory{d}, d.Query)
	d.liveness.stopped = make(chan struct{})
	d.live.inbounds, d.live.links = map[*receiveBlock]struct{}{}, map[*connection]struct{}{}
	return d, nil
}

// Query returns the device's attributes.
func (d *Device) Query() transport.DeviceAttr {
	return transport.DeviceAttr{
		Provider: "shm", MaxSGE: maxSGE, MaxSegments: maxSegments, MaxInline: maxInline,
		MaxMessage: maxMessage,
		MaxQPDepth: maxDepth, MaxReads: maxReads, MaxPrivate: maxPrivate, Handlers: d.Handlers,
		MaxPolledQPs: maxPolledQPs,
		TickPeriod:   d.tickPeriod(),
		TailLast:     true, InlineWrites: d.asymmetric, PeerMapped: true, DirectCopies: true, Atomics: true,
		PollableCQs: true, CopyCosts: d.copyCall.known(), HugePages: !d.huge.off,
	}
}

// Close releases everything.
func (d *Device) Close() error {
	return d.Device.Close(func() error {
		d.liveness.stop()
		return errors.Join(d.opts.FirstMessages.Close(), d.arena.close())
	})
}
