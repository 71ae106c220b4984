// Package placement decides on which hosts the ranks of a job run, which processors they are bound to there,
// and which cores their completion handlers get.
//
// A completion handler, or handler, is a thread that serves the completion queue of one of a rank's endpoints
// outside of calls. A core that has a handler is served: no rank runs on it. The code calls hardware threads,
// which the system numbers, processors or CPUs; a core has one or more of them.
package placement

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/plural"
	"github.com/weft-mpi/weft/internal/topology"
)

// A Placement says which processors each rank and its completion handlers may run on, and how many cores that
// gives a rank.
type Placement struct {
	CPUs [][]int // by rank; nil when ranks are not bound
	// by rank: the processors of its completion handlers, which take one each from the beginning; nil when
	// ranks have none
	Handlers     [][]int
	CoresPerRank int // 0: ranks share cores, and must not spin
	// why ranks are not bound by default; empty if they are, or if it is obvious
	Unbound string
	// each rank is bound to one core, or hardware thread, that no other rank of the job has
	OwnCore bool
	locked  []int // the processors that the job locks
	Notes   []string
}

func (p *Placement) note(text string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(text, args...))
}

// Processors formats processors for the user.
func Processors(cpus []int) string {
	return fmt.Sprintf("processor%s %s", plural.S(len(cpus)), topology.FormatCPUList(cpus))
}

// A Request is the input for a Placement. Cores are indices into the machine's list.
type Request struct {
	Machine *topology.Machine
	taken   map[int]bool // processors that other jobs of this user have locked
	avoid   map[int]bool // processors that jobs of other users claim: others are taken first
	Ranks   int
	Each    int // cores of each rank; 0 leaves it to the binding
	Binding Binding
	CQ      CQCores
	// completion handlers that each rank may have at once, with CQAuto each on its own core if there are
	// enough; 0 for as many as the rank has cores, unless they leave it fewer
	Handlers int
}

// place decides where ranks and completion handlers run. It depends on its arguments alone. The error is for
// the user.
func place(in Request) (Placement, error) {
	if in.Handlers == 0 {
		in.Handlers = 1
		one, err := place(in)
		if err != nil || one.Handlers == nil {
			return one, err
		}
		in.Handlers = contextid.EndpointsFor(one.CoresPerRank)
		if more, err := place(in); err == nil && more.CoresPerRank == one.CoresPerRank {
			return more, nil
		}
		return one, nil
	}
	coreOf := make(map[int]int)
	for core, cpus := range in.Machine.Cores {
		for _, cpu := range cpus {
			coreOf[cpu] = core
		}
	}
	if err := in.checkLists(coreOf); err != nil {
		return Placement{}, err
	}
	var p Placement
	in.noteShared(&p)

	served := make(map[int]bool) // cores on which a completion handler runs
	if in.CQ.From == CQList {
		for _, cpu := range in.CQ.CPUs {
			served[coreOf[cpu]] = true
		}
		each := min(len(in.CQ.CPUs)/in.Ranks, in.Handlers)
		for list := range slices.Chunk(in.CQ.CPUs[:each*in.Ranks], each) {
			p.Handlers = append(p.Handlers, list)
		}
	}
	var rest, free []int // cores for ranks, and those of them that no other job has
	for core := range in.Machine.Cores {
		if served[core] {
			continue
		}
		rest = append(rest, core)
		if !slices.ContainsFunc(in.Machine.Cores[core], func(cpu int) bool { return in.taken[cpu] }) {
			free = append(free, core)
		}
	}
	if len(rest) == 0 && in.Binding.To != BindList {
		return Placement{}, fmt.Errorf("--cq-cores %s: no core is left for the ranks; the job may use "+
			"processors %s",
			topology.FormatCPUList(in.CQ.CPUs), topology.FormatCPUList(in.Machine.CPUs))
	}
	usable := in.usable(len(rest), len(slices.Concat(p.Handlers...)))
	bind := in.chooseBinding(&p, usable, rest, free)
	free = in.prefer(free)
	each := in.coresEach(bind, free)
	homes := in.homes(bind, each, rest, free, coreOf)
	if in.CQ.From == CQAuto {
		var left int
		if p.Handlers, left = in.handlersNear(homes, free); p.Handlers == nil {
			in.CQ.From = CQNone
			without, err := place(in)
			without.note("--cq-cores auto: %d rank%s would need as many more cores for completion "+
				"handlers, and %d can be had: "+
				"progress is made inside calls", in.Ranks, plural.S(in.Ranks), left)
			return without, err
		}
		for _, cpus := range p.Handlers {
			for _, cpu := range cpus {
				served[coreOf[cpu]] = true
			}
		}
		usable = in.usable(len(rest)-len(served), len(served))
	}
	p.CoresPerRank = usable / in.Ranks
	if in.Each > 0 {
		p.CoresPerRank = min(p.CoresPerRank, in.Each)
	}
	in.bind(&p, bind, each, homes, served)
	p.locked = append(p.locked, slices.Concat(p.Handlers...)...)
	slices.Sort(p.locked)
	p.locked = slices.Compact(p.locked)
	return p, nil
}

