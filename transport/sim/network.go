// Package sim implements the verbs of package transport within one process for tests, deterministic by a
// seed.
//
// It keeps exactly the promises of package transport. What they leave open is drawn from the seed: how much a
// Poll moves, where messages are cut, in which order the pieces of different Writes are placed, whether a
// Send completes when it is sent or when it has arrived, whether the bytes on the wire outlive a cut. A
// program that passes under many seeds relies on nothing that a real provider does not promise. Cuts fall
// between any two bytes: a word that is not a Write's tail can be placed in two parts.
//
// With one goroutine that drives all ranks (and ManualConnect), a run depends only on the seed and the calls,
// so a failing seed is a test case. With a goroutine for each rank, it also depends on their schedule.
package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// Network connects the devices: it has the wires, the seed and the faults. Its methods may be called from any
// goroutine.
type Network struct {
	mu       sync.Mutex // guards the network, its devices and their objects
	seed     uint64
	rng      *rand.Rand // for everything that belongs to no device
	manual   bool
	cutEvery int
	costs    *Costs                      // nil where messages take no time
	slow     map[[2]uint32]time.Duration // delays of pieces between two ranks
	mutant   mutant
	turn     sync.Mutex // of the mutant oneAtATime
	devices  []*device
	// held by the attempt whose callbacks run; keyed by the lower and the higher address
	pairs      map[[2]string]*sync.Mutex
	attempts   []*attempt                  // in progress, in the order of their start
	gates      map[[2]uint32]chan struct{} // of Hold; closed by Unhold
	collisions map[[2]uint32]chan struct{} // of Collide; closed when two have collided
	refusals   map[[2]uint32]int
	counters   Counters
}

// Option changes how a network behaves.
type Option func(*Network)

// ManualConnect makes connections advance only in Step, in an order drawn from the seed. Otherwise every
// attempt has its own goroutine.
func ManualConnect() Option { return func(n *Network) { n.manual = true } }

// RandomCuts cuts a connection at about one of every n placed pieces.
func RandomCuts(n int) Option { return func(net *Network) { net.cutEvery = n } }

// NewNetwork returns a network without devices.
func NewNetwork(seed uint64, opts ...Option) *Network {
	n := &Network{
		seed:       seed,
		rng:        rand.New(rand.NewPCG(seed, 0)),
		pairs:      map[[2]string]*sync.Mutex{},
		gates:      map[[2]uint32]chan struct{}{},
		collisions: map[[2]uint32]chan struct{}{},
		refusals:   map[[2]uint32]int{},
	}
	for _, o := range opts {
		o(n)
	}
	return n
}

// Device returns a new device, one for each rank.
func (n *Network) Device() transport.Device {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := len(n.devices) + 1
	d := &device{
		net:  n,
		id:   id,
		rng:  rand.New(rand.NewPCG(n.seed, uint64(id)<<32)),
		keys: map[transport.Key]*mr{},
		qps:  map[transport.QPN]*qp{},
	}
	n.devices = append(n.devices, d)
	return d
}

// Counters count what the seed and the faults have caused, so that a test can prove that its fault struck.
type Counters struct {
	Messages     int // begun on a wire
	Split        int // of these, sent in more than one piece
	Placements   int // pieces placed
	Reordered    int // pieces placed while one of an earlier message was not
	EarlyTails   int // times the tail of a Write had to wait for the rest
	EarlyDone    int // Sends and Writes that completed before they had arrived
	Overtaken    int // completions ahead of an earlier Read's
	IdlePolls    int // Polls that moved nothing though they could have
	Cuts         int // connections cut by a fault
	CutsMidway   int // of these, with a message placed in part
	Lost         int // messages begun that a cut prevented from being delivered
	Vanished     int // devices
	Refused      int // attempts to connect that were refused, for any reason
	Crossed      int // attempts that yielded to one of a lower rank
	Delayed      int // attempts that a Hold delayed
	RNR          int // messages that found no Recv posted
	Overruns     int // completion queues
	Terminations int // connections ended because a rule was broken
}

// Counters returns the counts so far.
func (n *Network) Counters() Counters {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counters
}

// find returns the endpoint that listens at addr, or nil.
func (n *Network) find(addr string) *endpoint {
	for _, d := range n.devices {
		if d.ep != nil && !d.ep.closed && !d.gone && d.addr() == addr {
			return d.ep
		}
	}
	return nil
}

func (d *device) addr() string { return fmt.Sprintf("sim:%d", d.id) }
