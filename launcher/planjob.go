package launcher

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
)

// planReply is what an agent answers to a planRequest.
type planReply struct {
	Plan    *plan
	Problem string // why there is no plan
}

// planAll has every host plan for its ranks, at once. The error names every host that cannot run them.
func (j *job) planAll(ctx context.Context) error {
	problems := make([]error, len(j.nodes))
	var all sync.WaitGroup
	for i, n := range j.nodes {
		all.Go(func() { problems[i] = j.planOne(ctx, n) })
	}
	all.Wait()
	if len(j.nodes) == 1 {
		return problems[0]
	}
	if err := errors.Join(problems...); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return &ProgramError{Status: 127, What: err.Error()}
	}
	return nil
}

// maxPeers is how many other hosts a host is told, to find its route to them.
const maxPeers = 4

func (j *job) planOne(ctx context.Context, n *node) (err error) {
	request := planRequest{Ranks: len(n.ranks), Binding: j.Binding, CQCores: j.CQCores, Each: j.CoresPerRank}
	if len(j.nodes) > 1 {
		for _, other := range j.nodes {
			if other != n && len(request.Peers) < maxPeers {
				request.Peers = append(request.Peers, other.name)
			}
		}
		request.Programs = j.programsOf(n)
	}
	if n.remote == nil {
		n.plan, err = j.planner.plan(&request)
	} else {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		var reply planReply
		if err = n.remote.Prepare(ctx, request, &reply); err == nil && reply.Plan == nil {
			err = fmt.Errorf("host %s: %s", n.name, reply.Problem)
		}
		if err == nil {
			if bad := reply.Plan.check(&request); bad != nil {
				err = fmt.Errorf("host %s: its plan makes no sense: %w", n.name, bad)
			}
		}
		n.plan = reply.Plan
	}
	if err == nil && len(n.plan.Problems) > 0 {
		err = fmt.Errorf("host %s: %s", n.name, strings.Join(n.plan.Problems, "; "))
	}
	if err != nil || j.DryRun {
		return err
	}
	return j.stageAll(ctx, n)
}

// programsOf are the job's programs as a host has to have them; those of which it has no rank have no name.
func (j *job) programsOf(n *node) []programRequest {
	list := make([]programRequest, len(j.Apps))
	for _, id := range n.ranks {
		i := j.programOf[id]
		list[i] = programRequest{Name: j.files[i], Dir: j.dirOf(&j.Apps[i])}
		if n.remote != nil && j.hashes != nil {
			list[i].Hash = j.hashes[i]
		}
	}
	return list
}

// dirOf is the folder that a program's ranks start in, as other hosts can find it.
func (j *job) dirOf(app *App) string {
	if filepath.IsAbs(app.Dir) {
		return app.Dir
	}
	return filepath.Join(j.dir, app.Dir)
}

// absolute is a program's name as other hosts can find it.
func absolute(name string) (string, error) {
	if !strings.ContainsRune(name, filepath.Separator) {
		return name, nil
	}
	return filepath.Abs(name)
}
