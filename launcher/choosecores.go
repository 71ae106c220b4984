package launcher

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/internal/topology"
)

// A placement says which processors each rank and its completion handler may run on, and how many cores that
// gives a rank.
type placement struct {
	cpus         [][]int // by rank; nil when ranks are not bound
	handlers     [][]int // by rank: the processors of its completion handler; nil when ranks have none
	coresPerRank int     // 0: ranks share cores, and must not spin
	// why ranks are not bound by default; empty where they are, or where it goes without saying
	unbound string
	// each rank is bound to one core, or hardware thread, that no other rank of the job has
	ownCore bool
	locked  []int // the processors that the job wants for itself
	notes   []string
}

func (p *placement) note(text string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(text, args...))
}

func processors(cpus []int) string {
	return fmt.Sprintf("processor%s %s", plural(len(cpus)), topology.FormatCPUList(cpus))
}

// A placementRequest is what a placement is made from. Cores go by their index in the machine's list.
type placementRequest struct {
	machine *topology.Machine
	taken   map[int]bool // processors that other jobs of this user have for themselves
	avoid   map[int]bool // processors that jobs of other users say they have: others are taken first
	ranks   int
	each    int // cores that each rank is to have; 0 leaves it to the binding
	binding Binding
	cq      CQCores
}

// place decides where ranks and completion handlers run. It is a function of its arguments alone. The error
// is the user's.
func place(in placementRequest) (placement, error) {
	coreOf := make(map[int]int)
	for core, cpus := range in.machine.Cores {
		for _, cpu := range cpus {
			coreOf[cpu] = core
		}
	}
	if err := in.checkLists(coreOf); err != nil {
		return placement{}, err
	}
	var p placement
	in.noteShared(&p)

	served := make(map[int]bool) // cores that a completion handler has
	if in.cq.From == CQList {
		for _, cpu := range in.cq.CPUs {
			served[coreOf[cpu]] = true
		}
		for _, cpu := range in.cq.CPUs[:in.ranks] {
			p.handlers = append(p.handlers, []int{cpu})
		}
	}
	var rest, free []int // cores that ranks may have, and those of them that no other job has
	for core := range in.machine.Cores {
		if served[core] {
			continue
		}
		rest = append(rest, core)
		if !slices.ContainsFunc(in.machine.Cores[core], func(cpu int) bool { return in.taken[cpu] }) {
			free = append(free, core)
		}
	}
	if len(rest) == 0 && in.binding.To != BindList {
		return placement{}, requestErrorf("--cq-cores %s: no core is left for the ranks; the job may use "+
			"processors %s",
			topology.FormatCPUList(in.cq.CPUs), topology.FormatCPUList(in.machine.CPUs))
	}
	usable := in.usable(len(rest), len(p.handlers))
	bind := in.chooseBinding(&p, usable, rest, free)
	free = in.prefer(free)
	each := in.coresEach(bind, free)
	homes := in.homes(bind, each, rest, free, coreOf)
	if in.cq.From == CQAuto {
		var left int
		if p.handlers, left = in.handlersNear(homes, free); p.handlers == nil {
			in.cq.From = CQNone
			without, err := place(in)
			without.note("--cq-cores auto: %d rank%s would need as many more cores for completion "+
				"handlers, and %d can be had: "+
				"progress is made inside calls", in.ranks, plural(in.ranks), left)
			return without, err
		}
		for _, cpus := range p.handlers {
			served[coreOf[cpus[0]]] = true
		}
		usable = in.usable(len(rest)-in.ranks, in.ranks)
	}
	p.coresPerRank = usable / in.ranks
	if in.each > 0 {
		p.coresPerRank = min(p.coresPerRank, in.each)
	}
	in.bind(&p, bind, each, homes, served)
	p.locked = append(p.locked, slices.Concat(p.handlers...)...)
	slices.Sort(p.locked)
	p.locked = slices.Compact(p.locked)
	return p, nil
}

// checkLists refuses processors that the job cannot have, or not twice.
func (in *placementRequest) checkLists(coreOf map[int]int) error {
	if in.binding.To == BindList && len(in.binding.CPUs) == 0 {
		return requestErrorf("--bind-to: the list of processors is empty")
	}
	owner := make(map[int]string)
	for _, list := range []struct {
		option string
		cpus   []int
	}{{"--bind-to", in.binding.CPUs}, {"--cq-cores", in.cq.CPUs}} {
		for _, cpu := range list.cpus {
			if _, ok := coreOf[cpu]; !ok {
				return requestErrorf("%s: processor %d does not exist here, or the affinity mask or "+
					"control group forbids it; the job may use %s",
					list.option, cpu, topology.FormatCPUList(in.machine.CPUs))
			}
			switch owner[cpu] {
			case "":
				owner[cpu] = list.option
			case list.option:
				return requestErrorf("%s: processor %d is in the list twice", list.option, cpu)
			default:
				return requestErrorf("processor %d is in the lists of --bind-to and of --cq-cores: a "+
					"completion handler's processor is no rank's", cpu)
			}
		}
	}
	if in.cq.From == CQList && len(in.cq.CPUs) < in.ranks {
		return requestErrorf("--cq-cores: %d processor%s for the completion handlers of %d ranks, each "+
			"of which needs its own; "+
			"name %d, or write auto or none; the job may use %s", len(in.cq.CPUs), plural(len(in.cq.CPUs)),
			in.ranks, in.ranks,
			topology.FormatCPUList(in.machine.CPUs))
	}
	return nil
}

