package shm

import (
	"errors"

	"github.com/weft-mpi/weft/internal/firstmessage"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/fabric"
)

// Fabric describes this provider. A large message is copied once, by a system call that costs as much as
// copying some ten KiB twice.
var Fabric = fabric.Fabric{
	Name:           "shm",
	About:          "shared memory, for ranks of one host",
	Local:          true,
	MinPeerTimeout: MinPeerTimeout,
	EagerMax:       24 << 10,
	Piece:          4 << 20,
	Open: func(c fabric.Config) (transport.Device, error) {
		first, err := firstmessage.Inherited()
		if err != nil {
			c.Log.Warn("first messages between ranks of this host need connections", "reason", err)
		}
		d, err := New(Options{PeerTimeout: c.PeerTimeout, Running: c.Running,
			NoHugePages: !c.HugePages, CopyCosts: c.CopyCosts, Fatal: c.Fatal, Log: c.Log,
			FirstMessages: first})
		if err != nil {
			return nil, errors.Join(err, first.Close())
		}
		return d, nil
	},
}
