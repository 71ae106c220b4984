package wireup

import (
	"fmt"
	"os"
)

// foreign are the launchers that weft cannot get a rank's peers from, with what they say in the environment. size and rank name
// variables; unknown says that a rank of 0 without a size may be one of several.
var foreign = []struct {
	size, rank string
	unknown    bool
	why        string
}{
	{size: "OMPI_COMM_WORLD_SIZE", rank: "OMPI_COMM_WORLD_RANK", why: pmix},
	{rank: "PMIX_RANK", unknown: true, why: pmix},
	{size: "SLURM_STEP_NUM_TASKS", rank: "SLURM_PROCID", why: "this process was started by srun without PMI, by which it would find its peers: " +
		"start it with `srun --mpi=pmi2` (`srun --mpi=list` tells what there is), or, on one machine, with `weft run`"},
	{size: "FLUX_JOB_SIZE", rank: "FLUX_TASK_RANK", why: "this process was started by Flux without PMI, by which it would find its peers: " +
		"start it with `flux run -o pmi=simple`, or, on one machine, with `weft run`"},
	{size: "PMI_SIZE", rank: "PMI_RANK", unknown: true, why: "the launcher of this process tells it neither PMI_FD nor PMI_PORT, so it cannot find its peers: " +
		"start it with `weft run` or with `mpiexec.hydra`"},
	{size: "WEFT_SIZE", rank: "WEFT_RANK", why: "WEFT_SIZE is set but the launcher cannot be reached: PMI_FD is missing from the environment"},
}

const pmix = "this process was started through PMIx (Open MPI's mpirun, or srun --mpi=pmix), which weft does not speak: " +
	"start it with `weft run`, with `mpiexec.hydra`, or with `srun --mpi=pmi2`"

// unreachable is the error of a process that was started as one of several, by a launcher that weft cannot speak to; nil if there is
// none. Otherwise every rank would silently become a world of one. A job of one process is one, whoever has launched it.
func unreachable() error {
	alone := false
	for _, f := range foreign {
		alone = alone || os.Getenv(f.size) == "1"
	}
	for _, f := range foreign {
		size, rank := os.Getenv(f.size), os.Getenv(f.rank)
		switch {
		case size != "" && size != "1":
			return fmt.Errorf("%s (%s=%.20s)", f.why, f.size, size)
		case rank != "" && rank != "0", rank != "" && size == "" && f.unknown && !alone:
			return fmt.Errorf("%s (%s=%.20s)", f.why, f.rank, rank)
		}
	}
	return nil
}
