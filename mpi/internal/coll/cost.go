package coll

import (
	"fmt"
	"math"
	"math/bits"
)

// The cost model predicts how long an algorithm takes, to choose the fastest. It is Hockney's model with a
// term for reductions, as R. Thakur, R. Rabenseifner and W. Gropp use it ("Optimization of Collective
// Communication Operations in MPICH", IJHPCA 19(1), 2005), and a term for ranks that outnumber their
// processors. All ranks compute the same costs, as all parameters are constants (ADR 0058).

// Fabric is what carries messages between the ranks of a call.
type Fabric uint8

const (
	Network  Fabric = iota // TCP between hosts, and where the fabric is unknown
	Loopback               // TCP inside a host
	Shared                 // shared memory
	fabricCount
)

// String returns the fabric's name in explanations.
func (f Fabric) String() string {
	return [fabricCount]string{"TCP between hosts", "TCP inside a host", "shared memory"}[f]
}

// rates are the parameters of a fabric, in ns and ns per byte.
type rates struct {
	latency float64 // of an empty message, one way
	setup   float64 // of a message of setupBytes or more, in addition; of a shorter one a part of it
	message float64 // processor time of each further message in flight
	gap     float64 // for each byte
	duplex  float64 // for each byte in the opposite direction at the same time
	reduce  float64 // for each byte combined
	copy    float64 // for each byte copied
	turn    float64 // until a waiting rank gets a processor again, where ranks outnumber processors
	// how much more often ranks wait per message of more than eagerMax, which is sent by rendezvous
	moreTurns float64
}

// setupBytes is the length of a message that takes all of a fabric's setup.
const setupBytes = 8 << 10

// eagerMax is the default length above which messages are sent by rendezvous.
const eagerMax = 16 << 10

// Measured with weft bench tune, bw, bibw and latency: see ADR 0058.
var ratesOf = [fabricCount]rates{
	Network:  {latency: 15000, message: 1500, gap: 0.35, duplex: 0.05, reduce: 0.08, copy: 0.05, turn: 4000},
	Loopback: {latency: 3100, message: 1500, gap: 0.13, duplex: 0.1, reduce: 0.08, copy: 0.05, turn: 4000},
	Shared: {latency: 170, setup: 1000, message: 60, gap: 0.055, duplex: 0.2, reduce: 0.03, copy: 0.05,
		turn: 2500, moreTurns: 2},
}

// work is what an algorithm does: on its critical path, and at all ranks together.
type work struct {
	rounds   float64 // on the critical path
	messages float64 // of the busiest rank; a send and a receive at the same time count once
	bytes    float64 // on the critical path
	opposite float64 // in the opposite direction at the same time
	reduced  float64
	copied   float64
	all      total
}

// total is the work of all ranks together.
type total struct{ waits, messages, bytes, reduced float64 }

// everywhere returns the work of an algorithm in which each of n ranks does w.
func (w work) everywhere(n int) work {
	f := float64(n)
	w.all = total{w.rounds * f, w.messages * f, w.bytes * f, w.reduced * f}
	return w
}

// sharesProcessors reports whether the ranks outnumber their processors.
func (c *Call) sharesProcessors() bool { return c.Processors > 0 && c.Processors < c.Size }

// time returns how long the ranks of a call take for some work, in ns.
func (c *Call) time(w work) float64 {
	r := &ratesOf[c.Fabric]
	path := w.rounds*r.latency + max(w.messages-w.rounds, 0)*r.message + w.bytes*r.gap + w.opposite*r.duplex +
		w.reduced*r.reduce + w.copied*r.copy + r.setup*min(w.bytes/setupBytes, w.rounds)
	if !c.sharesProcessors() {
		return path
	}
	waits := w.all.waits * (1 + r.moreTurns*announced(w.all.bytes, w.all.messages))
	all := waits*r.turn + w.all.messages*r.message + w.all.bytes*r.gap + w.all.reduced*r.reduce
	return max(path, all/float64(c.Processors))
}

// inHalves returns the cost of an Allreduce that first combines parts, and then gathers them.
func inHalves(w func(n, bytes float64, c *Call) work) func(c *Call) float64 {
	return announcing(w, 0.5, grantOfBoth)
}

// What two ranks wait for a grant inside a host, in ns.
const (
	grantOfOne  = 9000
	grantOfBoth = 20000 // in a second round, in which each waits for the other's
)

