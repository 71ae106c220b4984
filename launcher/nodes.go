package launcher

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/internal/plural"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/remote"
)

// A node is a host of the job, with the ranks that run there.
type node struct {
	name   string
	agent  agent.Agent
	remote *remote.Agent // nil for this host
	via    *node         // through whose agent this one is reached; nil where none is
	ranks  []int
	plan   *plan
	// which processors the host has (see processorsID); empty if unknown
	processors string
}

// nodes are the hosts of a job, and which ranks run where.
type nodes struct {
	all   []*node // this host is the first, also where no rank runs on it
	of    []*node // by rank
	local []int   // by rank: its number on its node
}

// setUpNodes finds the job's hosts, starts the agents of other hosts, and assigns the ranks. Even if it
// fails, j.nodes.all has all the agents that it started.
func (j *job) setUpNodes(ctx context.Context) error {
	n := 0
	for _, app := range j.Apps {
		n += app.Ranks
	}
	here := &node{name: j.host, agent: j.local, processors: processorsID(j.planner.machine)}
	j.nodes.all = []*node{here}
	if len(j.Hosts) == 0 {
		for id := range n {
			here.ranks = append(here.ranks, id)
		}
		j.nodes.locate()
		return nil
	}
	hosts := j.past.hostsToAsk()
	c := j.connector()
	nodes, err := c.connect(ctx, hosts)
	j.nodes.all = append(j.nodes.all, c.started...)
	if j.past.restarts > 0 && nodes != nil {
		if err != nil {
			j.output.Problem(err)
		}
		hosts, nodes, err = j.past.leaveOut(hosts, nodes)
	}
	if err != nil {
		return err
	}
	mapping, given := j.MapBy, slices.Clone(hosts)
	if mapping.PerNode > 0 {
		for i := range hosts {
			hosts[i].Slots = mapping.PerNode
		}
	}
	if n, err = j.past.size(hosts, n); err != nil {
		return err
	}
	if j.past.restarts > 0 {
		mapping.PerNode = 0 // hosts may be too few for so many each
	}
	slots := make([]int, len(hosts))
	for i, h := range hosts {
		slots[i] = h.Slots
	}
	of, err := mapping.Assign(slots, n)
	if err != nil {
		return &RequestError{err.Error()}
	}
	if err := j.checkInput(len(of)); err != nil {
		return err
	}
	if text := crowded(given, of); text != "" {
		j.output.Notice("%s on %s: more ranks than slots on %s", plural.Count(len(of), "rank"),
			plural.Count(sumSlots(given), "slot"), text)
	}
	if len(j.Apps) == 1 {
		j.Apps[0].Ranks = n
	}
	for id, i := range of {
		nodes[i].ranks = append(nodes[i].ranks, id)
	}
	j.nodes.closeIdleAgents()
	j.nodes.locate()
	return nil
}

// crowded names the hosts that get more ranks than they have slots. of has the host of each rank, by index.
func crowded(hosts []Host, of []int) string {
	ranks := make([]int, len(hosts))
	for _, i := range of {
		ranks[i]++
	}
	first, more := "", 0
	for i, h := range hosts {
		switch {
		case ranks[i] <= h.Slots:
		case first == "":
			first = "host " + h.Name
		default:
			more++
		}
	}
	if more > 0 {
		return fmt.Sprintf("%s and %d more", first, more)
	}
	return first
}

func (j *job) connector() *connector {
	return &connector{spec: &j.Job, id: j.id, host: j.host, here: j.nodes.all[0],
		cores: j.planner.machine.UsableCores(), restart: j.past.restarts > 0,
		tell: j.tellStep, notice: j.output.Notice}
}

// closeIdleAgents ends the agents of hosts without ranks, except those through which others are reached.
func (h *nodes) closeIdleAgents() {
	wanted := make(map[*node]bool)
	for _, n := range h.all {
		if len(n.ranks) == 0 && n.remote != nil {
			continue
		}
		for ; n != nil; n = n.via {
			wanted[n] = true
		}
	}
	isIdle := func(n *node) bool { return !wanted[n] }
	var idle []*node
	for _, n := range h.all {
		if isIdle(n) {
			idle = append(idle, n)
		}
	}
	h.all = slices.DeleteFunc(h.all, isIdle)
	closeAll(idle)
}

// closeAll ends agents of other hosts: first those that are reached through others.
func closeAll(nodes []*node) {
	byDepth := make(map[int][]*node)
	deepest := 0
	for _, n := range nodes {
		if n.remote != nil {
			byDepth[n.depth()] = append(byDepth[n.depth()], n)
			deepest = max(deepest, n.depth())
		}
	}
	for depth := deepest; depth >= 0; depth-- {
		var all sync.WaitGroup
		for _, n := range byDepth[depth] {
			all.Go(n.agent.Close)
		}
		all.Wait()
	}
}

