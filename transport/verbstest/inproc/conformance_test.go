package inproc

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/verbstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type provider struct{}

func (provider) Devices(n int) ([]transport.Device, error) {
	net := NewNetwork()
	var list []transport.Device
	for range n {
		d, err := net.Device()
		if err != nil {
			return list, err
		}
		list = append(list, d)
	}
	return list, nil
}

func TestConformance(t *testing.T) { verbstest.Run(t, provider{}) }
