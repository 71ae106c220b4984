package tcp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// Options of a device. A zero field stands for its default.
type Options struct {
	Host            string        // address to listen on and to connect from; "127.0.0.1"
	LowPort         int           // first and last port to listen on; 0: the system chooses
	HighPort        int           //
	StrangerTimeout time.Duration // how long an unproven peer may take; 2 s
	PeerTimeout     time.Duration // how long a peer may be silent; MinPeerTimeout or more; 10 s
	// encrypt connections with TLS 1.3; the devices of all ranks have to say the same
	TLS bool
	// whether frames have a checksum; only between machines, and where there is no TLS
	Checksum Checksum
	Log      *slog.Logger // for what belongs to no call; nothing is logged without

	// Lanes is how many connections carry a queue pair, if the peer's device allows as many; 0 and 1: one.
	// Where there is more than one, the loss of one is none of the peer: the others take over what it
	// carried, and it is made anew.
	Lanes int

	// Interfaces are local addresses over which lanes are spread, in turn, at most three; the device listens
	// on them too. Empty: on and from the address of the connection alone.
	Interfaces []netip.Addr

	// Reconnect keeps a queue pair of one lane alive too: a lost connection is made anew.
	Reconnect bool

	reportBurst int // how many refused connections are reported in a period; 0: as cm.Limiter says
}

const (
	maxSGE     = 8
	maxInline  = 64
	maxMessage = 1 << 46
	maxDepth   = 1 << 15
	maxReads   = 64
	maxPrivate = 512
	maxCQDepth = 1 << 20
)

// Device is a rank's software RNIC.
type Device struct {
	handlers.Verbs

	opts    Options
	cores   int // that this process may use
	regions *verbs.Table
	lastQP  atomic.Uint32
	closed  atomic.Bool

	handlers *handlers.Set
	lanes    laneCounts

	mu  sync.Mutex // guards what follows
	qps []*qp      // by number; nil where released or not yet handed over
	cqs []*cq
	end *endpoint
}

// New makes a device. It needs Linux.
func New(o Options) (*Device, error) {
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
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
	if o.TLS && o.Checksum == ChecksumAuto {
		o.Checksum = ChecksumNever // records have a better one
	}
	if err := errors.Join(o.checkPorts(), o.checkLanes()); err != nil {
		return nil, err
	}
	cores, err := handlers.Cores()
	if err != nil {
		return nil, err
	}
	set := handlers.NewSet(cores)
	d := &Device{opts: o, cores: cores, handlers: set, Verbs: set.Verbs()}
	d.regions = verbs.NewTable(memory{d}, d.Query())
	return d, nil
}

func (o *Options) checkPorts() error {
	if o.LowPort == 0 && o.HighPort == 0 {
		return nil
	}
	if o.LowPort < 1 || o.HighPort > 65535 || o.LowPort > o.HighPort {
		return fmt.Errorf("ports %d to %d: not a range from 1 to 65535", o.LowPort, o.HighPort)
	}
	return nil
}

// Query tells the device's limits.
func (d *Device) Query() transport.DeviceAttr {
	return transport.DeviceAttr{
		Provider: "tcp", MaxSGE: maxSGE, MaxSegments: frame.MaxSegments, MaxInline: maxInline,
		MaxMessage: maxMessage,
		MaxQPDepth: maxDepth, MaxReads: maxReads, MaxPrivate: maxPrivate, Handlers: d.cores,
		TickPeriod: d.tickPeriod(),
		TailLast:   true, InlineWrites: true, PollQP: true, Lanes: true, Atomics: true,
		Windows: true, PollableCQs: true,
		StreamTransfer: true,
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
	for _, c := range cqs {
		c.release()
	}
	errs = append(errs, d.regions.Close())
	return errors.Join(errs...)
}

// know enters a QP into the table.
func (d *Device) know(q *qp) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.qps) <= int(q.num) {
		d.qps = append(d.qps, nil)
	}
	if q.pd != nil {
		d.qps[q.num] = q
	}
}

// unknow takes it out again.
func (d *Device) unknow(q *qp) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if int(q.num) < len(d.qps) {
		d.qps[q.num] = nil
	}
}
