package launcher

import (
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
	// connectTimeout is the time for an agent to start.
	connectTimeout = 30 * time.Second
	// startsAtOnce is the maximum number of agents that are being started at the same time.
	startsAtOnce = 64
)

// connectQuiet is the time after which the user is told which agents have not come up. Tests change it.
var connectQuiet = 4 * time.Second

// A connector starts the agents of the hosts of a job.
type connector struct {
	spec    *Job
	id      string // of the job
	host    string // this one
	here    *node
	cores   int  // usable, here
	restart bool // the job is started again
	tell    func(text string, args ...any)
	notice  func(text string, args ...any)
	started []*node // new nodes, also if connect fails
}

// connect starts the agents of all hosts concurrently, and returns the node of each host. Where a host's
// Slots are 0, it sets them to the number of cores. If some agents have not started, the nodes of their hosts
// are nil, and the error names these hosts. Even then it adds the new nodes to c.started.
func (c *connector) connect(ctx context.Context, hosts []Host) ([]*node, error) {
	limit := connectTimeout
	// At a restart, a host may be lost through which others would be reached: do not wait long for it.
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
	up := make([]chan struct{}, len(hosts)) // closed when the agent has started or failed
	for i := range hosts {
		up[i] = make(chan struct{})
	}
	slots := make(chan struct{}, startsAtOnce)
	var all sync.WaitGroup
	for i := range hosts {
		all.Go(func() {
			defer close(up[i])
			at := position{number: i, trunk: trunk, slots: slots}
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
	quiet := time.AfterFunc(connectQuiet, func() { c.tellMissing(hosts, up, limit) })
	all.Wait()
	quiet.Stop()
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

// tellMissing tells the user which agents have not come up.
func (c *connector) tellMissing(hosts []Host, up []chan struct{}, limit time.Duration) {
	const most = 4
	var names []string
	for i, h := range hosts {
		select {
		case <-up[i]:
		default:
			names = append(names, h.Name)
		}
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	if names != nil {
		c.notice("waiting for weft to start on %s, for up to %v", strings.Join(names, ", "), limit)
	}
}

// connectOne returns the node of a host: c.here for this host, otherwise a new one.
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
	return &node{name: h.Name, agent: far, remote: far, via: via, processors: far.Processors}, nil
}

// connectAgent starts the agent of a host, or finds it in the trunk, and returns it once it is up, with the
// node through which it is reached. If another agent cannot start it, the launcher does.
func (c *connector) connectAgent(ctx context.Context, h Host, at position) (*remote.Agent, *node, error) {
	// Agents may share a machine, and an agent kills all processes with its job's mark (WEFT_JOB in the
	// environment, and a resource limit), so each has a job id of its own.
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
	at.slots <- struct{}{}
	defer func() { <-at.slots }()
	far, err := remote.Connect(ctx, h.Name, id, command)
	if c.restart {
		return far, nil, err // it has started before
	}
	return far, nil, advise(err, command)
}

// advise adds to the error of an agent that did not start, what to do about it. command has started it.
func advise(err error, command []string) error {
	failed, is := errors.AsType[*remote.StartError](err)
	if !is || len(command) < 3 {
		return err
	}
	starter, file := command[:len(command)-2], command[len(command)-2]
	ended := errors.Is(err, remote.ErrEnded)
	_, another := errors.AsType[*remote.NoAgentError](err)
	switch {
	case ended && (failed.Said == "" || strings.Contains(failed.Said, file)):
		return fmt.Errorf("%w; install weft there as %s, or name its path there with --agent-path", err, file)
	case ended && strings.Contains(failed.Said, "Host key verification failed"):
		return fmt.Errorf("%w; run once: ssh %s true, and accept its key", err, failed.Host)
	case ended && strings.Contains(failed.Said, "Permission denied ("): // ssh's list of methods follows
		return fmt.Errorf("%w; it has to take your key without asking: ssh-copy-id %s, or write USER@HOST "+
			"for another user", err, failed.Host)
	case ended || failed.Late || another:
		return fmt.Errorf("%w; try: %s true", err, strings.Join(starter, " "))
	}
	return err
}

// IsThisHost reports whether a host's name, or an address that it resolves to, belongs to this host. It may
// take as long as the system's resolver.
func IsThisHost(name string) bool {
	hostname, _ := os.Hostname()
	return isHere(context.Background(), name, hostname)
}

// isHere reports whether a name belongs to this host.
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