// checkLists refuses listed processors that do not exist, or that occur twice.
func (in *Request) checkLists(coreOf map[int]int) error {
	if in.Binding.To == BindList && len(in.Binding.CPUs) == 0 {
		return fmt.Errorf("--bind-to: the list of processors is empty")
	}
	owner := make(map[int]string)
	for _, list := range []struct {
		option string
		cpus   []int
	}{{"--bind-to", in.Binding.CPUs}, {"--cq-cores", in.CQ.CPUs}} {
		for _, cpu := range list.cpus {
			if _, ok := coreOf[cpu]; !ok {
				return fmt.Errorf("%s: processor %d does not exist here, or the affinity mask or "+
					"control group forbids it; the job may use %s",
					list.option, cpu, topology.FormatCPUList(in.Machine.CPUs))
			}
			switch owner[cpu] {
			case "":
				owner[cpu] = list.option
			case list.option:
				return fmt.Errorf("%s: processor %d is in the list twice", list.option, cpu)
			default:
				return fmt.Errorf("processor %d is in the lists of --bind-to and of --cq-cores: a "+
					"completion handler's processor is no rank's", cpu)
			}
		}
	}
	if in.CQ.From == CQList && len(in.CQ.CPUs) < in.Ranks {
		return fmt.Errorf("--cq-cores: %d processor%s for the completion handlers of %d ranks, each "+
			"of which needs its own; "+
			"name %d, or write auto or none; the job may use %s", len(in.CQ.CPUs), plural.S(len(in.CQ.CPUs)),
			in.Ranks, in.Ranks,
			topology.FormatCPUList(in.Machine.CPUs))
	}
	return nil
}

// noteShared reports listed processors that another job has. They are used nevertheless.
func (in *Request) noteShared(p *Placement) {
	var shared []int
	for _, cpu := range slices.Concat(in.Binding.CPUs, in.CQ.CPUs) {
		if in.taken[cpu] {
			shared = append(shared, cpu)
		}
	}
	if slices.Sort(shared); len(shared) > 0 {
		p.note("another weft job uses %s, too", Processors(shared))
	}
}

// usable returns how many cores can compute for the ranks at once: at most the cores that exist, and the time
// that the control group grants minus that of the handlers; at least 1.
func (in *Request) usable(cores, handlers int) int {
	if in.Binding.To == BindList {
		cores = len(in.Binding.CPUs)
	}
	if in.Machine.Quota > 0 {
		cores = min(cores, int(in.Machine.Quota)-handlers)
	}
	return max(cores, 1)
}

// chooseBinding returns the unit to which the ranks are bound: the requested one, or none if that is not
// possible.
func (in *Request) chooseBinding(p *Placement, usable int, rest, free []int) BindTo {
	need := in.Ranks * max(in.Each, 1)
	if in.Each > 1 && need > usable && in.Binding.To != BindList {
		p.note("--cores-per-rank %d: %d rank%s would need %d cores, and %d can be had", in.Each, in.Ranks,
			plural.S(in.Ranks), need, usable)
	}
	switch in.Binding.To {
	case BindDefault:
		// If the control group grants less time than there are cores, others run on these cores, too, and
		// only the kernel knows which are free.
		if usable < len(rest) {
			return BindNone
		}
		if need > usable {
			if in.evenly(rest, free) {
				return BindCore
			}
			return BindNone
		}
		if need > len(free) {
			p.Unbound = otherJobs(rest, free)
			return BindNone
		}
		return BindCore
	case BindCore:
		// More ranks than cores are bound to the free cores. Fewer ranks do not share cores because of other
		// jobs.
		if len(free) == 0 || len(free) < need && need <= len(rest) {
			p.note("%s: the ranks are not bound", otherJobs(rest, free))
			return BindNone
		}
	}
	return in.Binding.To
}

