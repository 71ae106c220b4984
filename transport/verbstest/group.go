package verbstest

import "strings"

// Group is a subject of the suite, named as in rdma-core's tests where these have it.
type Group struct {
	Name     string
	Prefixes []string // of the names of its checks, before the slash
	Gap      string   // why it has no checks, if that is intended
}

// Groups returns all subjects. A check belongs to the first one whose prefix it has.
func Groups() []Group {
	return []Group{
		{Name: "device", Prefixes: []string{"Device", "Limit"}},
		{Name: "PD", Prefixes: []string{"PD"}},
		{Name: "MR", Prefixes: []string{"MR"}},
		{Name: "MW", Gap: "weft has none: registration is cheap, and ends as a binding would"},
		{Name: "CQ, events, handlers", Prefixes: []string{"CQ"}},
		{Name: "QP", Prefixes: []string{"QP", "Error", "Flush", "RNR"}},
		{Name: "extended QP", Prefixes: []string{"Send", "Write", "WriteImm", "Read", "Inline",
			"Unsignalled", "More", "Order", "PollQP"}},
		{Name: "atomics", Prefixes: []string{"Atomic"}},
		{Name: "SRQ", Gap: "weft has none: channels find messages by polling their own memory, and what " +
			"else comes finds the Recvs of its queue pair"},
		{Name: "connections", Prefixes: []string{"Connect", "Stream", "Close", "Abort", "Release",
			"Teardown"}},
		{Name: "faults", Prefixes: []string{"Fault", "Tick"}},
		{Name: "random traffic", Prefixes: []string{"Random"}},
	}
}

// GroupOf returns the group of a check, or "" if it has none.
func GroupOf(check string) string {
	prefix, _, _ := strings.Cut(check, "/")
	for _, g := range Groups() {
		for _, p := range g.Prefixes {
			if p == prefix {
				return g.Name
			}
		}
	}
	return ""
}
