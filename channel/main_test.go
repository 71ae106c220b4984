package channel

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain has garbage collected less often: simulated channels make much of it, and keep little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
