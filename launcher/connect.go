package launcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/weft-mpi/weft/launcher/internal/remote"
)

const (
	// connectTimeout is how long an agent may take to come up.
	connectTimeout = 30 * time.Second
	// startsAtOnce is how many agents are being started at a time.
	startsAtOnce = 64
)

// connect starts the hosts' agents, at once, fills in the slots that were not given, and returns the node of
// each host, nil for one that has no agent. The nodes that are new become j.nodes, also on an error. The
// error names every host that has no agent.
func (j *job) connect(ctx context.Context, hosts []Host) ([]*node, error) {
	limit := connectTimeout
	if j.past.restarts > 0 {
		limit = reconnectTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var trunk *remote.Trunk
	if j.startsAll() {
		command, err := j.agentCommand(hosts...)
		if err != nil {
			return nil, err
		}
		if trunk, err = remote.StartTrunk(command, len(hosts)); err != nil {
			return nil, err
		}
	}
	nodes, problems := make([]*node, len(hosts)), make([]error, len(hosts))
	places := make(chan struct{}, startsAtOnce)
	var all sync.WaitGroup
	for i := range hosts {
		if trunk == nil {
			places <- struct{}{}
		}
		all.Go(func() {
			if trunk == nil {
				defer func() { <-places }()
			}
			nodes[i], problems[i] = j.connectOne(ctx, &hosts[i], trunk, i)
		})
	}
	all.Wait()
	for _, node := range nodes {
		if node != nil && node.far != nil {
			j.nodes = append(j.nodes, node)
		}
	}
	err := errors.Join(problems...)
	if err == nil {
		return nodes, nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return nil, cause
	}
	return nodes, err
}

// connectOne returns the node of a host: that of this host, which is the first, or a new one. If one call of
// the starter has started all agents, it is the one of the trunk with this number.
func (j *job) connectOne(ctx context.Context, h *Host, trunk *remote.Trunk, number int) (*node, error) {
	if j.Starter == nil && isHere(ctx, h.Name, j.host) {
		if h.Slots == 0 {
			h.Slots = j.planner.machine.UsableCores()
		}
		return j.nodes[0], nil
	}
	far, err := j.connectAgent(ctx, *h, trunk, number)
	if err != nil {
		return nil, err
	}
	if far.Version != weftVersion() {
		far.Close()
		return nil, fmt.Errorf("host %s: weft there is version %s, and this one %s: install the same on both",
			h.Name, far.Version, weftVersion())
	}
	j.tellStep("host %s: the agent is up on %s, with %d usable cores", h.Name, far.Host, far.Cores)
	if h.Slots == 0 {
		h.Slots = far.Cores
	}
	return &node{name: h.Name, agent: far, far: far}, nil
}

// connectAgent starts the agent of a host, or finds it in the trunk, and returns it when it is up.
func (j *job) connectAgent(ctx context.Context, h Host, trunk *remote.Trunk,
	number int) (*remote.Agent, error) {
	// Agents may share a machine: the end of one must not end what carries the mark of another.
	id := fmt.Sprintf("%s-%d", j.id, number)
	if trunk != nil {
		return trunk.Connect(ctx, number, h.Name, id)
	}
	command, err := j.agentCommand(h)
	if err != nil {
		return nil, err
	}
	return remote.Connect(ctx, h.Name, id, command)
}

// isHere tells whether a host's name is this host's.
func isHere(ctx context.Context, name, hostname string) bool {
	if strings.Contains(name, "@") {
		return false
	}
	short, _, _ := strings.Cut(hostname, ".")
	if name == "localhost" || name == hostname || name == short {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	addrs, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return false
	}
	for _, a := range own {
		network, is := a.(*net.IPNet)
		for _, addr := range addrs {
			if is && network.IP.Equal(net.ParseIP(addr)) {
				return true
			}
		}
	}
	return false
}
