package tcp

import (
	"testing"

	"github.com/weft-mpi/weft/transport/verbstest"
)

func TestConformanceOverTwoLanes(t *testing.T) {
	verbstest.Run(t, provider{options: Options{Lanes: 2}})
}

func TestConformanceOverFourLanes(t *testing.T) {
	verbstest.Run(t, provider{options: Options{Lanes: 4}})
}

func TestConformanceOverOneLaneThatIsKept(t *testing.T) {
	verbstest.Run(t, provider{options: Options{Reconnect: true}})
}