// noteShared tells of listed processors that another job has. The user's word counts all the same.
func (in *placementRequest) noteShared(p *placement) {
	var shared []int
	for _, cpu := range slices.Concat(in.binding.CPUs, in.cq.CPUs) {
		if in.taken[cpu] {
			shared = append(shared, cpu)
		}
	}
	if slices.Sort(shared); len(shared) > 0 {
		p.note("another weft job uses %s, too", processors(shared))
	}
}

// usable is how many cores can compute for the ranks at once: no more than there are, nor than the control
// group grants time for after the handlers have taken theirs; at least 1.
func (in *placementRequest) usable(cores, handlers int) int {
	if in.binding.To == BindList {
		cores = len(in.binding.CPUs)
	}
	if in.machine.Quota > 0 {
		cores = min(cores, int(in.machine.Quota)-handlers)
	}
	return max(cores, 1)
}

// chooseBinding is what the ranks are bound to: what was asked for, or nothing where that cannot be had.
func (in *placementRequest) chooseBinding(p *placement, usable int, rest, free []int) BindTo {
	need := in.ranks * max(in.each, 1)
	if in.each > 1 && need > usable && in.binding.To != BindList {
		p.note("--cores-per-rank %d: %d rank%s would need %d cores, and %d can be had", in.each, in.ranks,
			plural(in.ranks), need, usable)
	}
	switch in.binding.To {
	case BindDefault:
		// Where the control group grants less time than there are cores, others run on these cores too, and
		// it is the kernel that knows which of them is free.
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
			p.unbound = otherJobs(rest, free)
			return BindNone
		}
		return BindCore
	case BindCore:
		// More ranks than cores are bound to what is free; fewer are not pushed together on account of other
		// jobs.
		if len(free) == 0 || len(free) < need && need <= len(rest) {
			p.note("%s: the ranks are not bound", otherJobs(rest, free))
			return BindNone
		}
	}
	return in.binding.To
}

// evenly tells whether ranks that outnumber the cores can be spread with as many on each, where no other job
// is bound. Such ranks are bound, too: unbound, three of four often share one core for milliseconds
// (docs/adr/0069).
func (in *placementRequest) evenly(rest, free []int) bool {
	return in.each <= 1 && len(free) == len(rest) && in.ranks%len(rest) == 0
}

// prefer leaves out the cores that other users' jobs say they have, if the rest suffices, and else puts them
// last. A user can say so of any core: it must keep nobody else's ranks from being bound.
func (in *placementRequest) prefer(free []int) []int {
	var quiet, contested []int
	for _, core := range free {
		if slices.ContainsFunc(in.machine.Cores[core], func(cpu int) bool { return in.avoid[cpu] }) {
			contested = append(contested, core)
		} else {
			quiet = append(quiet, core)
		}
	}
	need := in.ranks * max(in.each, 1)
	if in.cq.From == CQAuto {
		need += in.ranks
	}
	if len(quiet) >= need {
		return quiet
	}
	return append(quiet, contested...)
}

// coresEach is how many cores a rank gets that is bound to cores: what was asked for, or by default its share
// of what is free.
func (in *placementRequest) coresEach(bind BindTo, free []int) int {
	share := 1
	if in.binding.To == BindDefault && bind == BindCore {
		if share = len(free) / in.ranks; in.cq.From == CQAuto {
			share--
		}
	}
	if in.each > 0 {
		share = in.each
	}
	return max(share, 1)
}

func otherJobs(rest, free []int) string {
	return fmt.Sprintf("other weft jobs use %d of %d cores", len(rest)-len(free), len(rest))
}

