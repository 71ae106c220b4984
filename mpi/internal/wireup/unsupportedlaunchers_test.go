package wireup

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/setting"
)

// A process that is one of several, and cannot find the others, is refused with what to do; all others are
// worlds of one.
func TestProcessesOfOtherLaunchers(t *testing.T) {
	const alone = ""
	for _, c := range []struct{ environment, want string }{
		{"", alone},
		{"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 PMIX_RANK=0", "through PMIx"},
		{"OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 PMIX_RANK=0", alone},
		{"PMIX_RANK=0", "through PMIx"},
		{"PMIX_RANK=3", "(PMIX_RANK=3)"},
		{"PMIX_RANK=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0", "through PMIx"},
		{"PMIX_RANK=0 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0", alone},
		{"SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0", "srun --mpi=pmi2"},
		{"SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0", alone},
		{"SLURM_PROCID=1", "(SLURM_PROCID=1)"},
		// A batch script's own processes: the allocation has four tasks, and srun would start them.
		{"SLURM_PROCID=0 SLURM_NTASKS=4", alone},
		{"SLURM_STEP_NUM_TASKS=nonsense", "srun without PMI"},
		{"FLUX_JOB_SIZE=2 FLUX_TASK_RANK=0", "flux run -o pmi=simple"},
		{"PMI_SIZE=2 PMI_RANK=0", "neither PMI_FD nor PMI_PORT"},
		{"PMI_RANK=0", "neither PMI_FD nor PMI_PORT"},
		{"WEFT_SIZE=2 WEFT_RANK=0", "PMI_FD is missing"},
		{"WEFT_SIZE=1 WEFT_RANK=0", alone},
		{"ALPS_APP_PE=0", "started by ALPS (aprun)"},
		{"ALPS_APP_PE=0 WEFT_SIZE=1", alone},
		{"PALS_RANKID=0", "started by PALS"},
		{"PALS_RANKID=2", "(PALS_RANKID=2)"},
		{"JSM_NAMESPACE_SIZE=4 JSM_NAMESPACE_RANK=0", "started by JSM (jsrun)"},
		{"JSM_NAMESPACE_SIZE=1 JSM_NAMESPACE_RANK=0", alone},
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500", "torchrun"},
		{"RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500", alone},
		{"AWS_BATCH_JOB_NUM_NODES=4 AWS_BATCH_JOB_NODE_INDEX=0", "(AWS_BATCH_JOB_NUM_NODES=4)"},
		{"AWS_BATCH_JOB_NUM_NODES=1 AWS_BATCH_JOB_NODE_INDEX=0", alone},
		{"JOB_COMPLETION_INDEX=0", "one of an Indexed Job of Kubernetes"},
		{"JOB_COMPLETION_INDEX=3 WEFT_SIZE=4", "(JOB_COMPLETION_INDEX=3)"},
		{"JOB_COMPLETION_INDEX=3 WEFT_SIZE=1", alone},
		// One of these alone may belong to anybody.
		{"RANK=3", alone},
		{"WORLD_SIZE=4", alone},
		// mpirun in a shell that srun has started.
		{"SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=0", "through PMIx"},
	} {
		t.Run(c.environment, func(t *testing.T) {
			for _, f := range unsupported {
				for _, name := range []string{f.size, f.rank} {
					if name != "" {
						t.Setenv(name, "")
					}
				}
			}
			for _, name := range []string{"PMI_FD", "PMI_PORT"} {
				t.Setenv(name, "") // to have it restored
				os.Unsetenv(name)
			}
			for v := range strings.FieldsSeq(c.environment) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			job, err := Join(t.Context(), setting.Environment())
			if c.want == alone {
				require.NoError(t, err)
				require.Equal(t, uint32(1), job.Identity.Size)
				require.NotZero(t, job.Identity.Secret)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}
