package placement

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weft-mpi/weft/internal/topology"
)

// machineOf has cores with these processors, and nodes and sockets by core; none given stands for one of
// each.
func machineOf(cores [][]int, domains ...[]int) *topology.Machine {
	m := &topology.Machine{CPUs: slices.Sorted(slices.Values(slices.Concat(cores...))), Cores: cores}
	m.NodeOf, m.SocketOf = make([]int, len(cores)), make([]int, len(cores))
	if len(domains) > 0 {
		m.NodeOf = domains[0]
	}
	if len(domains) > 1 {
		m.SocketOf = domains[1]
	}
	return m
}

// plain has cores of one processor each.
func plain(n int) *topology.Machine {
	var cores [][]int
	for i := range n {
		cores = append(cores, []int{i})
	}
	return machineOf(cores)
}

func withQuota(m *topology.Machine, quota float64) *topology.Machine {
	m.Quota = quota
	return m
}

func TestPlace_C1_RanksAndHandlersGetCores(t *testing.T) {
	threads := machineOf([][]int{{0, 8}, {1, 9}, {2}, {3}})
	// Two nodes of four cores, whose numbers alternate as on many servers, and one socket.
	nodes := machineOf(plain(8).Cores, []int{0, 1, 0, 1, 0, 1, 0, 1})
	sockets := machineOf(plain(4).Cores, []int{0, 1, 2, 3}, []int{0, 0, 1, 1})
	lopsided := machineOf(plain(4).Cores, []int{0, 0, 0, 1})
	auto := CQCores{From: CQAuto}
	of := func(cpus ...int) CQCores { return CQCores{From: CQList, CPUs: cpus} }
	on := func(cpus ...int) Binding { return Binding{To: BindList, CPUs: cpus} }
	type lists = [][]int
	for _, c := range []struct {
		name     string
		machine  *topology.Machine
		ranks    int
		binding  Binding
		cq       CQCores
		taken    []int
		avoid    []int
		each     int
		cpus     lists
		handlers lists
		cores    int
		note     string // of the only one; empty when there is none
	}{
		{name: "a core each", machine: threads, ranks: 4, cpus: lists{{0, 8}, {1, 9}, {2}, {3}}, cores: 1},
		{name: "a share of the cores each", machine: threads, ranks: 2, cpus: lists{{0, 1, 8, 9}, {2, 3}},
			cores: 2},
		{name: "the share is on one node", machine: nodes, ranks: 2,
			cpus: lists{{0, 2, 4, 6}, {1, 3, 5, 7}}, cores: 4},
		{name: "a core each though there are more", machine: threads, ranks: 2,
			binding: Binding{To: BindCore},
			cpus:    lists{{0, 8}, {1, 9}}, cores: 1},
		{name: "cores per rank", machine: plain(8), ranks: 2, each: 3, cpus: lists{{0, 1, 2}, {3, 4, 5}},
			cores: 3},
		{name: "one core per rank", machine: plain(8), ranks: 2, each: 1, cpus: lists{{0}, {1}}, cores: 1},
		{name: "cores per rank, bound", machine: plain(4), ranks: 2, each: 2, binding: Binding{To: BindCore},
			cpus: lists{{0, 1}, {2, 3}}, cores: 2},
		{name: "cores per rank of a list", machine: plain(8), ranks: 2, each: 2, binding: on(7, 5, 3, 1),
			cpus: lists{{7, 5}, {3, 1}}, cores: 2},
		{name: "cores per rank of those that are free", machine: plain(4), ranks: 1, each: 2,
			taken: []int{1}, cpus: lists{{0, 2}}, cores: 2},
		{name: "more cores per rank than there are", machine: plain(4), ranks: 2, each: 3, cores: 2,
			note: "--cores-per-rank 3: 2 ranks would need 6 cores, and 4 can be had"},
		{name: "cores per rank and handlers", machine: plain(6), ranks: 2, each: 2, cq: auto,
			cpus: lists{{0, 1}, {3, 4}}, handlers: lists{{2}, {5}}, cores: 2},
		{name: "none", machine: threads, ranks: 2, binding: Binding{To: BindNone}, cores: 2},
		{name: "more ranks than cores", machine: threads, ranks: 6},
		{name: "as many ranks on each core", machine: threads, ranks: 8,
			cpus: lists{{0, 8}, {1, 9}, {2}, {3}, {0, 8}, {1, 9}, {2}, {3}}},
		{name: "as many ranks on each core, but another job is there", machine: threads, ranks: 8,
			taken: []int{2}},
		{name: "as many ranks on each core, but less time", machine: withQuota(plain(4), 2), ranks: 8},
		{name: "as many ranks on each core, but not bound", machine: threads, ranks: 8,
			binding: Binding{To: BindNone}},
		{name: "more ranks than cores, bound", machine: threads, ranks: 6, binding: Binding{To: BindCore},
			cpus: lists{{0, 8}, {1, 9}, {2}, {3}, {0, 8}, {1, 9}}},
		{name: "others run on these cores too", machine: withQuota(plain(4), 2), ranks: 2, cores: 1},
		{name: "less time than ranks", machine: withQuota(plain(4), 2), ranks: 3},
		{name: "node", machine: nodes, ranks: 4, binding: Binding{To: BindNUMA},
			cpus: lists{{0, 2, 4, 6}, {0, 2, 4, 6}, {1, 3, 5, 7}, {1, 3, 5, 7}}, cores: 2},
		{name: "node by its share of the cores", machine: lopsided, ranks: 4, binding: Binding{To: BindNUMA},
			cpus: lists{{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {3}}, cores: 1},
		{name: "socket", machine: sockets, ranks: 2, binding: Binding{To: BindSocket},
			cpus: lists{{0, 1}, {2, 3}}, cores: 2},
		{name: "list", machine: threads, ranks: 3, binding: on(9, 0, 3, 2), cpus: lists{{9}, {0}, {3}},
			cores: 1},
		{name: "short list", machine: threads, ranks: 3, binding: on(9, 0), cpus: lists{{9}, {0}, {9}}},

		{name: "handlers where cores are left", machine: threads, ranks: 2, cq: auto,
			cpus: lists{{0, 8}, {2}}, handlers: lists{{1, 9}, {3}}, cores: 1},
		{name: "handlers near their ranks", machine: nodes, ranks: 4, cq: auto,
			cpus: lists{{0}, {4}, {1}, {5}}, handlers: lists{{2}, {6}, {3}, {7}}, cores: 1},
		{name: "no cores left", machine: plain(4), ranks: 3, cq: auto, cpus: lists{{0}, {1}, {2}}, cores: 1,
			note: "--cq-cores auto: 3 ranks would need as many more cores for completion handlers, and 1 can be had: progress is made inside calls"},
		{name: "no time left", machine: withQuota(plain(8), 3), ranks: 2, cq: auto, cores: 1,
			note: "2 ranks would need as many more cores for " +
				"completion handlers, and 1 can be had"},
		{name: "time for all", machine: withQuota(plain(8), 4), ranks: 2, cq: auto,
			binding: Binding{To: BindCore},
			cpus:    lists{{0}, {2}}, handlers: lists{{1}, {3}}, cores: 1},
		{name: "a handler takes its share of the time", machine: withQuota(plain(8), 3), ranks: 1, cq: of(7),
			cpus: lists{{0, 1, 2, 3, 4, 5, 6}}, handlers: lists{{7}}, cores: 2},
		{name: "a handler near its rank takes its share of the time", machine: withQuota(plain(8), 4),
			ranks: 1, cq: auto,
			cpus: lists{{0, 2, 3, 4, 5, 6, 7}}, handlers: lists{{1}}, cores: 3},
		{name: "handlers of ranks that are not bound", machine: plain(4), ranks: 1,
			binding: Binding{To: BindNone}, cq: auto,
			cpus: lists{{0, 2, 3}}, handlers: lists{{1}}, cores: 3},
		{name: "handlers of ranks on nodes", machine: nodes, ranks: 2, binding: Binding{To: BindNUMA},
			cq:   auto,
			cpus: lists{{0, 4, 6}, {1, 5, 7}}, handlers: lists{{2}, {3}}, cores: 3},
		{name: "handlers of ranks on a list", machine: threads, ranks: 2, binding: on(0, 3), cq: auto,
			cpus: lists{{0}, {3}}, handlers: lists{{1, 9}, {2}}, cores: 1},

		{name: "handlers on a list", machine: plain(6), ranks: 2, cq: of(3, 0), cpus: lists{{1, 2}, {4, 5}},
			handlers: lists{{3}, {0}}, cores: 2},
		{name: "the core of a listed hardware thread is no rank's", machine: threads, ranks: 2, cq: of(8, 2),
			cpus: lists{{1, 9}, {3}}, handlers: lists{{8}, {2}}, cores: 1},
		{name: "unless the user says so", machine: threads, ranks: 2, binding: on(0, 1), cq: of(8, 9),
			cpus: lists{{0}, {1}}, handlers: lists{{8}, {9}}, cores: 1},
		{name: "the list leaves too few cores for the ranks", machine: plain(3), ranks: 2, cq: of(0, 1),
			cpus: lists{{2}, {2}}, handlers: lists{{0}, {1}}},
		{name: "of the list, one for each core of the rank", machine: plain(5), ranks: 1, cq: of(2, 3, 4),
			cpus: lists{{0, 1}}, handlers: lists{{2, 3}}, cores: 2},
		{name: "of spare cores, one for each core of a rank", machine: plain(8), ranks: 2, each: 2, cq: auto,
			cpus: lists{{0, 1}, {3, 4}}, handlers: lists{{2, 6}, {5, 7}}, cores: 2},
		{name: "of spare cores with two hardware threads, one after the other",
			machine: machineOf([][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}), ranks: 1, each: 2, cq: auto,
			cpus: lists{{0, 1, 2, 3}}, handlers: lists{{4, 6, 5, 7}}, cores: 2},
		{name: "no second handler for a rank with one core", machine: plain(8), ranks: 2, each: 1, cq: auto,
			cpus: lists{{0}, {2}}, handlers: lists{{1}, {3}}, cores: 1},
		{name: "no handler in place of a core", machine: plain(8), ranks: 2, cq: auto,
			binding: Binding{To: BindNone}, cpus: lists{{0, 3, 4, 5, 6, 7}, {0, 3, 4, 5, 6, 7}},
			handlers: lists{{1}, {2}}, cores: 3},

		{name: "another user's cores are taken last", machine: plain(4), ranks: 3, avoid: []int{0},
			cpus: lists{{1}, {2}, {3}}, cores: 1},
		{name: "another user cannot make ranks run unbound", machine: plain(4), ranks: 2,
			avoid: []int{0, 1, 2, 3}, each: 1,
			cpus: lists{{0}, {1}}, cores: 1},
		{name: "nor share cores", machine: plain(4), ranks: 2, avoid: []int{0, 1, 2}, each: 1,
			cpus: lists{{3}, {0}}, cores: 1},
		{name: "cores of another job are avoided", machine: threads, ranks: 2, taken: []int{8},
			cpus: lists{{1, 9}, {2}}, cores: 1},
		{name: "too many cores of other jobs", machine: threads, ranks: 3, taken: []int{8, 2}, cores: 1},
		{name: "too many cores of other jobs to bind", machine: threads, ranks: 3,
			binding: Binding{To: BindCore}, taken: []int{8, 2}, cores: 1,
			note: "other weft jobs use 2 of 4 cores: the ranks are not bound"},
		{name: "a listed processor of another job", machine: threads, ranks: 2, binding: on(0, 1),
			taken: []int{1}, cpus: lists{{0}, {1}}, cores: 1,
			note: "another weft job uses processor 1, too"},
		{name: "no cores left beside another job", machine: plain(4), ranks: 2, cq: auto, taken: []int{1},
			cpus: lists{{0}, {2}}, cores: 1,
			note: "and 1 can be had"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := func(cpus []int) map[int]bool {
				m := make(map[int]bool)
				for _, cpu := range cpus {
					m[cpu] = true
				}
				return m
			}
			p, err := place(Request{
				Machine: c.machine, taken: set(c.taken), avoid: set(c.avoid), Ranks: c.ranks, Each: c.each,
				Binding: c.binding, CQ: c.cq,
			})
			require.NoError(t, err)
			require.Equal(t, c.cpus, p.CPUs)
			require.Equal(t, c.handlers, p.Handlers)
			require.Equal(t, c.cores, p.CoresPerRank)
			if c.note == "" {
				require.Empty(t, p.Notes)
			} else {
				require.Len(t, p.Notes, 1)
				require.Contains(t, p.Notes[0], c.note)
			}
		})
	}
}

