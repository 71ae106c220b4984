package wireup

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi/internal/wireup/coordinator"
)

// places are the variables that contain the rank of a process and the number of ranks. Of several that are
// set, the first counts: programs that start several processes in one task of a scheduler precede the
// scheduler. rank names the variable of the rank, size that of the number of ranks, and other a second one,
// used if the first is not set. If both is true, the names are so common that rank counts only if size is set
// as well. rank0 finds the address of rank 0 if WEFT_COORDINATOR does not have it.
var places = []struct {
	rank, size, other string
	both              bool
	rank0             func(e *environment, rank string) (string, error)
}{
	{rank: "WEFT_RANK", size: "WEFT_SIZE"},
	{rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE"},
	{rank: "RANK", size: "WORLD_SIZE", both: true, rank0: torchRank0},
	{rank: "JOB_COMPLETION_INDEX", size: "WEFT_SIZE", rank0: kubernetesRank0}, // Indexed Jobs and JobSets
	{rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS", other: "SLURM_NTASKS", rank0: slurmRank0},
	{rank: "AWS_BATCH_JOB_NODE_INDEX", size: "AWS_BATCH_JOB_NUM_NODES", rank0: awsRank0},
}

// maxRanks bounds the number of ranks of a job without a launcher.
const maxRanks = 1 << 16

// findPlace returns the membership of this process in a job without a launcher; nil if the environment has
// none. If only some of the variables are set, it returns nil, or an error if they cannot have another
// purpose. WEFT_SIZE=1 says that the process is alone. The address of rank 0 is taken from a scheduler only
// if there is a secret: without one, the user did not mean the processes to form a job.
func findPlace(set setting.Values, e *environment) (*coordinator.Config, error) {
	if e.getenv("WEFT_SIZE") == "1" {
		return nil, nil
	}
	address := set.Of(setting.Coordinator).String()
	alone := false
	for _, p := range places {
		sizeName := p.size
		if e.getenv(sizeName) == "" && p.other != "" {
			sizeName = p.other
		}
		rank, size := e.getenv(p.rank), e.getenv(sizeName)
		if rank == "" || size == "" && p.both {
			continue
		}
		if size == "1" && rank == "0" { // alone, unless another row has more
			alone = true
			continue
		}
		at := address
		if at == "" && p.rank0 != nil && set.IsSet(setting.SecretFile) {
			var err error
			if at, err = p.rank0(e, rank); err != nil {
				return nil, err
			}
		}
		if at == "" {
			continue
		}
		if size == "" {
			return nil, fmt.Errorf("%s=%.20q tells this process its rank, and %s does not tell the number "+
				"of ranks: set it for all of them", p.rank, rank, p.size)
		}
		return newPlace(set, at, p.rank, rank, sizeName, size)
	}
	if address == "" || alone {
		return nil, nil
	}
	return nil, fmt.Errorf("%s=%.200q is set, and no variable tells this process its rank: set WEFT_RANK "+
		"and WEFT_SIZE", setting.Coordinator.Name, address)
}

func newPlace(set setting.Values, address, rankName, rank, sizeName, size string) (
	*coordinator.Config, error) {
	c := &coordinator.Config{Address: address, Kernel: kernel()}
	var err error
	if c.Size, err = strconv.Atoi(size); err != nil || c.Size < 1 || c.Size > maxRanks {
		return nil, fmt.Errorf("%s=%.20q: not a number of ranks from 1 to %d", sizeName, size, maxRanks)
	}
	if c.Rank, err = strconv.Atoi(rank); err != nil || c.Rank < 0 || c.Rank >= c.Size {
		return nil, fmt.Errorf("%s=%.20q: not a rank from 0 to %d, as %s=%s has it", rankName, rank,
			c.Size-1, sizeName, size)
	}
	host, port, err := net.SplitHostPort(address)
	n, err2 := strconv.Atoi(port)
	if err != nil || err2 != nil || host == "" || n < 1 || n > 65535 {
		return nil, fmt.Errorf("%s=%.200q: not HOST:PORT, where rank 0 waits for the others",
			setting.Coordinator.Name, address)
	}
	if c.Within, err = set.Of(setting.StartTimeout).Duration(); err != nil {
		return nil, err
	}
	if c.Stuck, c.StuckAction, err = WhenStuck(set); err != nil {
		return nil, err
	}
	g, err := givenSecret(set)
	if err == nil && g.from == fromRank0 {
		err = fmt.Errorf("%[1]s is set without %[2]s: have the job's secret in a file that only you can "+
			"read (head -c 32 /dev/urandom > FILE; chmod 600 FILE), the same on every host, and set "+
			"%[2]s=FILE", setting.Coordinator.Name, setting.SecretFile.Name)
	}
	c.Secret = g.secret
	return c, err
}

// WhenStuck returns how long nothing may move until a report, 0 for never, and what to do about a job that
// hangs.
func WhenStuck(set setting.Values) (after time.Duration, action deadlock.Action, err error) {
	if text := set.Of(setting.Stuck).String(); text != "never" {
		if after, err = set.Of(setting.Stuck).Duration(); err != nil {
			return 0, "", err
		}
	}
	text := set.Of(setting.StuckAction).String()
	if action, err = deadlock.ParseAction(text); err != nil {
		err = fmt.Errorf("%s=%.200q: %w", setting.StuckAction.Name, text, err)
	}
	return after, action, err
}
