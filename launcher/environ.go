package launcher

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// foreign are the beginnings of variables by which another launcher would speak to the ranks. They are this launcher's own
// environment at most, when it runs inside of such a job.
var foreign = []string{"PMI_", "PMIX_", "OMPI_COMM_WORLD_", "HYDI_", "MPI_LOCAL"}

// inherited is this process's environment without what another launcher has said in it.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc(foreign, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
}

// The descriptors that a rank finds its launcher's gifts in.
const (
	pmiDescriptor    = 3
	secretDescriptor = 4
)

// rankEnv is the environment of a rank: that of the launcher, then what tells the rank who it is, then what the user has set for
// the program.
func rankEnv(base []string, job string, rank, size, coresPerRank int, app *App) []string {
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
		own = append(own, "WEFT_CORES_PER_RANK="+strconv.Itoa(coresPerRank))
	}
	// A Go rank needs a second thread: one that waits for messages must not keep the others from running.
	if !given("GOMAXPROCS") {
		own = append(own, "GOMAXPROCS="+strconv.Itoa(max(2, coresPerRank)))
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
