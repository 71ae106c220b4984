// Package start makes the configuration of a rank's engine and of its observers from the settings. It reads
// all of them in one place, and opens the fabrics that they name.
package start

import (
	"fmt"
	"io"
	"log/slog"
	"math"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/observe"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
	"github.com/weft-mpi/weft/transport/fabric"
)

// Options are the settings of a rank, except its membership in the job.
type Options struct {
	Settings setting.Values

	Engine  engine.Config  // as far as settings determine it
	Choices coll.Selection // of algorithms
	Observe observe.Options
	Check   bool // checking mode
	Survive bool // a failed rank does not end the job

	fabric string        // a name, a list of names, or auto
	device fabric.Config // as far as settings determine it
}

// Read reads the settings, before the rank joins its job, so that an invalid one fails at once. Log messages
// go to out.
func Read(set setting.Values, out io.Writer) (*Options, error) {
	o := &Options{Settings: set}
	for _, read := range []func(setting.Values) error{
		func(set setting.Values) (err error) {
			o.Engine.Log, err = newLogger(set, out)
			return err
		},
		o.readTimeouts, o.readChannels, o.readCores, o.readChoices, o.readModes, o.readObservers,
		o.readFabric,
	} {
		if err := read(set); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func newLogger(set setting.Values, out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(set.Of(setting.Log).String())); err != nil {
		return nil, fmt.Errorf("%s=%q: %s", setting.Log.Name, set.Of(setting.Log), setting.Log.Meaning)
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level})), nil
}

func (o *Options) readTimeouts(set setting.Values) (err error) {
	if o.Engine.ConnectTimeout, err = set.Of(setting.ConnectTimeout).Duration(); err == nil {
		o.Engine.PeerTimeout, err = set.Of(setting.PeerTimeout).Duration()
	}
	return err
}

func (o *Options) readCores(set setting.Values) (err error) {
	if text := set.Of(setting.HandlerCores).String(); text != "" {
		if o.Engine.HandlerCores, err = topology.ParseCPUList(text); err != nil {
			return fmt.Errorf("%s=%q: %w", setting.HandlerCores.Name, text, err)
		}
	}
	o.Engine.Endpoints, err = set.Of(setting.Endpoints).IntOrAuto(1, engine.MaxEndpoints)
	return err
}

func (o *Options) readChoices(set setting.Values) (err error) {
	text := set.Of(setting.Collectives).String()
	if o.Choices, err = Selection(text); err != nil {
		return fmt.Errorf("%s=%q: %w", setting.Collectives.Name, text, err)
	}
	return nil
}

func (o *Options) readModes(set setting.Values) (err error) {
	if o.Check, err = set.Of(setting.Check).On(); err != nil {
		return err
	}
	if o.Survive, err = set.Of(setting.Survive).On(); err != nil {
		return err
	}
	_, err = set.Of(setting.Restarted).Int(0, math.MaxInt32)
	return err
}

func (o *Options) readObservers(set setting.Values) (err error) {
	w := &o.Observe
	w.Profile, w.Metrics = set.Of(setting.Profile), set.Of(setting.Metrics)
	w.MetricsToken = set.Of(setting.MetricsToken)
	if w.Statistics, err = set.Of(setting.Statistics).On(); err != nil {
		return err
	}
	if w.Report, err = set.Of(setting.Report).On(); err != nil {
		return err
	}
	if w.Trace, err = set.Of(setting.Trace).Bytes(0); err != nil {
		return err
	}
	w.StuckAfter, w.StuckAction, err = wireup.WhenStuck(set)
	return err
}
