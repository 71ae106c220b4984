package launcher

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/topology"
)

// A placement says which processors each rank may run on, and how many cores that gives a rank.
type placement struct {
	cpus         [][]int // by rank; nil when ranks are not bound
	coresPerRank int     // 0: ranks share cores, and must not spin
	note         string  // what the user should know about it; may be empty
}

func place(m *topology.Machine, ranks int, binding Binding) placement {
	usable := m.UsableCores()
	p := placement{coresPerRank: usable / ranks}
	if ranks > usable {
		p.note = fmt.Sprintf("%d ranks share %d usable core%s: they wait for messages without spinning", ranks, usable, plural(usable))
	}
	// Where the control group grants less time than there are cores, others run on these cores too, and it is the kernel
	// that knows which of them is free.
	if binding == BindNone || binding == BindDefault && (ranks > usable || usable < len(m.Cores)) {
		return p
	}
	p.coresPerRank = min(p.coresPerRank, 1)
	for rank := range ranks {
		p.cpus = append(p.cpus, m.Cores[rank%len(m.Cores)])
	}
	return p
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