// pairAnnounces returns the cost of a grant that two ranks wait for if they announce messages of b bytes.
func (c *Call) pairAnnounces(b, grant float64) float64 {
	if c.Size != 2 || c.Fabric != Loopback || b <= largestSlot {
		return 0
	}
	return grant
}

// announcing returns the cost of an algorithm of which each rank sends the given share of the vector at once.
func announcing(w func(n, bytes float64, c *Call) work, share, grant float64) func(c *Call) float64 {
	cost := of(w)
	return func(c *Call) float64 { return cost(c) + c.pairAnnounces(float64(c.bytes())*share, grant) }
}

// largestSlot is what the largest slots carry.
const largestSlot = 64 << 10

// announced estimates the share of messages that are sent by rendezvous, by their mean length.
func announced(bytes, messages float64) float64 {
	if messages == 0 {
		return 0
	}
	return min(max(bytes/messages/eagerMax-1, 0), 1)
}

// cheapest returns the index of the algorithm with the lowest predicted cost among those that can carry out
// the call; 0 if none has a prediction.
func (op *operation) cheapest(c *Call) (best int, lowest float64) {
	for i, predict := range op.costs {
		if fits := op.algorithms[i].fits; predict == nil || fits != nil && !fits(c) {
			continue
		}
		if t := predict(c); lowest == 0 || t < lowest {
			best, lowest = i, t
		}
	}
	return best, lowest
}

// Why explains the choice of algorithm for a call: its predicted time, and that of the next best.
func (c *Call) Why() string {
	op := &operations[c.Operation]
	chosen := op.best(c)
	switch {
	case (chosen == op.direct-1 || chosen == op.doubling-1) && suitsMailboxes(c):
		return "its messages fit the ranks' mailboxes"
	case chosen == op.pieces-1:
		return "bytes move quickly through the ranks' mailboxes"
	case chosen == op.pull-1 && suitsPull(c):
		return "the ranks read each other's memory"
	case chosen == op.inOrder-1 && c.InOrder:
		return "the communicator is reproducible"
	case op.costs == nil:
		return "there is no other that fits"
	}
	next, lowest := -1, 0.0
	for i, predict := range op.costs {
		if i == chosen || predict == nil || !op.may(i, c) {
			continue
		}
		if t := predict(c); next < 0 || t < lowest {
			next, lowest = i, t
		}
	}
	text := fmt.Sprintf("predicted %.3g µs over %v", op.costs[chosen](c)/1e3, c.Fabric)
	if c.Processors > 0 {
		text += fmt.Sprintf(" on %d processors", c.Processors)
	}
	if next >= 0 {
		text += fmt.Sprintf(", %s %.3g µs", op.algorithms[next].name, lowest/1e3)
	}
	return text
}

// addCosts sets the costs of an operation's algorithms.
func (op *operation) addCosts(o Operation) {
	if costs[o] == nil {
		return
	}
	op.costs = make([]func(c *Call) float64, len(op.algorithms))
	for i := range op.algorithms {
		op.costs[i] = costs[o][op.algorithms[i].name]
	}
}

