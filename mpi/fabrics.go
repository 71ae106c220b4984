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
	name := setting.Fabric.String()
	var fabrics []engine.Fabric
	add := func(make func(*slog.Logger, *wireup.Job) (transport.Device, error)) error {
		d, err := make(log, wire)
		if err == nil {
			fabrics = append(fabrics, engine.Fabric{Device: d})
		}
		return err
	}
	switch name {
	case "shm":
		return fabrics, add(newSHM)
	case "tcp":
		return fabrics, add(newTCP)
	case "auto":
	default:
		return nil, fmt.Errorf("%s=%q: no such fabric; there are shm, tcp, and auto, which chooses", setting.Fabric.Name, name)
	}
	here, others := wire.Neighbours()
	if here {
		if err := add(newSHM); err != nil {
			log.Warn("ranks of this host are reached over TCP, shared memory not being possible", "reason", err)
			others = true
		}
	}
	if others {
		if err := add(newTCP); err != nil {
			for _, f := range fabrics {
				err = errors.Join(err, f.Device.Close())
			}
			return nil, err
		}
	}
	return fabrics, nil
}

func newSHM(log *slog.Logger, _ *wireup.Job) (transport.Device, error) {
	silent, err := setting.PeerTimeout.Duration()
	if err == nil && silent < shm.MinPeerTimeout {
		err = fmt.Errorf("%s=%s: %v is the least", setting.PeerTimeout.Name, setting.PeerTimeout, shm.MinPeerTimeout)
	}
	if err != nil {
		return nil, err
	}
	return shm.New(shm.Options{PeerTimeout: silent, Log: log})
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

func newTCP(log *slog.Logger, wire *wireup.Job) (transport.Device, error) {
	host, err := wire.Host()
	if err != nil {
		return nil, err
	}
	low, high, err := wireup.Ports()
	if err != nil {
		return nil, err
	}
	encrypt, err := setting.TLS.On()
	if err != nil {
		return nil, err
	}
	checksum, err := checksum()
	if err != nil {
		return nil, err
	}
	silent, err := setting.PeerTimeout.Duration()
	if err == nil && silent < tcp.MinPeerTimeout {
		err = fmt.Errorf("%s=%s: %v is the least", setting.PeerTimeout.Name, setting.PeerTimeout, tcp.MinPeerTimeout)
	}
	if err != nil {
		return nil, err
	}
	return tcp.New(tcp.Options{Host: host, LowPort: low, HighPort: high, TLS: encrypt, Checksum: checksum, PeerTimeout: silent, Log: log})
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
