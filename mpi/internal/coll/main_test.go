package coll

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
)

// whole has every size with every root and every layout of hosts.
var whole = flag.Bool("whole", false, "every combination, not a choice of them")

// TestMain has garbage collected at half the usual rate: simulated ranks make much of it, and keep little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(200)
	os.Exit(m.Run())
}