// costs has the predicted time of each algorithm, by name.
var costs = [operationCount]map[string]func(c *Call) float64{
	OpBarrier: {
		"dissemination": of(func(n, _ float64, c *Call) work { return allRounds(c, log2(c.Size), 0, 0) }),
		"linear": of(func(n, _ float64, _ *Call) work {
			return work{rounds: 2, messages: 2 * (n - 1), all: total{waits: n, messages: 2 * (n - 1)}}
		}),
		"two-level": inLevels(OpReduce, OpBarrier, OpBcast),
	},
	OpBcast: {
		"binomial":         announcing(treeWork, 1, grantOfOne),
		"k-nomial":         announcing(knomialWork, 1, grantOfOne),
		"scatter-doubling": announcing(scatterWork(log2), 0.5, grantOfOne+grantOfBoth),
		"scatter-ring":     announcing(scatterWork(ringRounds), 0.5, grantOfOne+grantOfBoth),
		"pipelined-chain":  of(pipelineWork(1, 1, false)),
		"pipelined-binary": of(pipelineWork(2, 1, false)),
		"two-level":        inLevels(OpBarrier, OpBcast, OpBcast),
	},
	OpGather: {"binomial": of(gatherTreeWork), "linear": of(linearWork)},
	OpScatter: {
		"binomial": of(func(n, b float64, c *Call) work { return gatherTreeWork(n, b, c).waiting(n - 1) }),
		"linear":   of(func(n, b float64, c *Call) work { return linearWork(n, b, c).waiting(n - 1) }),
	},
	OpAllgather: {
		"bruck": of(func(n, b float64, c *Call) work {
			return allRounds(c, log2(c.Size), (n-1)*b, 2*n*b)
		}),
		"ring": of(func(n, b float64, c *Call) work { return allRounds(c, n-1, (n-1)*b, b) }),
		"recursive-doubling": of(func(n, b float64, c *Call) work {
			return allRounds(c, log2(c.Size), (n-1)*b, b)
		}),
		directName: of(exchangeWork),
	},
	OpAllgatherv: {
		"bruck": func(c *Call) float64 {
			all := float64(c.Recv.before(c.Size))
			return c.time(allRounds(c, log2(c.Size), all*othersShare(c.Size), 2*all))
		},
		"ring": func(c *Call) float64 {
			all := float64(c.Recv.before(c.Size))
			return c.time(allRounds(c, float64(c.Size-1), all*othersShare(c.Size), all/float64(c.Size)))
		},
	},
	OpAlltoall: {
		"bruck": of(func(n, b float64, c *Call) work {
			l := log2(c.Size)
			return allRounds(c, l, l*n/2*b, (2+l)*n*b)
		}),
		"scattered": of(func(n, b float64, c *Call) work {
			w := exchangeWork(n, b, c)
			w.rounds = float64((c.Size + alltoallWindow - 2) / alltoallWindow)
			return w
		}),
		"pairwise": of(func(n, b float64, c *Call) work { return allRounds(c, n-1, (n-1)*b, b) }),
	},
	OpReduce: {
		"binomial":        of(reduceTreeWork),
		"rabenseifner":    of(halvingWork(false)),
		"pipelined-chain": of(pipelineWork(1, 0, true)),
		directName: of(func(n, b float64, c *Call) work {
			w := linearWork(n, b, c)
			w.reduced, w.all.reduced = (n-1)*b, (n-1)*b
			return w
		}),
		"two-level": inLevels(OpReduce, OpReduce, OpBarrier),
	},
	OpAllreduce: {
		"recursive-doubling": of(doublingWork),
		"rabenseifner":       inHalves(halvingWork(true)),
		"ring":               inHalves(ringWork),
		"reduce-bcast": of(func(n, b float64, c *Call) work {
			return reduceTreeWork(n, b, c).plus(treeWork(n, b, c))
		}),
		directName: of(func(n, b float64, c *Call) work {
			w := exchangeWork(n, b, c)
			w.reduced, w.all.reduced = (n-1)*b, n*(n-1)*b
			return w
		}),
		"two-level": inLevels(OpReduce, OpAllreduce, OpBcast),
	},
	OpReduceScatter:      reduceScatterCosts,
	OpReduceScatterBlock: reduceScatterCosts,
	OpScan: {
		"recursive-doubling": of(scanWork),
		"pipelined-chain":    scanChainCost,
	},
}

var reduceScatterCosts = map[string]func(c *Call) float64{
	"recursive-doubling": func(c *Call) float64 {
		return c.time(doublingWork(0, float64(c.reduced().before(c.Size)), c))
	},
	"recursive-halving": func(c *Call) float64 {
		p, _ := splitPof2(c.Size)
		b := float64(c.reduced().before(c.Size))
		part := b * othersShare(p)
		return c.time(work{rounds: log2(p), messages: log2(p), bytes: part, opposite: part,
			reduced: part}.withRemainder(c, b, 2))
	},
	"pairwise": func(c *Call) float64 {
		part := float64(c.reduced().before(c.Size)) * othersShare(c.Size)
		w := allRounds(c, float64(c.Size-1), part, 0)
		w.reduced, w.all.reduced = part, part*float64(c.Size)
		return c.time(w)
	},
}

func scanWork(n, b float64, c *Call) work {
	l := log2(c.Size)
	w := allRounds(c, l, l*b, 0)
	w.reduced, w.all.reduced = l*b, l*b*n
	w.opposite -= b // the first ranks only send, and the last ones only receive
	return w
}