func TestPlace_C1_NonsenseIsRefused(t *testing.T) {
	for want, c := range map[string]struct {
		binding Binding
		cq      CQCores
	}{
		"--bind-to: processor 7 does not exist here, or the affinity mask or control group forbids it; the job may use 0-3":  {binding: Binding{BindList, []int{0, 7}}},
		"--cq-cores: processor 4 does not exist here, or the affinity mask or control group forbids it; the job may use 0-3": {cq: CQCores{CQList, []int{2, 4}}},
		"--bind-to: processor 1 is in the list twice": {binding: Binding{BindList, []int{1, 0, 1}}},
		"processor 1 is in the lists of --bind-to and of": {binding: Binding{BindList, []int{0, 1}},
			cq: CQCores{CQList, []int{1, 2}}},
		"--cq-cores: 1 processor for the completion":        {cq: CQCores{CQList, []int{2}}},
		"--cq-cores 0-3: no core is left for the ranks":     {cq: CQCores{CQList, []int{0, 1, 2, 3}}},
		"--bind-to: the list of processors is empty":        {binding: Binding{To: BindList}},
		"--cq-cores: 0 processors for the completion handl": {cq: CQCores{From: CQList}},
	} {
		_, err := place(Request{Machine: plain(4), Ranks: 2, Binding: c.binding, CQ: c.cq})
		require.Error(t, err, c.binding)
		require.Contains(t, err.Error(), want)
	}
}

