package mpi

import (
	"math"

	"github.com/weft-mpi/weft/internal/setting"
)

// Restarted returns how often the job has been started again, after it had lost a rank or a host: 0 in its
// first start. `weft run --restarts` counts; other launchers may, in WEFT_RESTARTED. It can be called at any
// time, before Init too.
func Restarted() int {
	n, err := setting.Environment().Of(setting.Restarted).Int(0, math.MaxInt32)
	if err != nil {
		return 0 // Init refuses it
	}
	return n
}
