package tcp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// Options of a device. A zero field stands for its default.
type Options struct {
	Host        string        // address to listen on and to connect from; "127.0.0.1"
	LowPort     int           // first and last port to listen on; 0: the system chooses
	HighPort    int           //
	AuthTimeout time.Duration // for an unauthenticated peer; 2 s
	PeerTimeout time.Duration // how long a peer may be silent; MinPeerTimeout or more; 10 s
	// whether a peer is known to run: see fabric.Config
	Running func(peer uint32) bool
	// encrypt connections with TLS 1.3; must be the same for the devices of all ranks
	TLS bool
	// whether frames have a checksum; ChecksumAuto uses one only between machines and without TLS
	Checksum Checksum
	Log      *slog.Logger // for events outside calls; nil: nothing is logged

	// Lanes is the number of connections of a queue pair, if the peer's device allows as many; 0 means 1. If
	// there are several and one is lost, the others resend its frames, and it is re-established.
	Lanes int

	// Interfaces are local addresses for lanes, used in turn, at most three; the device also listens on them.
	// If there are none, all lanes use the address of the connection.
	Interfaces []netip.Addr

	// Reconnect re-establishes a lost connection of a queue pair with one lane too.
	Reconnect bool

	reportBurst int // how many refused connections are reported in a period; 0: as cm.Limiter says
}

const (
	maxSGE     = 8
	maxInline  = 64
	maxMessage = 1 << 46
)

// Device is a rank's software RNIC.
type Device struct {
	queuepair.Device

	opts    Options
	end     *endpoint
	closing sync.WaitGroup // sockets whose last bytes are in flight
}

// New makes a device. It needs Linux.
func New(o Options) (*Device, error) {
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.AuthTimeout <= 0 {
		o.AuthTimeout = 2 * time.Second
	}
	if err := keepalive.CheckTimeout(&o.PeerTimeout); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.TLS && o.Checksum == ChecksumAuto {
		o.Checksum = ChecksumNever // TLS records are authenticated
	}
	if err := errors.Join(o.checkPorts(), o.checkLanes()); err != nil {
		return nil, err
	}
	d := &Device{opts: o}
	if err := d.Init(); err != nil {
		return nil, err
	}
	d.Regions = verbs.NewTable(memory{d}, d.Query)
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

// Query returns the device's attributes.
func (d *Device) Query() transport.DeviceAttr {
	return transport.DeviceAttr{
		Provider: "tcp", MaxSGE: maxSGE, MaxSegments: frame.MaxSegments, MaxInline: maxInline,
		MaxMessage: maxMessage,
		MaxQPDepth: message.MaxDepth, MaxReads: message.MaxReads, MaxPrivate: message.MaxPrivate,
		Handlers:   d.Handlers,
		TickPeriod: d.tickPeriod(),
		TailLast:   true, InlineWrites: true, PollQP: true, Lanes: true, Atomics: true,
		PollableCQs:    true,
		StreamTransfer: true,
		// a view cannot be gathered again to resend a frame over another lane
		Views: !d.opts.reconnects(),
	}
}

// Close releases everything. It waits until peers have acknowledged what was sent before the orderly end of
// their connections, or for Options.PeerTimeout.
func (d *Device) Close() error {
	return d.Device.Close(func() error {
		d.closing.Wait()
		return nil
	})
}