// homes gives each rank the cores to be on, or one to be near to.
func (in *placementRequest) homes(bind BindTo, each int, rest, free []int, coreOf map[int]int) [][]int {
	out := make([][]int, in.ranks)
	switch bind {
	case BindList:
		for rank, cpus := range in.deal(each) {
			for _, cpu := range cpus {
				out[rank] = append(out[rank], coreOf[cpu])
			}
		}
	case BindCore:
		stride := each
		if in.cq.From == CQAuto && len(free) >= (each+1)*in.ranks {
			stride++ // a core is left to the rank's handler, so that it is on the rank's node
		}
		if stride > 1 {
			free = in.sorted(free, in.machine.NodeOf)
		}
		for rank := range out {
			for i := range min(each, len(free)) {
				out[rank] = append(out[rank], free[(rank*stride+i)%len(free)])
			}
		}
	default:
		// As many ranks to each node or socket as its share of the cores.
		rest = in.sorted(rest, in.domain(bind))
		for rank := range out {
			out[rank] = []int{rest[rank*len(rest)/in.ranks]}
		}
	}
	return out
}

// deal gives each rank as many of the listed processors in turn, from the beginning again where they do not
// suffice.
func (in *placementRequest) deal(each int) [][]int {
	list := in.binding.CPUs
	out := make([][]int, in.ranks)
	for rank := range out {
		for i := range min(each, len(list)) {
			out[rank] = append(out[rank], list[(rank*each+i)%len(list)])
		}
	}
	return out
}

// domain is the number, by core, of what a rank is bound to.
func (in *placementRequest) domain(bind BindTo) []int {
	if bind == BindSocket {
		return in.machine.SocketOf
	}
	return in.machine.NodeOf
}

// sorted puts cores of the same domain together.
func (in *placementRequest) sorted(cores, domain []int) []int {
	return slices.SortedStableFunc(slices.Values(cores), func(a,
		b int) int {
		return cmp.Compare(domain[a], domain[b])
	})
}

// handlersNear finds a core for each rank's handler, on the rank's node if one is left there. Where they do
// not suffice there are none for anybody, and left is how many there would be.
func (in *placementRequest) handlersNear(homes [][]int, free []int) (handlers [][]int, left int) {
	used := slices.Concat(homes...)
	free = slices.DeleteFunc(slices.Clone(free), func(core int) bool { return slices.Contains(used, core) })
	left = len(free)
	if in.machine.Quota > 0 {
		left = min(left, max(int(in.machine.Quota)-in.ranks, 0))
	}
	if left < in.ranks {
		return nil, left
	}
	for _, home := range homes {
		i := slices.IndexFunc(free,
			func(core int) bool { return in.machine.NodeOf[core] == in.machine.NodeOf[home[0]] })
		i = max(i, 0)
		handlers = append(handlers, in.machine.Cores[free[i]])
		free = slices.Delete(free, i, i+1)
	}
	return handlers, left
}

// bind writes down what the ranks may run on. Nobody but a handler may run on its core.
func (in *placementRequest) bind(p *placement, bind BindTo, each int, homes [][]int, served map[int]bool) {
	switch bind {
	case BindCore:
		for _, cores := range homes {
			var cpus []int
			for _, core := range cores {
				cpus = append(cpus, in.machine.Cores[core]...)
			}
			slices.Sort(cpus)
			p.cpus = append(p.cpus, cpus)
		}
		// Several cores that a rank gets only because they are free are left to other jobs, too: the kernel
		// moves its threads. So are cores that ranks share by default.
		if in.binding.To == BindCore || in.each > 0 || each == 1 && p.coresPerRank > 0 {
			p.locked = slices.Concat(p.cpus...)
		}
		p.coresPerRank = min(p.coresPerRank, each)
		p.ownCore = each == 1 && distinct(slices.Concat(homes...))
	case BindList:
		p.cpus = in.deal(each)
		p.locked = slices.Concat(p.cpus...)
		p.coresPerRank = min(p.coresPerRank, each)
		p.ownCore = each == 1 && in.ranks <= len(in.binding.CPUs)
	case BindNUMA, BindSocket:
		domain := in.domain(bind)
		ranksOf := make(map[int]int)
		for _, home := range homes {
			ranksOf[domain[home[0]]]++
		}
		for _, home := range homes {
			cpus, cores := in.unservedCPUs(served,
				func(core int) bool { return domain[core] == domain[home[0]] })
			p.cpus = append(p.cpus, cpus)
			p.coresPerRank = min(p.coresPerRank, cores/ranksOf[domain[home[0]]])
		}
	default:
		if len(served) > 0 {
			cpus, _ := in.unservedCPUs(served, func(int) bool { return true })
			p.cpus = slices.Repeat([][]int{cpus}, in.ranks)
		}
	}
}

// unservedCPUs lists the processors of certain cores that no handler has, and counts the cores.
func (in *placementRequest) unservedCPUs(served map[int]bool, wanted func(core int) bool) (cpus []int,
	cores int) {
	for core, threads := range in.machine.Cores {
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

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
