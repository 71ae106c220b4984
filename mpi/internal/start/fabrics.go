package start

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/fabric"
	"github.com/weft-mpi/weft/transport/fabrics"
)

// readFabric reads the settings of fabrics. It reads those that no fabric uses too, so that an invalid one is
// always refused. The peer timeout must be known.
func (o *Options) readFabric(set setting.Values) (err error) {
	c := &o.device
	o.fabric, c.PeerTimeout = set.Of(setting.Fabric).String(), o.Engine.PeerTimeout
	if c.Lanes, c.Reconnect, err = lanes(set); err != nil {
		return err
	}
	if c.LowPort, c.HighPort, err = ports(set); err != nil {
		return err
	}
	if c.HugePages, err = set.Of(setting.HugePages).On(); err != nil {
		return err
	}
	if v := set.Of(setting.CopyCosts); v.String() != "" {
		costs, start, err := copycost.Parse(v.String())
		if err != nil {
			return fmt.Errorf("%s: %w", setting.CopyCosts.Name, err)
		}
		if start {
			o.Engine.StartCosts = costs
		} else {
			c.CopyCosts = transport.CopyCosts(costs)
		}
	}
	if c.TLS, err = set.Of(setting.TLS).On(); err != nil {
		return err
	}
	if c.Checksum, err = checksum(set); err != nil {
		return err
	}
	for _, f := range fabrics.All {
		if c.PeerTimeout < f.MinPeerTimeout {
			return fmt.Errorf("%s=%s: must be at least %v", setting.PeerTimeout.Name,
				set.Of(setting.PeerTimeout), f.MinPeerTimeout)
		}
	}
	if err := fabrics.Check(o.fabric); err != nil {
		return fmt.Errorf("%s: %w", setting.Fabric.Name, err)
	}
	return nil
}

// OpenFabrics opens the devices of the fabrics that the settings name, in the order of preference. A device
// calls fatal when the process must end because of a peer.
func (o *Options) OpenFabrics(wire *wireup.Job, fatal func(peer uint32, err error)) ([]engine.Fabric, error) {
	conf := o.device
	conf.Log, conf.Running, conf.Fatal = o.Engine.Log, wire.Running, fatal
	var err error
	if conf.Interfaces, err = wire.Interfaces(); err != nil {
		return nil, err
	}
	here, elsewhere := wire.Neighbors()
	var list []engine.Fabric
	for _, f := range fabrics.Choose(o.fabric, here, elsewhere) {
		d, err := f.Open(conf)
		if err != nil && f.Local && o.fabric == fabrics.Auto {
			conf.Log.Warn("a fabric for the ranks of this host is not available; they are reached as "+
				"ranks of other hosts are", "fabric", f.Name, "reason", err)
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

// openElsewhere opens the fabric for ranks of other hosts, which reaches those of this host too.
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

// Card returns the business card of a rank: its addresses for the peers.
func Card(h *engine.Hub, fabrics []engine.Fabric) wireup.Card {
	c := wireup.Card{}
	for _, f := range fabrics {
		name := f.Device.Query().Provider
		c[name] = h.Addr(name)
	}
	return c
}

// lanes is how many connections to each peer there are, and whether one that was lost is made again.
func lanes(set setting.Values) (n int, reconnect bool, err error) {
	if n, err = set.Of(setting.Lanes).Int(1, setting.MaxLanes); err == nil {
		reconnect, err = set.Of(setting.Reconnect).On()
	}
	return n, reconnect, err
}

// ports are the bounds of the ports to listen on; 0, 0 lets the system choose.
func ports(set setting.Values) (low, high int, err error) {
	s := set.Of(setting.Ports).String()
	if s == "0" {
		return 0, 0, nil
	}
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		b = a
	}
	low, err1 := strconv.Atoi(a)
	high, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || low < 1 || high > 65535 || low > high {
		return 0, 0, fmt.Errorf("%s=%q: not LOW-HIGH with ports from 1 to 65535, nor 0", setting.Ports.Name,
			s)
	}
	return low, high, nil
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
