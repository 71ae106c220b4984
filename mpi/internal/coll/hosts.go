package coll

// Hosts describes which ranks of a communicator share a host. It is the same at all ranks.
type Hosts struct {
	of      []int   // the host of each rank, from 0
	members [][]int // the ranks of each host, ascending
	// the ranks of each host are consecutive, so combining host by host keeps the rank order
	contiguous bool
	Inside     Fabric // that carries messages inside a host
}

// maxRanks returns the number of ranks of the host that has the most.
func (h *Hosts) maxRanks() (n int) {
	for _, ranks := range h.members {
		n = max(n, len(ranks))
	}
	return n
}

// NewHosts makes a Hosts from the number of each rank's host. It returns nil where two levels make no sense:
// if all ranks share a host, or none do.
func NewHosts(of []int) *Hosts {
	h := &Hosts{contiguous: true}
	number := map[int]int{}
	for rank, host := range of {
		n, seen := number[host]
		if !seen {
			n = len(h.members)
			number[host] = n
			h.members = append(h.members, nil)
		}
		if seen && of[rank-1] != host {
			h.contiguous = false
		}
		h.of = append(h.of, n)
		h.members[n] = append(h.members[n], rank)
	}
	if len(h.members) < 2 || len(h.members) == len(of) {
		return nil
	}
	return h
}

// With returns the ranks of the host of a rank, ascending.
func (h *Hosts) With(rank int) []int { return h.members[h.of[rank]] }

// Together reports whether two ranks share a host.
func (h *Hosts) Together(a, b int) bool { return h.of[a] == h.of[b] }

// Distance returns how many steps rank b's host is after rank a's, in a ring of the hosts.
func (h *Hosts) Distance(a, b int) int {
	n := len(h.members)
	return (h.of[b] - h.of[a] + n) % n
}

// leader returns the leader of a host: the root if it is there, else the lowest rank.
func (h *Hosts) leader(host, root int) int {
	if root >= 0 && h.of[root] == host {
		return root
	}
	return h.members[host][0]
}

func (h *Hosts) leaders(root int) []int {
	all := make([]int, len(h.members))
	for host := range all {
		all[host] = h.leader(host, root)
	}
	return all
}

// twoLevels reports whether a call can be carried out inside the hosts and between them.
func twoLevels(c *Call) bool {
	if c.Hosts == nil {
		return false
	}
	reduces := c.Operation == OpReduce || c.Operation == OpAllreduce
	return !reduces || c.Commutative || c.Hosts.contiguous
}

// among appends the steps of a call of the listed ranks, in this order. root is a rank of the list.
func (s *Schedule) among(ranks []int, root int, c Call) {
	rank := c.Rank
	c.Hosts, c.Size, c.Root, c.Rank = nil, len(ranks), 0, -1
	c.Mailbox, c.Pull = 0, false // only the whole communicator has these
	for i, r := range ranks {
		if r == rank {
			c.Rank = i
		}
		if r == root {
			c.Root = i
		}
	}
	if c.Rank < 0 || c.Size == 1 && c.Operation == OpBcast {
		return
	}
	first := len(s.steps)
	c.append(s)
	for i := range s.steps[first:] {
		if step := &s.steps[first+i]; step.Kind <= Recv {
			step.Peer = ranks[step.Peer]
		}
	}
}

// inHost appends a call of the ranks of this rank's host, betweenHosts one of the leaders of all hosts.
func (s *Schedule) inHost(c *Call, o Operation, root int) {
	host := c.Hosts.of[c.Rank]
	sub := *c
	sub.Operation, sub.Fabric = o, c.Hosts.Inside
	s.among(c.Hosts.members[host], c.Hosts.leader(host, root), sub)
}

func (s *Schedule) betweenHosts(c *Call, o Operation, root int) {
	sub := *c
	sub.Operation, sub.OwnRight = o, false // its Input may be its Output
	leaders := c.Hosts.leaders(root)
	if root == noRoot {
		root = leaders[0]
	}
	s.among(leaders, root, sub)
}

// barrierTwoLevel has each leader wait for the ranks of its host, the leaders call a Barrier, and then
// release their ranks.
func barrierTwoLevel(s *Schedule, c *Call) {
	s.inHost(c, OpReduce, noRoot)
	s.betweenHosts(c, OpBarrier, noRoot)
	s.inHost(c, OpBcast, noRoot)
}

// bcastTwoLevel passes the buffer between hosts first.
func bcastTwoLevel(s *Schedule, c *Call) {
	s.betweenHosts(c, OpBcast, c.Root)
	s.inHost(c, OpBcast, c.Root)
}

// allreduceTwoLevel reduces inside each host, then among the leaders, and broadcasts the result inside each
// host.
func allreduceTwoLevel(s *Schedule, c *Call) {
	s.inHost(c, OpReduce, noRoot)
	first := len(s.steps)
	s.betweenHosts(c, OpAllreduce, noRoot)
	s.redirect(first, Input, Span{Output, 0, c.bytes()})
	s.inHost(c, OpBcast, noRoot)
}

// reduceTwoLevel reduces inside each host, then from the leaders to the root.
func reduceTwoLevel(s *Schedule, c *Call) {
	held := Span{Output, 0, c.bytes()}
	if c.Rank != c.Root {
		held = s.scratch(c.bytes())
	}
	first := len(s.steps)
	s.inHost(c, OpReduce, c.Root)
	s.redirect(first, Output, held)
	first = len(s.steps)
	s.betweenHosts(c, OpReduce, c.Root)
	s.redirect(first, Input, held)
}
