package tcp

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/fabric"
)

// Fabric describes this provider.
var Fabric = fabric.Fabric{
	Name:           "tcp",
	About:          "TCP connections",
	MinPeerTimeout: MinPeerTimeout,
	Open: func(c fabric.Config) (transport.Device, error) {
		o := Options{
			LowPort: c.LowPort, HighPort: c.HighPort, PeerTimeout: c.PeerTimeout, Running: c.Running,
			TLS: c.TLS, Checksum: c.Checksum, Log: c.Log,
			Lanes: c.Lanes, Reconnect: c.Reconnect, Interfaces: c.Interfaces[:min(len(c.Interfaces),
				max(1, c.Lanes))],
		}
		if len(c.Interfaces) > 0 {
			o.Host = c.Interfaces[0].String()
		}
		d, err := New(o)
		if err != nil {
			return nil, err
		}
		return d, nil
	},
}