// evenly reports whether ranks that outnumber the cores can be spread with the same number on each, and no
// other job is bound. Such ranks are bound, too: unbound, three of four often share one core for milliseconds
// (docs/internals/adr/0069).
func (in *Request) evenly(rest, free []int) bool {
	return in.Each <= 1 && len(free) == len(rest) && in.Ranks%len(rest) == 0
}

// prefer drops the cores that other users' jobs claim, if the others suffice, and otherwise puts them last. A
// user can claim any core, so a claim must not prevent anybody else's ranks from being bound.
func (in *Request) prefer(free []int) []int {
	var quiet, contested []int
	for _, core := range free {
		if slices.ContainsFunc(in.Machine.Cores[core], func(cpu int) bool { return in.avoid[cpu] }) {
			contested = append(contested, core)
		} else {
			quiet = append(quiet, core)
		}
	}
	need := in.Ranks * max(in.Each, 1)
	if in.CQ.From == CQAuto {
		need += in.Ranks
	}
	if len(quiet) >= need {
		return quiet
	}
	return append(quiet, contested...)
}

// coresEach returns the number of cores of a rank that is bound to cores: the requested number, or by default
// its share of the free cores.
func (in *Request) coresEach(bind BindTo, free []int) int {
	share := 1
	if in.Binding.To == BindDefault && bind == BindCore {
		if share = len(free) / in.Ranks; in.CQ.From == CQAuto {
			share--
		}
	}
	if in.Each > 0 {
		share = in.Each
	}
	return max(share, 1)
}

func otherJobs(rest, free []int) string {
	return fmt.Sprintf("other weft jobs use %d of %d cores", len(rest)-len(free), len(rest))
}

// homes returns the cores of each rank, or one to be near to.
func (in *Request) homes(bind BindTo, each int, rest, free []int, coreOf map[int]int) [][]int {
	out := make([][]int, in.Ranks)
	switch bind {
	case BindList:
		for rank, cpus := range in.deal(each) {
			for _, cpu := range cpus {
				out[rank] = append(out[rank], coreOf[cpu])
			}
		}
	case BindCore:
		stride := each
		if in.CQ.From == CQAuto && len(free) >= (each+1)*in.Ranks {
			stride++ // leaves a core to the rank's handler, so that it is on the rank's NUMA node
		}
		if stride > 1 {
			free = in.sorted(free, in.Machine.NodeOf)
		}
		for rank := range out {
			for i := range min(each, len(free)) {
				out[rank] = append(out[rank], free[(rank*stride+i)%len(free)])
			}
		}
	default:
		// As many ranks to each NUMA node or socket as its share of the cores.
		rest = in.sorted(rest, in.domain(bind))
		for rank := range out {
			out[rank] = []int{rest[rank*len(rest)/in.Ranks]}
		}
	}
	return out
}

// deal gives each rank the same number of the listed processors in turn, from the beginning again if they do
// not suffice.
func (in *Request) deal(each int) [][]int {
	list := in.Binding.CPUs
	out := make([][]int, in.Ranks)
	for rank := range out {
		for i := range min(each, len(list)) {
			out[rank] = append(out[rank], list[(rank*each+i)%len(list)])
		}
	}
	return out
}

// domain returns for each core the number of its unit of binding.
func (in *Request) domain(bind BindTo) []int {
	if bind == BindSocket {
		return in.Machine.SocketOf
	}
	return in.Machine.NodeOf
}

// sorted groups cores by domain.
func (in *Request) sorted(cores, domain []int) []int {
	return slices.SortedStableFunc(slices.Values(cores), func(a,
		b int) int {
		return cmp.Compare(domain[a], domain[b])
	})
}

