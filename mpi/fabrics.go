package mpi

import (
	"fmt"
	"log/slog"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp"
)

// newFabrics makes the devices of the fabrics that the settings name, in the order of preference.
func newFabrics(log *slog.Logger, wire *wireup.Job) ([]engine.Fabric, error) {
	switch f := setting.Fabric.String(); f {
	case "auto", "tcp":
		d, err := newTCP(log, wire)
		if err != nil {
			return nil, err
		}
		return []engine.Fabric{{Device: d}}, nil
	default:
		return nil, fmt.Errorf("%s=%q: no such fabric; there is tcp, and auto, which chooses", setting.Fabric.Name, f)
	}
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
