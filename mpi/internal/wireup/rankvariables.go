package wireup

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi/internal/wireup/coordinator"
)

// places are the variables that tell a process its rank and the number of ranks, in the order of preference.
// size and other name the number; host and port, where rank 0 is, unless WEFT_COORDINATOR says so.
var places = []struct{ rank, size, other, host, port string }{
	{rank: "WEFT_RANK", size: "WEFT_SIZE"},
	{rank: "JOB_COMPLETION_INDEX", size: "WEFT_SIZE"}, // Kubernetes' Indexed Jobs and JobSets
	{rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE"},
	{rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS", other: "SLURM_NTASKS"},
	{rank: "AWS_BATCH_JOB_NODE_INDEX", size: "AWS_BATCH_JOB_NUM_NODES"},
	{rank: "RANK", size: "WORLD_SIZE", host: "MASTER_ADDR", port: "MASTER_PORT"}, // torchrun's manner
}

// mostRanks bounds the number of ranks of a job without a launcher.
const mostRanks = 1 << 16

// findPlace is this process's place in a job without a launcher; nil if the environment speaks of none. A
// part of what is needed is no place, and is an error where it can be meant for nothing else.
func findPlace(set setting.Values) (*coordinator.Config, error) {
	address := set.Of(setting.Coordinator).String()
	for _, p := range places {
		rank := os.Getenv(p.rank)
		if rank == "" {
			continue
		}
		at := address
		if host, port := os.Getenv(p.host), os.Getenv(p.port); at == "" && host != "" && port != "" &&
			set.IsSet(setting.SecretFile) {
			at = net.JoinHostPort(host, port)
		}
		if at == "" {
			continue
		}
		sizeName := p.size
		if os.Getenv(sizeName) == "" {
			sizeName = cmp.Or(p.other, p.size)
		}
		size := os.Getenv(sizeName)
		if size == "" {
			return nil, fmt.Errorf("%s=%.20q tells this process its rank, and %s does not tell the number "+
				"of ranks: set it for all of them", p.rank, rank, p.size)
		}
		if size == "1" && rank == "0" {
			return nil, nil
		}
		return newPlace(set, at, p.rank, rank, sizeName, size)
	}
	if address == "" || os.Getenv("WEFT_SIZE") == "1" {
		return nil, nil
	}
	return nil, fmt.Errorf("%s=%.200q is set, and no variable tells this process its rank: set WEFT_RANK "+
		"and WEFT_SIZE", setting.Coordinator.Name, address)
}

func newPlace(set setting.Values, address, rankName, rank, sizeName, size string) (
	*coordinator.Config, error) {
	c := &coordinator.Config{Address: address, Kernel: kernel()}
	var err error
	if c.Size, err = strconv.Atoi(size); err != nil || c.Size < 1 || c.Size > mostRanks {
		return nil, fmt.Errorf("%s=%.20q: not a number of ranks from 1 to %d", sizeName, size, mostRanks)
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
	g, err := givenSecret(set)
	if err == nil && g.from == fromRank0 {
		err = fmt.Errorf("%[1]s is set without %[2]s: have the job's secret in a file that only you can "+
			"read (head -c 32 /dev/urandom > FILE; chmod 600 FILE), the same on every host, and set "+
			"%[2]s=FILE", setting.Coordinator.Name, setting.SecretFile.Name)
	}
	c.Secret = g.secret
	return c, err
}
