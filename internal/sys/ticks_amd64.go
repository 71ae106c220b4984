package sys

import (
	"os"
	"strings"
)

// Ticks reads the processor's time stamp counter. It does not wait for earlier instructions, so it costs
// about a third of a reading of the clock.
func Ticks() int64

// SteadyTicks reports whether Ticks counts at one speed, and the same on all cores: where the system takes it
// for its own clock.
func SteadyTicks() bool {
	source, _ := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	return strings.TrimSpace(string(source)) == "tsc"
}