// handlersNear returns the processors of the ranks' handlers, on cores of the rank's NUMA node if possible:
// one core for each rank, then a second, and so on, up to the number of handlers. If there is not one core
// per rank it returns none, and left is how many cores were available.
func (in *Request) handlersNear(homes [][]int, free []int) (handlers [][]int, left int) {
	used := slices.Concat(homes...)
	free = slices.DeleteFunc(slices.Clone(free), func(core int) bool { return slices.Contains(used, core) })
	left = len(free)
	if in.Machine.Quota > 0 {
		left = min(left, max(int(in.Machine.Quota)-in.Ranks, 0))
	}
	if left < in.Ranks {
		return nil, left
	}
	cores := make([][]int, in.Ranks)
	for range min(left/in.Ranks, in.Handlers) {
		for rank, home := range homes {
			i := slices.IndexFunc(free,
				func(core int) bool { return in.Machine.NodeOf[core] == in.Machine.NodeOf[home[0]] })
			i = max(i, 0)
			cores[rank] = append(cores[rank], free[i])
			free = slices.Delete(free, i, i+1)
		}
	}
	for _, own := range cores {
		handlers = append(handlers, in.threadsInTurn(own))
	}
	return handlers, left
}

// threadsInTurn returns the processors of cores: the first of each core, then the second of each, and so on.
// So handlers, which take them in this order, share a core only where they outnumber the cores.
func (in *Request) threadsInTurn(cores []int) (cpus []int) {
	for thread, more := 0, true; more; thread++ {
		more = false
		for _, core := range cores {
			if threads := in.Machine.Cores[core]; thread < len(threads) {
				cpus, more = append(cpus, threads[thread]), true
			}
		}
	}
	return cpus
}

// bind sets the processors of the ranks. Only a handler may run on its core.
func (in *Request) bind(p *Placement, bind BindTo, each int, homes [][]int, served map[int]bool) {
	switch bind {
	case BindCore:
		for _, cores := range homes {
			var cpus []int
			for _, core := range cores {
				cpus = append(cpus, in.Machine.Cores[core]...)
			}
			slices.Sort(cpus)
			p.CPUs = append(p.CPUs, cpus)
		}
		// If a rank has several cores only because they are free, other jobs may use them, too, since the
		// kernel moves its threads. The same holds for cores that ranks share by default.
		if in.Binding.To == BindCore || in.Each > 0 || each == 1 && p.CoresPerRank > 0 {
			p.locked = slices.Concat(p.CPUs...)
		}
		p.CoresPerRank = min(p.CoresPerRank, each)
		p.OwnCore = each == 1 && distinct(slices.Concat(homes...))
	case BindList:
		p.CPUs = in.deal(each)
		p.locked = slices.Concat(p.CPUs...)
		p.CoresPerRank = min(p.CoresPerRank, each)
		p.OwnCore = each == 1 && in.Ranks <= len(in.Binding.CPUs)
	case BindNUMA, BindSocket:
		domain := in.domain(bind)
		ranksOf := make(map[int]int)
		for _, home := range homes {
			ranksOf[domain[home[0]]]++
		}
		for _, home := range homes {
			cpus, cores := in.unservedCPUs(served,
				func(core int) bool { return domain[core] == domain[home[0]] })
			p.CPUs = append(p.CPUs, cpus)
			p.CoresPerRank = min(p.CoresPerRank, cores/ranksOf[domain[home[0]]])
		}
	default:
		if len(served) > 0 {
			cpus, _ := in.unservedCPUs(served, func(int) bool { return true })
			p.CPUs = slices.Repeat([][]int{cpus}, in.Ranks)
		}
	}
}

// unservedCPUs returns the processors of wanted cores without a handler, and the number of these cores.
func (in *Request) unservedCPUs(served map[int]bool, wanted func(core int) bool) (cpus []int,
	cores int) {
	for core, threads := range in.Machine.Cores {
		if wanted(core) && !served[core] {
			cpus = append(cpus, threads...)
			cores++
		}
	}
	slices.Sort(cpus)
	return cpus, cores
}

func distinct(list []int) bool {
	seen := make(map[int]bool)
	for _, v := range list {
		seen[v] = true
	}
	return len(seen) == len(list)
}
