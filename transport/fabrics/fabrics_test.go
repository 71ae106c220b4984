package fabrics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport/fabric"
)

func TestChoose(t *testing.T) {
	old := All
	defer func() { All = old }()
	All = []fabric.Fabric{{Name: "a", Local: true}, {Name: "b"}, {Name: "c", Local: true}, {Name: "d"}}
	names := func(list []fabric.Fabric) (names []string) {
		for _, f := range list {
			names = append(names, f.Name)
		}
		return names
	}
	require.Equal(t, []string{"a", "b"}, names(Choose(Auto, true, true)))
	require.Equal(t, []string{"a"}, names(Choose(Auto, true, false)))
	require.Equal(t, []string{"b"}, names(Choose(Auto, false, true)))
	require.Equal(t, []string{"c"}, names(Choose("c", false, true)), "what is chosen is used")
	require.Equal(t, "a, b, c, d or auto", Names())
	require.NoError(t, Check("d"))
	require.NoError(t, Check(Auto))
	require.ErrorContains(t, Check("rdma"), `unknown fabric "rdma"; choose a, b, c, d or auto`)
}
