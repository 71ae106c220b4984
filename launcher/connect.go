package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
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

// A connector starts the agents of the hosts of a job.
type connector struct {
	spec    *Job
	id      string // of the job
	host    string // this one
	here    *node
	cores   int  // usable, here
	restart bool // the job is started again
	tell    func(text string, args ...any)
	started []*node // whatever connect returns
}

// connect starts the hosts' agents, at once, fills in the slots that were not given, and returns the node of
// each host, nil for one that has no agent. The nodes that are new become j.nodes, also on an error. The
// error names every host that has no agent.
func (c *connector) connect(ctx context.Context, hosts []Host) ([]*node, error) {
	limit := connectTimeout
	// At a restart a host may be lost that others would be reached through: they do not wait for it for long.
	var late <-chan struct{}
	if c.restart {
		limit = reconnectTimeout
		around, cancel := context.WithTimeout(ctx, aroundTimeout)
		defer cancel()
		late = around.Done()
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var trunk *remote.Trunk
	if c.spec.startsAll() {
		command, err := c.spec.agentCommand(hosts...)
		if err != nil {
			return nil, err
		}
		if trunk, err = remote.StartTrunk(command, len(hosts)); err != nil {
			return nil, err
		}
	}
	nodes, problems := make([]*node, len(hosts)), make([]error, len(hosts))
	up := make([]chan struct{}, len(hosts)) // closed when it is known whether there is an agent
	for i := range hosts {
		up[i] = make(chan struct{})
	}
	places := make(chan struct{}, startsAtOnce)
	var all sync.WaitGroup
	for i := range hosts {
		all.Go(func() {
			defer close(up[i])
			at := position{number: i, trunk: trunk, places: places}
			if parent := c.parent(i); parent >= 0 && trunk == nil {
				select {
				case <-up[parent]:
					at.via = nodes[parent]
				case <-late:
				}
			}
			nodes[i], problems[i] = c.connectOne(ctx, &hosts[i], at)
		})
	}
	all.Wait()
	for _, n := range nodes {
		if n != nil && n.remote != nil {
			c.started = append(c.started, n)
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

// defaultFanOut is how many agents the launcher and each agent start where the user does not say.
const defaultFanOut = 64

// parent is the number of the host whose agent starts that of another one; -1 stands for the launcher.
func (c *connector) parent(host int) int {
	fanOut := cmp.Or(c.spec.FanOut, defaultFanOut)
	return host/fanOut - 1
}

// A position is where an agent is in the tree of agents.
type position struct {
	number int           // of its host
	trunk  *remote.Trunk // if one call of the starter has started all agents
	via    *node         // whose agent is to start it; nil for the launcher
	places chan struct{} // of agents that the launcher starts at a time
}

// connectOne returns the node of a host: that of this host, which is the first, or a new one.
func (c *connector) connectOne(ctx context.Context, h *Host, at position) (*node, error) {
	if c.spec.Starter == nil && isHere(ctx, h.Name, c.host) {
		if h.Slots == 0 {
			h.Slots = c.cores
		}
		return c.here, nil
	}
	far, via, err := c.connectAgent(ctx, *h, at)
	if err != nil {
		return nil, err
	}
	if far.Version != weftVersion() {
		far.Close()
		return nil, fmt.Errorf("host %s: weft there is version %s, and this one %s: install the same on both",
			h.Name, far.Version, weftVersion())
	}
	through := ""
	if via != nil {
		through = ", through the agent of " + via.name
	}
	c.tell("host %s: the agent is up on %s, with %d usable cores%s", h.Name, far.Host, far.Cores, through)
	if h.Slots == 0 {
		h.Slots = far.Cores
	}
	return &node{name: h.Name, agent: far, remote: far, via: via}, nil
}

// connectAgent starts the agent of a host, or finds it in the trunk, and returns it when it is up, with the
// node through which it is reached. Where another agent cannot start it, the launcher does.
func (c *connector) connectAgent(ctx context.Context, h Host, at position) (*remote.Agent, *node, error) {
	// Agents may share a machine: the end of one must not end what carries the mark of another.
	id := fmt.Sprintf("%s-%d", c.id, at.number)
	if at.trunk != nil {
		far, err := at.trunk.Connect(ctx, at.number, h.Name, id)
		return far, nil, err
	}
	command, err := c.spec.agentCommand(h)
	if err != nil {
		return nil, nil, err
	}
	if at.via != nil && at.via.remote != nil {
		far, err := at.via.remote.ConnectThrough(ctx, h.Name, id, command)
		if err == nil || ctx.Err() != nil {
			return far, at.via, err
		}
		c.tell("through %s: %v", at.via.name, err)
	}
	at.places <- struct{}{}
	defer func() { <-at.places }()
	far, err := remote.Connect(ctx, h.Name, id, command)
	return far, nil, err
}

// IsThisHost reports whether a host's name, or an address that it resolves to, is this host's. Looking up a
// name may take as long as the system's resolver does.
func IsThisHost(name string) bool {
	hostname, _ := os.Hostname()
	return isHere(context.Background(), name, hostname)
}

// isHere reports whether a host's name is this host's.
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
