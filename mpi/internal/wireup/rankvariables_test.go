package wireup

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/setting"
)

// Each way to start processes without a launcher, as its environment tells ranks.
func TestPlaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("s"), 32), 0o600))
	const alone = "alone"
	for _, c := range []struct {
		environment string
		rank, size  int
		address     string
		want        string // of the error, or alone
	}{
		{environment: "", want: alone},
		{"WEFT_RANK=1 WEFT_SIZE=4 COORDINATOR SECRET", 1, 4, "a:5700", ""},
		{"JOB_COMPLETION_INDEX=3 WEFT_SIZE=4 COORDINATOR SECRET", 3, 4, "a:5700", ""},
		{"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 SLURM_PROCID=0 SLURM_NTASKS=9 COORDINATOR SECRET",
			2, 3, "a:5700", ""},
		{"SLURM_PROCID=5 SLURM_NTASKS=8 COORDINATOR SECRET", 5, 8, "a:5700", ""},
		{"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=8 COORDINATOR SECRET", 1, 2, "a:5700", ""},
		{"AWS_BATCH_JOB_NODE_INDEX=1 AWS_BATCH_JOB_NUM_NODES=2 COORDINATOR SECRET", 1, 2, "a:5700", ""},
		{"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=29500 SECRET", 1, 2, "m:29500", ""},
		{"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=29500 COORDINATOR SECRET", 1, 2, "a:5700", ""},
		{environment: "RANK=1 WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=29500", want: alone},
		{environment: "WEFT_RANK=0 WEFT_SIZE=1 COORDINATOR SECRET", want: alone},
		{environment: "COORDINATOR SECRET", want: "no variable tells this process its rank"},
		{environment: "WEFT_RANK=0 COORDINATOR SECRET", want: "WEFT_SIZE does not tell the number of ranks"},
		{environment: "WEFT_RANK=4 WEFT_SIZE=4 COORDINATOR SECRET", want: "not a rank from 0 to 3"},
		{environment: "WEFT_RANK=x WEFT_SIZE=4 COORDINATOR SECRET", want: `WEFT_RANK="x": not a rank`},
		{environment: "WEFT_RANK=0 WEFT_SIZE=x COORDINATOR SECRET", want: `WEFT_SIZE="x": not a number of ranks`},
		{environment: "WEFT_RANK=0 WEFT_SIZE=2 WEFT_COORDINATOR=a SECRET", want: "not HOST:PORT"},
		{environment: "WEFT_RANK=0 WEFT_SIZE=2 WEFT_COORDINATOR=:5700 SECRET", want: "not HOST:PORT"},
		{environment: "WEFT_RANK=0 WEFT_SIZE=2 COORDINATOR", want: "set WEFT_SECRET_FILE=FILE"},
		{environment: "WEFT_RANK=0 WEFT_SIZE=2 COORDINATOR WEFT_SECRET_FILE=/none", want: "no such file"},
		{environment: "WEFT_RANK=0 WEFT_SIZE=2 COORDINATOR SECRET WEFT_START_TIMEOUT=0", want: "WEFT_START_TIMEOUT"},
	} {
		t.Run(c.environment, func(t *testing.T) {
			for _, p := range places {
				for _, name := range []string{p.rank, p.size, p.other, p.host, p.port} {
					if name != "" {
						t.Setenv(name, "")
					}
				}
			}
			for v := range strings.FieldsSeq(strings.NewReplacer(" COORDINATOR", " WEFT_COORDINATOR=a:5700",
				"SECRET ", "WEFT_SECRET_FILE="+file+" ").Replace(" " + c.environment + " ")) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			place, err := findPlace(setting.Environment())
			switch c.want {
			case "":
				require.NoError(t, err)
				require.Equal(t, []any{c.rank, c.size, c.address}, []any{place.Rank, place.Size, place.Address})
				require.NotZero(t, place.Secret)
			case alone:
				require.NoError(t, err)
				require.Nil(t, place)
			default:
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}
