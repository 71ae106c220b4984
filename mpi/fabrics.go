package mpi

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
	"github.com/weft-mpi/weft/transport/tcp"
)

// newFabrics makes the devices of the fabrics that the settings name, in the order of preference: shared memory for ranks of this host, TCP
// for all others.
func newFabrics(log *slog.Logger, wire *wireup.Job) ([]engine.Fabric, error) {
	overTCP, err := tcpOptions(log, wire)
	if err != nil {
		return nil, err
	}
	newSHM := func() (transport.Device, error) {
		return shm.New(shm.Options{PeerTimeout: overTCP.PeerTimeout, Log: log})
	}
	newTCP := func() (transport.Device, error) { return tcp.New(overTCP) }

	var fabrics []engine.Fabric
	add := func(make func() (transport.Device, error), f engine.Fabric) (err error) {
		if f.Device, err = make(); err == nil {
			fabrics = append(fabrics, f)
		}
		return err
	}
	// Between ranks of a host a large message is copied once, by a call that costs as much as copying some ten KiB twice.
	ofSHM := engine.Fabric{EagerMost: 24 << 10, Piece: 4 << 20}
	ofTCP := engine.Fabric{}
	switch name := setting.Fabric.String(); name {
	case "shm":
		err := add(newSHM, ofSHM)
		return fabrics, err
	case "tcp":
		err := add(newTCP, ofTCP)
		return fabrics, err
	case "auto":
	default:
		return nil, fmt.Errorf("%s=%q: no such fabric; there are shm, tcp, and auto, which chooses", setting.Fabric.Name, name)
	}
	here, elsewhere := wire.Neighbours()
	if here {
		if err := add(newSHM, ofSHM); err != nil {
			log.Warn("ranks of this host are reached over TCP, shared memory not being possible", "reason", err)
			elsewhere = true
		}
	}
	if elsewhere {
		if err := add(newTCP, ofTCP); err != nil {
			for _, f := range fabrics {
				err = errors.Join(err, f.Device.Close())
			}
			return nil, err
		}
	}
	return fabrics, nil
}

// card is what the peers are told of how to reach us.
func card(e *engine.Engine, fabrics []engine.Fabric) wireup.Card {
	c := wireup.Card{}
	for _, f := range fabrics {
		name := f.Device.Query().Provider
		c[name] = e.Addr(name)
	}
	return c
}

// tcpOptions are what the settings say of the TCP fabric. They are looked at whether or not it is used: nonsense is refused in any case.
func tcpOptions(log *slog.Logger, wire *wireup.Job) (o tcp.Options, err error) {
	o.Log = log
	if o.Host, err = wire.Host(); err != nil {
		return o, err
	}
	if o.LowPort, o.HighPort, err = wireup.Ports(); err != nil {
		return o, err
	}
	if o.TLS, err = setting.TLS.On(); err != nil {
		return o, err
	}
	if o.Checksum, err = checksum(); err != nil {
		return o, err
	}
	o.PeerTimeout, err = setting.PeerTimeout.Duration()
	if least := max(tcp.MinPeerTimeout, shm.MinPeerTimeout); err == nil && o.PeerTimeout < least {
		err = fmt.Errorf("%s=%s: %v is the least", setting.PeerTimeout.Name, setting.PeerTimeout, least)
	}
	return o, err
}

func checksum() (tcp.Checksum, error) {
	switch c := setting.Checksum.String(); c {
	case "auto":
		return tcp.ChecksumAuto, nil
	case "on":
		return tcp.ChecksumAlways, nil
	case "off":
		return tcp.ChecksumNever, nil
	default:
		return 0, fmt.Errorf("%s=%q: auto, on or off is wanted", setting.Checksum.Name, c)
	}
}
