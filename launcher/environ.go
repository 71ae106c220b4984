package launcher

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/internal/local"
)

// cqCoresVariable passes a rank the list of CPUs reserved for its completion handlers; it is absent if there
// are none.
const cqCoresVariable = "WEFT_CQ_CORES"

// isForwarded reports whether a NAME=VALUE of the launcher's environment is passed to ranks of other hosts.
// Tests of weft have variables of their own.
func isForwarded(v string) bool {
	name, _, _ := strings.Cut(v, "=")
	return strings.HasPrefix(name, "WEFT_TEST_") ||
		slices.ContainsFunc(setting.All, func(s *setting.Setting) bool { return s.Name == name })
}

// numbers are a rank's numbers in the job and on its host, and the number of restarts of the job.
type numbers struct{ rank, size, local, locals, restarts int }

// rankEnv returns the variables that a rank has in addition to its agent's: the user's for all ranks, weft's,
// then the user's for its program. If a variable occurs twice, the later value counts. The defaults of
// WEFT_CORES_PER_RANK, GOMAXPROCS and WEFT_IFACE are left out if the user has set the variable, in job, in
// app or in environ, the launcher's own environment.
func rankEnv(environ []string, job *Job, id numbers, plan *plan, app *App) []string {
	r, n := strconv.Itoa(id.rank), strconv.Itoa(id.size)
	local, locals := strconv.Itoa(id.local), strconv.Itoa(id.locals)
	own := []string{
		"WEFT_RANK=" + r, "WEFT_SIZE=" + n, "WEFT_LOCAL_RANK=" + local, "WEFT_LOCAL_SIZE=" + locals,
		"PMI_RANK=" + r, "PMI_SIZE=" + n,
		"MPI_LOCALRANKID=" + local, "MPI_LOCALNRANKS=" + locals,
		setting.Restarted.Name + "=" + strconv.Itoa(id.restarts),
	}
	given := func(name string) bool {
		starts := sameVariable(name + "=")
		return slices.ContainsFunc(environ, starts) || slices.ContainsFunc(job.Env, starts) ||
			slices.ContainsFunc(app.Env, starts)
	}
	if !given("WEFT_CORES_PER_RANK") {
		own = append(own, "WEFT_CORES_PER_RANK="+strconv.Itoa(plan.CoresPerRank))
	}
	// A Go rank needs a second thread: one that waits for messages must not keep the others from running. A
	// completion handler has one more, on its own core.
	threads := max(2, plan.CoresPerRank)
	if plan.Handlers != nil {
		threads += len(plan.Handlers[id.local])
		own = append(own, cqCoresVariable+"="+topology.FormatCPUList(plan.Handlers[id.local]))
	}
	if !given("GOMAXPROCS") {
		own = append(own, "GOMAXPROCS="+strconv.Itoa(threads))
	}
	switch {
	case job.Endpoints > 0:
		own = append(own, setting.Endpoints.Name+"="+strconv.Itoa(job.Endpoints))
	case job.Endpoints == EndpointsAuto:
		own = append(own, setting.Endpoints.Name+"=auto")
	}
	if job.Survive {
		own = append(own, setting.Survive.Name+"=1")
	}
	if plan.Interface != "" && !given("WEFT_IFACE") {
		own = append(own, "WEFT_IFACE="+plan.Interface)
	}
	return slices.Concat(job.Env, own, app.Env)
}

// environment returns the variables that the user has set for the ranks of the job.
func (j *job) environment() []string {
	env := append(local.Inherited(), j.Env...)
	for _, app := range j.Apps {
		env = append(env, app.Env...)
	}
	return env
}

// sameVariable returns a function that reports whether a NAME=VALUE sets the same variable as another.
func sameVariable(as string) func(string) bool {
	name, _, _ := strings.Cut(as, "=")
	return func(v string) bool { return strings.HasPrefix(v, name+"=") }
}
