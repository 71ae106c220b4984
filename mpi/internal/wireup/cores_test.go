package wireup

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/transport"
)

// neighbors is a way of a job with a number of ranks on this host; 0 if it is not known.
type neighbors struct {
	alone

	n    int
	told string // under every key; empty for none
}

func (a neighbors) local() int { return a.n }

func (a neighbors) Get(context.Context, string) (string, error) {
	if a.told == "" {
		return "", fmt.Errorf("get: %w", pmi.ErrNotFound)
	}
	return a.told, nil
}

// A rank has what the launcher says, or its share of what the process may use; none of its own where ranks
// outnumber the processors.
func TestCores(t *testing.T) {
	machine, err := topology.Read()
	require.NoError(t, err)
	cores, processors := min(machine.UsableCores(), runtime.GOMAXPROCS(0)), topology.Online()
	for _, c := range []struct {
		local int
		told  string
		want  int
	}{
		{local: 1, want: cores}, {local: cores, want: 1}, {local: 0, want: 1},
		{local: processors, want: max(1, cores/processors)}, {local: processors + 1, want: 0},
		{local: 1, told: "3", want: 3}, {local: 1, told: "0", want: 0}, {local: 0, told: "3", want: 3},
		{local: processors + 1, told: "3", want: 0},
	} {
		set := setting.Values{}.Clone()
		require.NoError(t, set.Set(setting.CoresPerRank.Name, c.told))
		j := &Job{set: set, way: neighbors{n: c.local}}
		got, err := j.Cores()
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%+v", c)
		require.Equal(t, got > 0, j.SpinFor(got) > 0)
	}
	set := setting.Values{}.Clone()
	require.NoError(t, set.Set(setting.CoresPerRank.Name, strconv.Itoa(-1)))
	_, err = (&Job{set: set, way: alone{}}).Cores()
	require.ErrorContains(t, err, `WEFT_CORES_PER_RANK="-1"`)
}

// The user's number comes before that of weft run, and that before the rank's own, which is used where weft run
// is of a version that tells none.
func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		size       uint32
		set, cores int
		told       string
		want       int // 0 for an error
	}{
		{size: 2, cores: 1, told: "4", want: 4}, {size: 2, set: 3, cores: 1, told: "4", want: 3},
		{size: 2, cores: 2, want: 2}, {size: 2, cores: 16, want: 8}, {size: 2, cores: 0, want: 1},
		{size: 1, cores: 5, told: "4", want: 5}, {size: 1, set: 2, cores: 5, want: 2},
		{size: 2, cores: 1, told: "9"}, {size: 2, cores: 1, told: "0"}, {size: 2, cores: 1, told: "x"},
	} {
		j := &Job{weft: true, way: neighbors{told: c.told}, Identity: transport.Identity{Size: c.size}}
		got, err := j.Endpoints(t.Context(), c.set, c.cores)
		if c.want == 0 {
			require.ErrorContains(t, err, fmt.Sprintf(`endpoints of each rank is "%s": not from 1 to 8`, c.told))
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%+v", c)
	}
}
