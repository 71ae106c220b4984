package wireup

import (
	"fmt"
	"os"
)

// unsupported are the launchers from which weft cannot get a rank's peers, with their variables. size and
// rank name variables; unknown is set if a rank of 0 without a size may be one of several, and both if the
// names are so common that only both together count.
var unsupported = []struct {
	size, rank    string
	unknown, both bool
	why           string
}{
	{size: "OMPI_COMM_WORLD_SIZE", rank: "OMPI_COMM_WORLD_RANK", why: pmix},
	{rank: "PMIX_RANK", unknown: true, why: pmix},
	{size: "SLURM_STEP_NUM_TASKS", rank: "SLURM_PROCID",
		why: "this process was started by srun without PMI, by which it would find its peers: " +
			"start it with `srun --mpi=pmi2` (`srun --mpi=list` tells what there is), or, on one " +
			"machine, with `weft run`"},
	{size: "FLUX_JOB_SIZE", rank: "FLUX_TASK_RANK",
		why: "this process was started by Flux without PMI, by which it would find its peers: " +
			"start it with `flux run -o pmi=simple`, or, on one machine, with `weft run`"},
	{size: "PMI_SIZE", rank: "PMI_RANK", unknown: true,
		why: "the launcher of this process tells it neither PMI_FD nor PMI_PORT, so it cannot find its " +
			"peers: " +
			"start it with `weft run` or with `mpiexec.hydra`"},
	{rank: "ALPS_APP_PE", unknown: true, why: "this process was started by ALPS (aprun), " + noPMI},
	{rank: "PALS_RANKID", unknown: true, why: "this process was started by PALS (mpiexec of Cray PE), " +
		noPMI},
	{size: "JSM_NAMESPACE_SIZE", rank: "JSM_NAMESPACE_RANK",
		why: "this process was started by JSM (jsrun), " + noPMI},
	{size: "AWS_BATCH_JOB_NUM_NODES", rank: "AWS_BATCH_JOB_NODE_INDEX",
		why: "this process is on a node of a multi-node job of AWS Batch, " + noPMI},
	{rank: "JOB_COMPLETION_INDEX", unknown: true,
		why: "this pod is one of an Indexed Job of Kubernetes: set WEFT_SIZE to the job's completions and " +
			"WEFT_SECRET_FILE to a file of a mounted Secret (deploy/kubernetes shows both), or WEFT_SIZE=1 " +
			"if it is to run alone"},
	{size: "WORLD_SIZE", rank: "RANK", both: true,
		why: "this process was started by torchrun or in its manner, " + noPMI},
	{size: "WEFT_SIZE", rank: "WEFT_RANK",
		why: "WEFT_SIZE is set but the launcher cannot be reached: PMI_FD is missing from the environment"},
}

const pmix = "this process was started through PMIx (Open MPI's mpirun, or srun --mpi=pmix), which weft " +
	"does not speak: " +
	"start it with `weft run`, with `mpiexec.hydra`, or with `srun --mpi=pmi2`"

const noPMI = "without PMI, by which it would find its peers: start it with `weft run` or with " +
	"`mpiexec.hydra`; " +
	"if it is to run alone, set WEFT_SIZE=1"

const noLauncher = "or give all ranks WEFT_COORDINATOR=HOST:PORT, where rank 0 waits for the others, and " +
	"WEFT_SECRET_FILE=FILE"

// unreachable returns an error if an unsupported launcher has started this process as one of several:
// otherwise every rank would silently become a world of one. A job of one process is a world of one under any
// launcher, and by WEFT_SIZE=1 the user says that a process is alone.
func unreachable() error {
	alone := false
	if os.Getenv("WEFT_SIZE") == "1" {
		return nil
	}
	for _, f := range unsupported {
		alone = alone || os.Getenv(f.size) == "1"
	}
	for _, f := range unsupported {
		size, rank := os.Getenv(f.size), os.Getenv(f.rank)
		switch {
		case f.both && (size == "" || rank == ""):
		case size != "" && size != "1":
			return fmt.Errorf("%s; %s (%s=%.20s)", f.why, noLauncher, f.size, size)
		case rank != "" && rank != "0", rank != "" && size == "" && f.unknown && !alone:
			return fmt.Errorf("%s; %s (%s=%.20s)", f.why, noLauncher, f.rank, rank)
		}
	}
	return nil
}
