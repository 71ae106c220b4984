package mpi

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
	"github.com/weft-mpi/weft/transport/fabric"
	"github.com/weft-mpi/weft/transport/fabrics"
)

// openFabrics opens the devices of the fabrics that the settings name, in the order of preference.
func openFabrics(j *job, o *options) ([]engine.Fabric, error) {
	wire, log := j.wire, j.log
	conf, err := fabricConfig(j, o)
	if err != nil {
		return nil, err
	}
	name := o.set.Of(setting.Fabric).String()
	if err := fabrics.Check(name); err != nil {
		return nil, fmt.Errorf("%s: %w", setting.Fabric.Name, err)
	}
	here, elsewhere := wire.Neighbors()
	var list []engine.Fabric
	for _, f := range fabrics.Choose(name, here, elsewhere) {
		d, err := f.Open(conf)
		if err != nil && f.Local && name == fabrics.Auto {
			log.Warn("a fabric for the ranks of this host is not available; they are reached as ranks of "+
				"other hosts are", "fabric", f.Name, "reason", err)
			if !elsewhere {
				return openElsewhere(conf)
			}
			continue
		}
		if err != nil {
			return nil, errors.Join(err, closeFabrics(list))
		}
		list = append(list, engine.Fabric{Device: d, EagerLimit: f.EagerMax, Piece: f.Piece})
	}
	return list, nil
}

// openElsewhere opens the fabric for ranks of other hosts, which reaches those of this one too.
func openElsewhere(conf fabric.Config) (list []engine.Fabric, err error) {
	for _, f := range fabrics.Choose(fabrics.Auto, false, true) {
		d, err := f.Open(conf)
		if err != nil {
			return nil, errors.Join(err, closeFabrics(list))
		}
		list = append(list, engine.Fabric{Device: d, EagerLimit: f.EagerMax, Piece: f.Piece})
	}
	return list, nil
}

func closeFabrics(list []engine.Fabric) (err error) {
	for _, f := range list {
		err = errors.Join(err, f.Device.Close())
	}
	return err
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

// fabricConfig reads the settings of fabrics. It reads those that no fabric uses too, so that an invalid one
// is always refused.
func fabricConfig(j *job, o *options) (c fabric.Config, err error) {
	set, wire := o.set, j.wire
	c.Log, c.PeerTimeout = j.log, o.engine.PeerTimeout
	c.Running = wire.Running
	c.Fatal = func(peer uint32, err error) {
		fmt.Fprintf(j.out, "weft: rank %d ends: rank %d: %v\n", wire.Identity.Rank, peer, err)
		if !o.survive {
			wire.Abort(1)
		}
		j.exit(1)
	}
	if c.Interfaces, err = wire.Interfaces(); err != nil {
		return c, err
	}
	if c.Lanes, c.Reconnect, err = wireup.Lanes(set); err != nil {
		return c, err
	}
	if c.LowPort, c.HighPort, err = wireup.Ports(set); err != nil {
		return c, err
	}
	if c.HugePages, err = set.Of(setting.HugePages).On(); err != nil {
		return c, err
	}
	if c.TLS, err = set.Of(setting.TLS).On(); err != nil {
		return c, err
	}
	if c.Checksum, err = checksum(set); err != nil {
		return c, err
	}
	for _, f := range fabrics.All {
		if c.PeerTimeout < f.MinPeerTimeout {
			return c, fmt.Errorf("%s=%s: must be at least %v", setting.PeerTimeout.Name,
				set.Of(setting.PeerTimeout), f.MinPeerTimeout)
		}
	}
	return c, nil
}

func checksum(set setting.Values) (fabric.Checksum, error) {
	switch c := set.Of(setting.Checksum).String(); c {
	case "auto":
		return fabric.ChecksumAuto, nil
	case "on":
		return fabric.ChecksumAlways, nil
	case "off":
		return fabric.ChecksumNever, nil
	default:
		return 0, fmt.Errorf("%s=%q: must be auto, on or off", setting.Checksum.Name, c)
	}
}