// depth returns how many agents lie between the launcher and the node's.
func (n *node) depth() (d int) {
	for n.via != nil {
		n = n.via
		d++
	}
	return d
}

func sumSlots(hosts []Host) (n int) {
	for _, h := range hosts {
		n += h.Slots
	}
	return n
}

// locate notes where each rank is.
func (h *nodes) locate() {
	n := 0
	for _, node := range h.all {
		n += len(node.ranks)
	}
	h.of, h.local = make([]*node, n), make([]int, n)
	for _, node := range h.all {
		for i, id := range node.ranks {
			h.of[id], h.local[id] = node, i
		}
	}
}

// merge sends the events of all agents to one Go channel, each agent's in its order, until over is closed.
// The ranks of an agent that is lost before it was to start them are lost, too.
func (h *nodes) merge(events chan<- agent.Event, over <-chan struct{}) {
	for _, n := range h.all {
		go func() {
			for {
				select {
				case e := <-n.agent.Events():
					if lost, is := e.(agent.Lost); is && lost.Ranks == nil {
						lost.Ranks = n.ranks
						e = lost
					}
					select {
					case events <- e:
					case <-over:
						return
					}
				case <-over:
					return
				}
			}
		}()
	}
}

// do sends commands to the agents that they concern.
func (h *nodes) do(commands ...agent.Command) {
	for _, c := range commands {
		switch c := c.(type) {
		case agent.Found:
			h.of[c.Rank].agent.Do(c)
		case agent.HangUp:
			h.of[c.Rank].agent.Do(c)
		case agent.Input:
			h.of[c.Rank].agent.Do(c)
		case agent.Signal:
			if c.Ranks == nil {
				h.broadcast(c)
				continue
			}
			h.divide(c.Ranks, func(own []int) agent.Command {
				return agent.Signal{Ranks: own, Signal: c.Signal}
			})
		case agent.Ask:
			h.divide(c.Ranks, func(own []int) agent.Command {
				return agent.Ask{Ranks: own, Question: c.Question}
			})
		case agent.Records:
			h.divide(c.Ranks, func(own []int) agent.Command { return agent.Records{Ranks: own} })
		default:
			h.broadcast(c)
		}
	}
}

// broadcast sends a command to all agents.
func (h *nodes) broadcast(c agent.Command) {
	for _, n := range h.all {
		n.agent.Do(c)
	}
}

// tellWireUp reports the launcher's traffic for the wire-up of ranks on other hosts.
func (j *job) tellWireUp() {
	var from, to remote.Traffic
	agents := 0
	for _, n := range j.nodes.all {
		if n.remote != nil {
			a, b := n.remote.WireUp()
			from.Add(a)
			to.Add(b)
			agents++
		}
	}
	if agents > 0 {
		j.tellStep("wire-up: %d messages, %d bytes from %d agents; %d messages, %d bytes to them",
			from.Messages, from.Bytes, agents, to.Messages, to.Bytes)
	}
}

// divide sends each agent of some ranks the command for those of them that are its own.
func (h *nodes) divide(ranks []int, command func(own []int) agent.Command) {
	own := make(map[*node][]int)
	for _, id := range ranks {
		own[h.of[id]] = append(own[h.of[id]], id)
	}
	for _, n := range h.all {
		if own[n] != nil {
			n.agent.Do(command(own[n]))
		}
	}
}

// processMapping returns the value of PMI_process_mapping. Each block (FIRST,HOSTS,RANKS) stands for HOSTS
// hosts, numbered from FIRST, with RANKS consecutive ranks each.
func (h *nodes) processMapping() string {
	type block struct{ first, hosts, ranks int }
	var blocks []block
	index := make(map[*node]int)
	for id := 0; id < len(h.of); {
		n := h.of[id]
		count := 1
		for id+count < len(h.of) && h.of[id+count] == n {
			count++
		}
		if _, known := index[n]; !known {
			index[n] = len(index)
		}
		if last := len(blocks) - 1; last >= 0 && blocks[last].ranks == count &&
			blocks[last].first+blocks[last].hosts == index[n] {
			blocks[last].hosts++
		} else {
			blocks = append(blocks, block{index[n], 1, count})
		}
		id += count
	}
	text := "(vector"
	for _, b := range blocks {
		text += fmt.Sprintf(",(%d,%d,%d)", b.first, b.hosts, b.ranks)
	}
	return text + ")"
}
