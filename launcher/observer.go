package launcher

import (
	"time"

	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// An observer is a part of the loop that works beside the supervisor: it gets every event except output and
// input, and is called after each, and when time has passed.
type observer interface {
	event(now time.Time, e agent.Event)
	tick(now time.Time)
	next() time.Time // when tick has something to do without an event; zero for never
}
