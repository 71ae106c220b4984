package wireup

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/topology"
)

// neighbors is a way of a job with a number of ranks on this host; 0 if it is not known.
type neighbors struct {
	alone

	n int
}

func (a neighbors) local() int { return a.n }

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
