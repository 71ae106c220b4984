// Package sim is the verbs of package transport in one process: deterministic from a seed, for tests.
//
// It keeps exactly the promises of package transport and no others. What they leave open is drawn from the
// seed: how much a Poll moves, where messages are cut, in which order the pieces of different Writes are
// placed, whether a Send completes when it is sent or when it has arrived, whether the bytes on the wire
// outlive a cut. A program that passes under many seeds relies on nothing that a real provider may deny it.
// Cuts fall between any two bytes: a word that is not a Write's tail can be placed in two parts.
//
// With one goroutine that drives all ranks (and ManualConnect) a run depends on the seed and on the calls
// alone, so a failing seed is a test case. One goroutine a rank works too; then the schedule of the
// goroutines counts as well.
package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// Network is what connects the devices: the wires, the seed and the faults. All its methods may be called
// from anywhere.
type Network struct {
	mu       sync.Mutex // guards everything of the network, its devices and their objects
	seed     uint64
	rng      *rand.Rand // for what belongs to no device
	manual   bool
	cutEvery int
	costs    *Costs                      // nil where messages take no time
	slow     map[[2]uint32]time.Duration // how long pieces take between two ranks
	mutant   mutant
	turn     sync.Mutex // of the mutant oneAtATime
	devices  []*device
	// held by the attempt whose callbacks run; keyed by the lower and the higher address
	pairs      map[[2]string]*sync.Mutex
	attempts   []*attempt                  // under way, in the order of their start
	gates      map[[2]uint32]chan struct{} // of Hold; closed by Unhold
	collisions map[[2]uint32]chan struct{} // of Cross; closed when two have met
	refusals   map[[2]uint32]int
	counters   Counters
}

// Option changes how a network behaves.
type Option func(*Network)

// ManualConnect has connections advance only in Step, in an order drawn from the seed. Without it every
// attempt has a goroutine of its own.
func ManualConnect() Option { return func(n *Network) { n.manual = true } }

// RandomCuts cuts the connection that carries it at about one piece in every n that are placed.
func RandomCuts(n int) Option { return func(net *Network) { net.cutEvery = n } }

// NewNetwork makes a network without devices.
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

// Device makes a device: one for each rank.
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

// Counters tell what the seed and the faults have brought about, so that a test can prove that its fault
// struck.
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
	Lost         int // messages begun that a cut kept from being delivered
	Vanished     int // devices
	Refused      int // attempts to connect turned away, for whatever reason
	Crossed      int // attempts that gave way to one of a lower rank
	Delayed      int // attempts that a Hold kept waiting
	RNR          int // messages that found no Recv posted
	Overruns     int // completion queues
	Terminations int // connections ended because a rule was broken
}

// Counters are the counts so far.
func (n *Network) Counters() Counters {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counters
}

// find gives the device that listens at addr, or nil.
func (n *Network) find(addr string) *endpoint {
	for _, d := range n.devices {
		if d.ep != nil && !d.ep.closed && !d.gone && d.addr() == addr {
			return d.ep
		}
	}
	return nil
}

func (d *device) addr() string { return fmt.Sprintf("sim:%d", d.id) }
