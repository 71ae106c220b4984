package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/setting"
)

// planReply is an agent's answer to a planRequest.
type planReply struct {
	Plan    *plan
	Problem string // why the request cannot be met there; then there is no plan
}

// planAll makes every host plan its ranks, concurrently. The error names every host that cannot run them.
func (j *job) planAll(ctx context.Context) error {
	groups := j.nodes.byProcessors()
	problems := make([]error, len(groups))
	var all sync.WaitGroup
	for i, hosts := range groups {
		all.Go(func() { problems[i] = j.planTogether(ctx, hosts) })
	}
	all.Wait()
	if err := errors.Join(problems...); err != nil {
		if len(j.nodes.all) == 1 {
			return problems[0]
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	j.settleEndpoints()
	return nil
}

// wantedEndpoints returns the number of endpoints of a rank that the user asks for; 0 for one for each core.
func (j *job) wantedEndpoints() int {
	if j.Endpoints != 0 {
		return max(0, j.Endpoints)
	}
	set := setting.Values{}.Clone()
	for _, v := range j.environment() {
		if name, value, _ := strings.Cut(v, "="); name == setting.Endpoints.Name {
			set.Set(name, value)
		}
	}
	n, err := set.Of(setting.Endpoints).IntOrAuto(1, MaxEndpoints)
	if err != nil {
		return 0 // the ranks refuse it
	}
	return n
}

// settleEndpoints decides how many endpoints each rank has. By default that is one for each of its cores, at
// all ranks as many as those have that have the fewest cores. A rank has no use for more completion handlers.
func (j *job) settleEndpoints() {
	n := j.wantedEndpoints()
	if n == 0 {
		n = MaxEndpoints
		for _, node := range j.nodes.all {
			if len(node.ranks) > 0 {
				n = min(n, contextid.EndpointsFor(node.plan.CoresPerRank))
			}
		}
	}
	for _, node := range j.nodes.all {
		node.plan.Endpoints = n
		for i, list := range node.plan.Handlers {
			node.plan.Handlers[i] = list[:min(len(list), n)]
		}
	}
}

// maxPeers is how many other hosts a host is given, to find its route to them.
const maxPeers = 4

// peersOf returns the names of up to maxPeers other hosts with ranks. The ranks of a host need no route to a
// host without ranks, such as that of the launcher, which may be in a network of its own.
func (h *nodes) peersOf(n *node) (names []string) {
	for _, other := range h.all {
		if len(names) < maxPeers && other != n && len(other.ranks) > 0 {
			names = append(names, other.name)
		}
	}
	return names
}

// planTogether makes hosts with the same processors plan, the first one for the ranks of all of them. If only
// a program is missing on the first host, the others still plan, so that the error names them, too.
func (j *job) planTogether(ctx context.Context, hosts []*node) error {
	beside := 0
	for _, n := range hosts[1:] {
		beside += len(n.ranks)
	}
	problems := make([]error, len(hosts))
	problems[0] = j.planOne(ctx, hosts[0], planRequest{Beside: beside})
	if hosts[0].plan == nil {
		return problems[0]
	}
	whole := *hosts[0].plan
	next := 0
	var all sync.WaitGroup
	for i, n := range hosts {
		first := next
		next += len(n.ranks)
		all.Go(func() {
			if i > 0 {
				problems[i] = j.planOne(ctx, n, planRequest{Placed: true})
			}
			if problems[i] != nil {
				return
			}
			n.plan.takePart(&whole, first, len(n.ranks))
			if !j.DryRun {
				problems[i] = n.stageAll(ctx, j.programs.files, j.tellStep)
			}
		})
	}
	all.Wait()
	return errors.Join(problems...)
}

// byProcessors returns the job's hosts in groups with the same processors; a host without ranks is alone.
func (h *nodes) byProcessors() (groups [][]*node) {
	group := make(map[string]int)
	for _, n := range h.all {
		i, known := group[n.processors]
		if known && len(n.ranks) > 0 {
			groups[i] = append(groups[i], n)
			continue
		}
		if n.processors != "" && len(n.ranks) > 0 {
			group[n.processors] = len(groups)
		}
		groups = append(groups, []*node{n})
	}
	return groups
}

// planOne makes a host plan its ranks, and completes the request.
func (j *job) planOne(ctx context.Context, n *node, request planRequest) (err error) {
	request.Ranks, request.Binding, request.CQCores = len(n.ranks), j.BindTo, j.CQCores
	request.Each, request.Endpoints = j.CoresPerRank, j.wantedEndpoints()
	if len(j.nodes.all) > 1 {
		request.Peers = j.nodes.peersOf(n)
		request.Programs = j.programs.wantedOn(n)
	}
	if n.remote == nil {
		n.plan, err = j.planner.plan(&request)
	} else {
		n.plan, err = n.planThere(ctx, &request)
	}
	if err == nil {
		err = n.plan.problem(n.name)
	}
	return err
}

// planThere makes the agent of another host plan.
func (n *node) planThere(ctx context.Context, r *planRequest) (*plan, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var reply planReply
	if err := n.remote.Prepare(ctx, *r, &reply); err != nil {
		return nil, err
	}
	if reply.Plan == nil {
		return nil, requestErrorf("host %s: %s", n.name, reply.Problem)
	}
	if err := reply.Plan.check(r); err != nil {
		return nil, fmt.Errorf("host %s: its plan makes no sense: %w", n.name, err)
	}
	return reply.Plan, nil
}

// programs are the programs of a job, and which rank runs which.
type programs struct {
	apps   []App
	dir    string   // the current folder; empty where there is none
	files  []string // what is executed, here at least
	hashes []string // of the files' contents, with Stage
	of     []int    // by rank
}

// fileOn returns the file that is executed for a program on a host.
func (p *programs) fileOn(n *node, program int) string {
	if n.plan.Files != nil && n.plan.Files[program] != "" {
		return n.plan.Files[program]
	}
	return p.files[program]
}

// commandOn returns the command line of a program on a host.
func (p *programs) commandOn(n *node, program int) []string {
	return append([]string{p.fileOn(n, program)}, p.apps[program].Args...)
}

// wantedOn returns the job's programs that a host needs; those without ranks there have no name.
func (p *programs) wantedOn(n *node) []programRequest {
	list := make([]programRequest, len(p.apps))
	for _, id := range n.ranks {
		i := p.of[id]
		list[i] = programRequest{Name: p.files[i], Dir: p.dirOf(&p.apps[i])}
		if n.remote == nil {
			continue
		}
		_, err := os.Stat(p.files[i])
		list[i].Away, list[i].There = true, err == nil
		if p.hashes != nil {
			list[i].Hash, list[i].AnyDir = p.hashes[i], p.apps[i].Dir == ""
		}
	}
	return list
}

// dirOn returns the working folder of a program's ranks on another host.
func (p *programs) dirOn(n *node, program int) string {
	if n.plan.Dirs != nil && n.plan.Dirs[program] != "" {
		return n.plan.Dirs[program]
	}
	return p.dirOf(&p.apps[program])
}

// dirOf returns the working folder of a program's ranks, as other hosts can find it.
func (p *programs) dirOf(app *App) string {
	if filepath.IsAbs(app.Dir) {
		return app.Dir
	}
	return filepath.Join(p.dir, app.Dir)
}

// absolute returns a program's name as other hosts can find it.
func absolute(name string) (string, error) {
	if !strings.ContainsRune(name, filepath.Separator) {
		return name, nil
	}
	return filepath.Abs(name)
}
