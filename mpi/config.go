package mpi

import (
	"math"

	"github.com/weft-mpi/weft/internal/setting"
)

// Config changes how weft works in this process. Init and Run read the environment once and apply each Config
// in order. The zero Config changes nothing.
type Config struct {
	// Settings override the environment, by the names that `weft info --settings` lists, such as WEFT_FABRIC.
	// An empty string selects the default.
	Settings map[string]string

	// Defaults are Settings that apply only if neither the environment nor an earlier Config sets them.
	Defaults map[string]string
}

// values returns the settings of the rank: those of its environment, changed by options.
func (r *rank) values(options []Config) (setting.Values, error) {
	set := r.settings()
	for _, c := range options {
		for name, text := range c.Settings {
			if err := set.Set(name, text); err != nil {
				return set, err
			}
		}
		for name, text := range c.Defaults {
			if err := set.SetDefault(name, text); err != nil {
				return set, err
			}
		}
	}
	return set, nil
}

// Restarted returns how often the job has been restarted after it lost a rank or a host: 0 in its first
// start. `weft run --restarts` counts the restarts; other launchers may set WEFT_RESTARTED. Restarted can be
// called at any time, even before Init.
func Restarted() int {
	n, err := setting.Environment().Of(setting.Restarted).Int(0, math.MaxInt32)
	if err != nil {
		return 0 // Init refuses it
	}
	return n
}
