package engine

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// Fabric is one way to reach peers: a provider's device.
type Fabric struct {
	Device transport.Device
	// length above which a message from one contiguous buffer goes by rendezvous; 0 for the capacity of the
	// largest slot
	EagerLimit int
	Piece      int // bytes that one Read or Write of a large message moves; 0 for the default
}

// The number of times that a waiting rank that shares its core yields the core and polls again before it
// sleeps. With a fabric that delivers without system calls, yielding is faster than being woken. A rank with
// more peers than such a fabric polls is told of arrivals in any case, and shares its core with many ranks:
// all of them run in the time of a few yields.
const (
	yieldsPolling   = 100
	yieldsManyPeers = 12
	yieldsNotified  = 3
)

// Lookup returns the address on which a peer listens in a provider, or "" if the peer does not. It may block.
type Lookup func(rank uint32, provider string) (string, error)

// fabric is an engine's use of a device of its rank. A peer belongs to one fabric from its connection on. The
// engine's lock guards it.
type fabric struct {
	*device
	pd         transport.PD
	cq         transport.CQ
	eagerLimit int
	// whether what copies take decides how a message moves whose receiver is probably waiting
	awaits bool
	start  copycost.Costs          // until they are measured
	reads  int                     // Reads of one QP under way at once
	views  transport.ViewRegistrar // nil if the buffer of a work request must be contiguous

	oneSided oneSidedTable
	sender   *rendezvous.Sender
	receiver *rendezvous.Receiver

	byQP     map[transport.QPN]*peer
	lastQP   transport.QPN // the QP that was looked up last, and its peer: most passes see one peer
	lastPeer *peer

	// Peers whose rings the engine polls in every pass, since the device does not report what is placed.
	polled    []*peer
	maxPolled int

	handler transport.HandlerID // 0: none
}

func (e *Engine) newFabric(c *Config, from *device) (*fabric, error) {
	attr := from.Device.Query()
	f := &fabric{
		device: from, eagerLimit: cmp.Or(c.EagerLimit, from.EagerLimit, math.MaxInt),
		reads: min(readDepth, attr.MaxReads),
		byQP:  map[transport.QPN]*peer{}, maxPolled: attr.MaxPolledQPs,
	}
	var err error
	e.waiting.maxYields = max(e.waiting.maxYields, yieldsNotified)
	if attr.MaxPolledQPs > 0 {
		e.waiting.maxYields = yieldsPolling
	}
	if c.Turns != nil {
		e.waiting.maxYields = 1 // nothing comes unless another rank has a turn
	}
	if f.pd, err = f.Device.AllocPD(); err != nil {
		return nil, err
	}
	f.start = c.StartCosts
	f.awaits = c.EagerLimit == 0 && c.SpinTime > 0 && attr.DirectCopies && c.Rendezvous != RendezvousWrite
	f.views = transport.ViewRegistrarOf(f.pd)
	if len(c.HandlerCores) > 0 {
		if f.handler, err = e.completionHandler.start(f.Device); err != nil {
			return nil, err
		}
	}
	if f.cq, err = f.Device.CreateCQ(cqDepth, f.handler); err != nil {
		if f.handler != 0 {
			err = errors.Join(err, f.Device.CloseHandler(f.handler))
		}
		return nil, err
	}
	share := c.SpinTime > 0 // the sender can copy while it waits
	f.sender = rendezvous.NewSender(f.pd, rendezvous.SenderConfig{Piece: from.Piece, Share: share})
	f.receiver = rendezvous.NewReceiver(f.pd, rendezvous.ReceiverConfig{Piece: from.Piece, Share: share,
		Grant:           c.Rendezvous == RendezvousWrite || f.reads == 0,
		GrantContiguous: c.Rendezvous == RendezvousAuto && !attr.DirectCopies, Place: e.views.place})
	return f, nil
}

// addPeer adds a connected peer. It reports whether there are now more than the engine polls: the device
// reports what arrives.
func (f *fabric) addPeer(p *peer) (many bool) {
	f.byQP[p.ch.QP().Num()] = p
	f.lastPeer = nil
	if f.maxPolled == 0 || f.handler != 0 {
		return false
	}
	f.polled = append(f.polled, p)
	many = len(f.byQP) > f.maxPolled
	for _, q := range f.polled {
		q.polled = !many
	}
	if many {
		f.polled = nil
	}
	return many
}

// peerOf returns the peer of a queue pair, or nil.
func (f *fabric) peerOf(q transport.QPN) *peer {
	if q != f.lastQP || f.lastPeer == nil {
		f.lastQP, f.lastPeer = q, f.byQP[q]
	}
	return f.lastPeer
}

// HugePages reports whether memory of this process that others often read is moved to huge pages.
func (e *Engine) HugePages() bool {
	return slices.ContainsFunc(e.fabrics, func(f *fabric) bool { return f.Device.Query().HugePages })
}

// gather makes announced messages of a channel wait, until gather(nil), for the progress that follows then:
// what goes out for several of them goes together.
func (f *fabric) gather(c *channel.Channel) {
	f.sender.Gather(c)
	f.receiver.Gather(c)
}

// rendezvousIdle reports whether no announced message is under way.
func (f *fabric) rendezvousIdle() bool { return f.receiver.Idle() && f.sender.Idle() }
