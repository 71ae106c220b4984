package launcher

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/internal/topology"
)

// foreign are the beginnings of variables by which another launcher would speak to the ranks. They are this launcher's own
// environment at most, when it runs inside of such a job.
var foreign = []string{"PMI_", "PMIX_", "OMPI_COMM_WORLD_", "HYDI_", "MPI_LOCAL"}

// cqCoresVariable tells a rank the processors that its completion handler has for itself, as a list; it is absent where there are none.
const cqCoresVariable = "WEFT_CQ_CORES"

// inherited is this process's environment without what another launcher has said in it.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, cqCoresVariable+"=") || slices.ContainsFunc(foreign, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
}

// The descriptors that a rank finds its launcher's gifts in.
const (
	pmiDescriptor    = 3
	secretDescriptor = 4
)

// rankEnv is the environment of a rank: that of the launcher, then what tells the rank who it is, then what the user has set for
// the program.
func rankEnv(base []string, job string, rank, size int, place *placement, app *App) []string {
	r, n := strconv.Itoa(rank), strconv.Itoa(size)
	own := []string{
		jobVariable + "=" + job,
		"WEFT_RANK=" + r, "WEFT_SIZE=" + n, "WEFT_LOCAL_RANK=" + r, "WEFT_LOCAL_SIZE=" + n,
		"WEFT_SECRET_FD=" + strconv.Itoa(secretDescriptor),
		"PMI_FD=" + strconv.Itoa(pmiDescriptor), "PMI_RANK=" + r, "PMI_SIZE=" + n,
		"MPI_LOCALRANKID=" + r, "MPI_LOCALNRANKS=" + n,
	}
	given := func(name string) bool {
		starts := func(v string) bool { return strings.HasPrefix(v, name+"=") }
		return slices.ContainsFunc(base, starts) || slices.ContainsFunc(app.Env, starts)
	}
	if !given("WEFT_CORES_PER_RANK") {
		own = append(own, "WEFT_CORES_PER_RANK="+strconv.Itoa(place.coresPerRank))
	}
	// A Go rank needs a second thread: one that waits for messages must not keep the others from running. A completion handler has one
	// more, on its own core.
	threads := max(2, place.coresPerRank)
	if place.handlers != nil {
		threads++
		own = append(own, cqCoresVariable+"="+topology.FormatCPUList(place.handlers[rank]))
	}
	if !given("GOMAXPROCS") {
		own = append(own, "GOMAXPROCS="+strconv.Itoa(threads))
	}
	return unique(slices.Concat(base, own, app.Env))
}

// unique keeps the last setting of each variable: programs differ in which of two they take.
func unique(env []string) []string {
	last := make(map[string]int, len(env))
	for i, v := range env {
		name, _, _ := strings.Cut(v, "=")
		last[name] = i
	}
	out := env[:0:0]
	for i, v := range env {
		if name, _, _ := strings.Cut(v, "="); last[name] == i {
			out = append(out, v)
		}
	}
	return out
}
