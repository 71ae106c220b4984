package launcher

import (
	"cmp"

	"github.com/weft-mpi/weft/launcher/internal/remote"
)

// Agents form a tree: the launcher starts the first fan-out agents, and each agent the next ones, whose
// streams it relays. If one call of the starter starts all agents, there is no tree.

// defaultFanOut is how many agents the launcher, and each agent, starts by default.
const defaultFanOut = 64

// parent returns the index of the host whose agent starts the agent of another host; -1 is the launcher.
func (c *connector) parent(host int) int {
	fanOut := cmp.Or(c.spec.FanOut, defaultFanOut)
	return host/fanOut - 1
}

// A position is an agent's position in the tree.
type position struct {
	number int           // index of its host
	trunk  *remote.Trunk // if one call of the starter started all agents; else nil
	via    *node         // whose agent starts it; nil for the launcher
	slots  chan struct{} // semaphore: agents that the launcher starts at a time
}
