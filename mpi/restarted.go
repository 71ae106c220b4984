package mpi

import (
	"math"

	"github.com/weft-mpi/weft/internal/setting"
)

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