func TestParseBindingAndCQCores(t *testing.T) {
	for text, want := range map[string]Binding{
		"none": {To: BindNone}, "core": {To: BindCore}, "numa": {To: BindNUMA}, "socket": {To: BindSocket},
		"3,0-1": {BindList, []int{3, 0, 1}},
	} {
		got, err := ParseBinding(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for text, want := range map[string]CQCores{"none": {}, "auto": {From: CQAuto}, "2": {CQList, []int{2}}} {
		got, err := ParseCQCores(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "foo", "cores", "-1", "1-", "3-1", "0,,1", "0x1", "99999999",
		"0-9999999999"} {
		_, err := ParseBinding(text)
		require.Error(t, err, text)
		_, err = ParseCQCores(text)
		require.Error(t, err, text)
	}
}

// Whatever the machine is and whatever is asked for: nothing outside of what the job may use; a core for a
// rank or a handler is nobody else's, where there are enough; every rank has a handler or none has; and what
// is not the user's own word is no other job's.
func TestPlace_C1_PropertyNothingIsGivenTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &topology.Machine{Quota: rapid.SampledFrom([]float64{0, 0, 0.5, 2, 5.5}).Draw(t, "quota")}
		cpu := 0
		for range rapid.IntRange(1, 12).Draw(t, "cores") {
			var core []int
			for range rapid.IntRange(1, 2).Draw(t, "threads") {
				core = append(core, cpu)
				cpu += rapid.IntRange(1, 3).Draw(t, "gap")
			}
			m.CPUs, m.Cores = append(m.CPUs, core...), append(m.Cores, core)
			m.NodeOf = append(m.NodeOf, rapid.IntRange(0, 2).Draw(t, "node"))
			m.SocketOf = append(m.SocketOf, rapid.IntRange(0, 1).Draw(t, "socket"))
		}
		some := func(name string) []int {
			shuffled := rapid.Permutation(m.CPUs).Draw(t, name)
			return shuffled[:rapid.IntRange(0, len(shuffled)).Draw(t, name+" count")]
		}
		in := Request{Machine: m, taken: make(map[int]bool),
			Ranks: rapid.IntRange(1, 14).Draw(t, "ranks")}
		for _, cpu := range some("taken") {
			in.taken[cpu] = true
		}
		in.Handlers = rapid.IntRange(0, 3).Draw(t, "handlers each")
		in.Each = rapid.IntRange(0, 4).Draw(t, "cores each")
		in.avoid = make(map[int]bool)
		for _, cpu := range some("avoid") {
			in.avoid[cpu] = true
		}
		in.Binding.To = rapid.SampledFrom([]BindTo{BindDefault, BindNone, BindCore, BindNUMA, BindSocket,
			BindList}).Draw(t, "binding")
		if in.Binding.To == BindList {
			in.Binding.CPUs = some("bind list")
		}
		in.CQ.From = rapid.SampledFrom([]CQFrom{CQNone, CQAuto, CQList}).Draw(t, "handlers from")
		if in.CQ.From == CQList {
			in.CQ.CPUs = some("handler list")
		}
		p, err := place(in)
		if err != nil {
			require.True(t, in.Binding.To == BindList || in.CQ.From == CQList,
				"only lists can be nonsense: %v", err)
			return
		}
		again, err := place(in)
		require.NoError(t, err)
		require.Equal(t, p, again)

		handled := make(map[int]bool)
		if p.Handlers != nil {
			require.Len(t, p.Handlers, in.Ranks)
			for _, cpus := range p.Handlers {
				require.NotEmpty(t, cpus)
				require.Subset(t, m.CPUs, cpus)
				for _, cpu := range cpus {
					require.False(t, handled[cpu], "processor %d serves two handlers", cpu)
					handled[cpu] = true
				}
			}
		}
		require.Equal(t, in.CQ.From == CQNone, p.Handlers == nil && in.CQ.From != CQAuto)
		if p.CPUs == nil {
			require.False(t, p.OwnCore)
			require.Nil(t, p.Handlers, "ranks must be kept off their handlers' cores")
			return
		}
		require.Len(t, p.CPUs, in.Ranks)
		has := make(map[int]int)
		for rank, cpus := range p.CPUs {
			require.NotEmpty(t, cpus)
			require.Subset(t, m.CPUs, cpus)
			for _, cpu := range cpus {
				require.False(t, handled[cpu], "rank %d has processor %d of a handler", rank, cpu)
				if other, twice := has[cpu]; twice {
					require.False(t, p.OwnCore, "ranks %d and %d have processor %d", other, rank, cpu)
				}
				has[cpu] = rank
			}
		}
		require.LessOrEqual(t, p.CoresPerRank*in.Ranks, max(len(m.Cores), len(in.Binding.CPUs)))
		require.Subset(t, append(slices.Concat(p.CPUs...), slices.Concat(p.Handlers...)...), p.locked)
		for _, cpu := range p.locked {
			listed := slices.Contains(in.Binding.CPUs, cpu) || slices.Contains(in.CQ.CPUs, cpu)
			require.True(t, listed || !in.taken[cpu], "processor %d is another job's", cpu)
		}
	})
}

// TestPlace_SharedCoresAreNotLocked: ranks that share cores by default keep no other job from being bound.
func TestPlace_SharedCoresAreNotLocked(t *testing.T) {
	p, err := place(Request{Machine: plain(2), Ranks: 4})
	require.NoError(t, err)
	require.Equal(t, [][]int{{0}, {1}, {0}, {1}}, p.CPUs)
	require.Empty(t, p.locked)
	require.False(t, p.OwnCore)
	p, err = place(Request{Machine: plain(2), Ranks: 4, Binding: Binding{To: BindCore}})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, p.locked)
}