// scanChainCost returns the cost of scanChain. Through shared memory a rank combines a segment while the next
// one arrives, for which it waits again. Up to 64 KiB that is so only if one Scan follows the other. Of two
// ranks that need not copy, the second has no more to do while the vector arrives.
func scanChainCost(c *Call) float64 {
	if c.Size == 2 && c.Predefined && c.Fabric == Shared {
		return math.Inf(1)
	}
	t := of(pipelineWork(1, 0, true))(c)
	r := &ratesOf[c.Fabric]
	if c.Fabric != Shared || c.sharesProcessors() || c.bytes() <= largestSlot {
		return t
	}
	g := newSegments(c, c.Count, c.ElemSize)
	bytes := min(float64(g.length*g.elemSize), float64(c.bytes()))
	return t + float64(g.number()-1)*(r.latency-r.message-bytes*min(r.reduce, r.gap))
}

// inLevels returns the cost of an operation inside the hosts, one between them, and one inside them again,
// each by its cheapest algorithm. OpBarrier for first or last means no operation.
func inLevels(first, between, last Operation) func(c *Call) float64 {
	return func(c *Call) float64 {
		inside := *c
		inside.Hosts, inside.Fabric, inside.Root, inside.Rank = nil, c.Hosts.Inside, 0, 0
		inside.Size = c.Hosts.maxRanks()
		outside := *c
		outside.Operation, outside.Hosts, outside.Root, outside.Rank = between, nil, 0, 0
		outside.Size = len(c.Hosts.members)
		_, t := operations[between].cheapest(&outside)
		for _, o := range []Operation{first, last} {
			if o != OpBarrier {
				inside.Operation = o
				_, more := operations[o].cheapest(&inside)
				t += more
			}
		}
		return t
	}
}

// The shape of a call, for the costs below.

// log2 returns the logarithm of n, rounded up.
func log2(n int) float64 { return float64(bits.Len(uint(n - 1))) }

// levels returns the logarithm of n to the base radix, rounded up.
func levels(n int) (l float64) {
	for reach := 1; reach < n; reach *= radix {
		l++
	}
	return l
}

// splitPof2 returns the largest power of two up to n, for recursive doubling and halving, and the number of
// ranks beyond it.
func splitPof2(n int) (p, beyond int) {
	p = 1 << (bits.Len(uint(n)) - 1)
	return p, n - p
}

// othersShare returns (n-1)/n.
func othersShare(n int) float64 { return float64(n-1) / float64(n) }

// of returns the cost function of some work.
func of(w func(n, bytes float64, c *Call) work) func(c *Call) float64 {
	return func(c *Call) float64 { return c.time(w(float64(c.Size), float64(c.bytes()), c)) }
}

// treeWork returns the work of passing the whole vector down or up a binomial tree.
func treeWork(n, b float64, c *Call) work {
	l := log2(c.Size)
	return work{rounds: l, messages: l, bytes: l * b, all: total{n - 1, n - 1, (n - 1) * b, 0}}
}

// waiting sets how often the ranks wait, all together.
func (w work) waiting(times float64) work {
	w.all.waits = times
	return w
}

func knomialWork(n, b float64, c *Call) work {
	l := levels(c.Size)
	children := min(l*(radix-1), n-1)
	return work{rounds: l, messages: children, bytes: children * b,
		all: total{n - 1, n - 1, (n - 1) * b, 0}}
}

// scatterWork returns the work of a scatter down a binomial tree, then an allgather in the given number of
// rounds.
func scatterWork(rounds func(size int) float64) func(n, b float64, c *Call) work {
	return func(n, b float64, c *Call) work {
		l, part := log2(c.Size), b*othersShare(c.Size)
		r := rounds(c.Size)
		w := work{rounds: l + r, messages: l + r, bytes: 2 * part,
			all: total{n - 1 + n*r, n - 1 + n*r, b*l/2 + n*part, 0}}
		if c.Size > 2 {
			w.opposite = part
		}
		return w
	}
}

func ringRounds(size int) float64 { return float64(size - 1) }

// pipelineWork returns the work of a pipeline in which each rank has the given number of children. Its
// segments are whole elements, of elemSize bytes; 0 for the call's elements.
func pipelineWork(children, elemSize int, reduces bool) func(n, b float64, c *Call) work {
	return func(n, b float64, c *Call) work {
		g := newSegments(c, c.Count, c.ElemSize)
		if elemSize > 0 {
			g = newSegments(c, c.bytes(), elemSize)
		}
		segments, length := float64(g.number()), float64(g.length*g.elemSize)
		depth := n - 1
		if children > 1 {
			depth = float64(bits.Len(uint(c.Size)) - 1)
		}
		rounds := segments + depth - 1
		// The first segment arrives after one latency per level, the others right after it: where ranks share
		// processors, two per turn.
		w := work{rounds: depth, messages: depth + (segments-1)*float64(children),
			bytes: rounds * min(length, b) * float64(children),
			all:   total{segments * (n - 1) / 2, segments * (n - 1), (n - 1) * b, 0}}
		if depth > 1 {
			w.opposite = b
		}
		if reduces {
			w.reduced, w.all.reduced = rounds*min(length, b), (n-1)*b
		}
		return w
	}
}

