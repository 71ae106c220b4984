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

// otherNames are variables besides those of places.
var otherNames = []string{"HOSTNAME", "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_NODELIST", "SLURM_JOB_ID",
	"SLURM_STEP_ID", "SLURM_STEP_RESV_PORTS", "AWS_BATCH_JOB_MAIN_NODE_INDEX",
	"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"}

// podHosts is a pod's /etc/hosts.
const podHosts = `# Kubernetes-managed hosts file.
127.0.0.1	localhost
10.244.0.9	ring-3.ring.ns.svc.local	ring-3
`

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
		// A task of one scheduler in which torchrun has started several processes.
		{"RANK=9 WORLD_SIZE=16 MASTER_ADDR=m MASTER_PORT=29500 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 " +
			"SLURM_STEP_NODELIST=n[1-2] SECRET", 9, 16, "m:29500", ""},
		{"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=29500 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SECRET",
			1, 2, "m:29500", ""},
		{"JOB_COMPLETION_INDEX=3 WEFT_SIZE=4 HOSTNAME=ring-3 SECRET", 3, 4, "ring-0.ring.ns.svc.local:5700", ""},
		{"JOB_COMPLETION_INDEX=0 WEFT_SIZE=4 HOSTNAME=set-workers-0-0.set.ns.svc SECRET", 0, 4,
			"set-workers-0-0.set.ns.svc:5700", ""},
		{"JOB_COMPLETION_INDEX=3 WEFT_SIZE=1 HOSTNAME=ring-3 SECRET", 0, 0, "", alone},
		{environment: "JOB_COMPLETION_INDEX=3 HOSTNAME=ring-3 SECRET", want: "WEFT_SIZE does not tell the number"},
		{environment: "JOB_COMPLETION_INDEX=3 WEFT_SIZE=4 HOSTNAME=lone-3 SECRET", want: "has no subdomain"},
		{environment: "JOB_COMPLETION_INDEX=3 WEFT_SIZE=4 HOSTNAME=x SECRET", want: `"x" does not end in it`},
		{"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NODELIST=n[07-09] SLURM_JOB_ID=7 SLURM_STEP_ID=0 SECRET",
			1, 4, "n07:23560", ""},
		{"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NODELIST=n7 SLURM_STEP_RESV_PORTS=12002-12005 SECRET",
			1, 4, "n7:12002", ""},
		{environment: "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NODELIST=n[ SECRET",
			want: "SLURM_STEP_NODELIST: node list"},
		{environment: "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_NODELIST=n[1-4] SECRET", want: alone}, // a batch script
		{"AWS_BATCH_JOB_NODE_INDEX=1 AWS_BATCH_JOB_NUM_NODES=2 AWS_BATCH_JOB_MAIN_NODE_INDEX=0 " +
			"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.0.0.7 SECRET", 1, 2, "10.0.0.7:5700", ""},
		{"AWS_BATCH_JOB_NODE_INDEX=0 AWS_BATCH_JOB_NUM_NODES=2 AWS_BATCH_JOB_MAIN_NODE_INDEX=0 " +
			"HOSTNAME=main SECRET", 0, 2, "main:5700", ""},
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
				for _, name := range []string{p.rank, p.size, p.other} {
					if name != "" {
						t.Setenv(name, "")
					}
				}
			}
			for _, name := range otherNames {
				t.Setenv(name, "")
			}
			for v := range strings.FieldsSeq(strings.NewReplacer(" COORDINATOR", " WEFT_COORDINATOR=a:5700",
				"SECRET ", "WEFT_SECRET_FILE="+file+" ").Replace(" " + c.environment + " ")) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			place, err := findPlace(setting.Environment(), &environment{os.Getenv,
				func(name string) ([]byte, error) {
					require.Equal(t, "/etc/hosts", name)
					return []byte(podHosts), nil
				},
				func() (string, error) { return os.Getenv("HOSTNAME"), nil }})
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
