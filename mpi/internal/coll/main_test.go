package coll

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain has garbage collected at half the usual rate: simulated ranks make much of it, and keep little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(200)
	os.Exit(m.Run())
}