// exchangeWork returns the work of one round in which every rank sends to every other.
func exchangeWork(n, b float64, c *Call) work {
	return work{rounds: 1, messages: n - 1, bytes: (n - 1) * b, opposite: (n - 1) * b}.everywhere(c.Size)
}

// allRounds returns the work of rounds in which every rank exchanges bytes with a partner.
func allRounds(c *Call, rounds, bytes, copied float64) work {
	return work{rounds: rounds, messages: rounds, bytes: bytes, opposite: bytes,
		copied: copied}.everywhere(c.Size)
}

// linearWork returns the work of a root that exchanges a block with every other rank. The others wait, too,
// if blocks are sent by rendezvous.
func linearWork(n, b float64, _ *Call) work {
	waits := 1 + (n-1)*announced(b, 1)
	return work{rounds: 1, messages: n - 1, bytes: (n - 1) * b, all: total{waits, n - 1, (n - 1) * b, 0}}
}

// gatherTreeWork returns the work of a gather up a binomial tree whose inner vertices copy what they collect.
func gatherTreeWork(n, b float64, c *Call) work {
	l := log2(c.Size)
	return work{rounds: l, messages: l, bytes: (n - 1) * b, copied: n / 2 * b,
		all: total{n / 2, n - 1, n / 2 * l * b, 0}}
}

// reduceTreeWork returns treeWork with a reduction at each level.
func reduceTreeWork(n, b float64, c *Call) work {
	w := treeWork(n, b, c).waiting(n / 2) // leaves do not wait
	w.reduced, w.all.reduced = w.bytes, w.all.bytes
	if !c.Commutative && c.Root != 0 {
		w.rounds, w.messages, w.bytes = w.rounds+1, w.messages+1, w.bytes+b
		w.all.waits, w.all.messages, w.all.bytes = w.all.waits+1, w.all.messages+1, w.all.bytes+b
	}
	return w
}

// withRemainder adds the cost of the ranks beyond a power of two: they send their vectors to their partners,
// and receive the result if they need it.
func (w work) withRemainder(c *Call, b, rounds float64) work {
	p, beyond := splitPof2(c.Size)
	w = w.everywhere(p)
	if beyond > 0 {
		f := float64(beyond)
		w.rounds, w.messages = w.rounds+rounds, w.messages+rounds
		w.bytes, w.reduced = w.bytes+rounds*b, w.reduced+b
		w.all.waits += rounds * f
		w.all.messages += rounds * f
		w.all.bytes += rounds * f * b
		w.all.reduced += f * b
	}
	return w
}

func doublingWork(_, b float64, c *Call) work {
	p, _ := splitPof2(c.Size)
	l := log2(p)
	return work{rounds: l, messages: l, bytes: l * b, opposite: l * b, reduced: l * b}.withRemainder(c, b, 2)
}

// halvingWork returns the work of a reduce-scatter and a gather to all or to a root.
func halvingWork(toAll bool) func(n, b float64, c *Call) work {
	return func(_, b float64, c *Call) work {
		p, _ := splitPof2(c.Size)
		l, part := log2(p), b*othersShare(p)
		w := work{rounds: 2 * l, messages: 2 * l, bytes: 2 * part, opposite: part, reduced: part}
		if toAll {
			w.opposite = 2 * part
			return w.withRemainder(c, b, 2)
		}
		return w.withRemainder(c, b, 1)
	}
}

func ringWork(n, b float64, c *Call) work {
	part := b * othersShare(c.Size)
	return work{rounds: 2 * (n - 1), messages: 2 * (n - 1), bytes: 2 * part, opposite: 2 * part,
		reduced: part}.everywhere(c.Size)
}

// plus returns the work of w followed by v.
func (w work) plus(v work) work {
	return work{w.rounds + v.rounds, w.messages + v.messages, w.bytes + v.bytes, w.opposite + v.opposite,
		w.reduced + v.reduced, w.copied + v.copied, total{w.all.waits + v.all.waits,
			w.all.messages + v.all.messages, w.all.bytes + v.all.bytes, w.all.reduced + v.all.reduced}}
}
