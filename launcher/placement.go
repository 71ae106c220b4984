package launcher

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/internal/topology"
)

// A placement says which processors each rank and its completion handler may run on, and how many cores that gives a rank.
type placement struct {
	cpus         [][]int // by rank; nil when ranks are not bound
	handlers     [][]int // by rank: the processors of its completion handler; nil when ranks have none
	coresPerRank int     // 0: ranks share cores, and must not spin
	unbound      string  // why ranks are not bound by default; empty where they are, or where it goes without saying
	ownCore      bool    // each rank is bound to a core, or a hardware thread, that no other rank of the job has
	claims       []int   // the processors that the job wants for itself
	notes        []string
}

func (p *placement) note(text string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(text, args...))
}

// boundTo tells the user what a rank is bound to.
func (p *placement) boundTo(rank int) string {
	switch {
	case p.cpus != nil:
		return "bound to " + processors(p.cpus[rank])
	case p.unbound != "":
		return fmt.Sprintf("not bound (%s)", p.unbound)
	}
	return "not bound"
}

// handledOn tells the user where a rank's completion handler runs.
func (p *placement) handledOn(rank int) string {
	if p.handlers == nil {
		return "no completion handler"
	}
	return "completion handler on " + processors(p.handlers[rank])
}

func processors(cpus []int) string {
	return fmt.Sprintf("processor%s %s", plural(len(cpus)), topology.FormatCPUList(cpus))
}

// placing is what a placement is made from. Cores go by their index in the machine's list.
type placing struct {
	machine *topology.Machine
	taken   map[int]bool // processors that other jobs of weft have for themselves
	ranks   int
	binding Binding
	cq      CQCores
}

// place decides where ranks and completion handlers run. It is a function of its arguments alone. The error is the user's.
func place(in placing) (placement, error) {
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
		return placement{}, requestErrorf("--cq-cores %s: no core is left for the ranks; the job may use processors %s",
			topology.FormatCPUList(in.cq.CPUs), topology.FormatCPUList(in.machine.CPUs))
	}
	usable := in.usable(len(rest), len(p.handlers))
	bind := in.settle(&p, usable, rest, free)
	homes := in.homes(bind, rest, free, coreOf)
	if in.cq.From == CQAuto {
		var left int
		if p.handlers, left = in.nearby(homes, free); p.handlers == nil {
			in.cq.From = CQNone
			without, err := place(in)
			without.note("--cq-cores auto: %d rank%s would need as many more cores for completion handlers, and %d can be had: "+
				"progress is made inside calls", in.ranks, plural(in.ranks), left)
			return without, err
		}
		for _, cpus := range p.handlers {
			served[coreOf[cpus[0]]] = true
		}
		usable = in.usable(len(rest)-in.ranks, in.ranks)
	}
	if in.ranks > usable {
		p.note("%d ranks share %d usable core%s: they wait for messages without spinning", in.ranks, usable, plural(usable))
	}
	p.coresPerRank = usable / in.ranks
	in.bind(&p, bind, homes, served)
	p.claims = append(p.claims, slices.Concat(p.handlers...)...)
	slices.Sort(p.claims)
	p.claims = slices.Compact(p.claims)
	return p, nil
}

// checkLists refuses processors that the job cannot have, or not twice.
func (in *placing) checkLists(coreOf map[int]int) error {
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
				return requestErrorf("%s: processor %d does not exist here, or the affinity mask or control group forbids it; the job may use %s",
					list.option, cpu, topology.FormatCPUList(in.machine.CPUs))
			}
			switch owner[cpu] {
			case "":
				owner[cpu] = list.option
			case list.option:
				return requestErrorf("%s: processor %d is in the list twice", list.option, cpu)
			default:
				return requestErrorf("processor %d is in the lists of --bind-to and of --cq-cores: a completion handler's processor is no rank's", cpu)
			}
		}
	}
	if in.cq.From == CQList && len(in.cq.CPUs) < in.ranks {
		return requestErrorf("--cq-cores: %d processor%s for the completion handlers of %d ranks, each of which needs its own; "+
			"name %d, or write auto or none; the job may use %s", len(in.cq.CPUs), plural(len(in.cq.CPUs)), in.ranks, in.ranks,
			topology.FormatCPUList(in.machine.CPUs))
	}
	return nil
}

// noteShared tells of listed processors that another job has. The user's word counts all the same.
func (in *placing) noteShared(p *placement) {
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

// usable is how many cores can compute for the ranks at once: no more than there are, nor than the control group grants time for
// after the handlers have taken theirs; at least 1.
func (in *placing) usable(cores, handlers int) int {
	if in.binding.To == BindList {
		cores = len(in.binding.CPUs)
	}
	if in.machine.Quota > 0 {
		cores = min(cores, int(in.machine.Quota)-handlers)
	}
	return max(cores, 1)
}

// settle is what the ranks are bound to: what was asked for, or nothing where that cannot be had.
func (in *placing) settle(p *placement, usable int, rest, free []int) BindTo {
	switch in.binding.To {
	case BindDefault:
		// Where the control group grants less time than there are cores, others run on these cores too, and it is the kernel
		// that knows which of them is free.
		if in.ranks > usable || usable < len(rest) {
			return BindNone
		}
		if in.ranks > len(free) {
			p.unbound = otherJobs(rest, free)
			return BindNone
		}
		return BindCore
	case BindCore:
		// More ranks than cores are bound to what is free; fewer are not pushed together on account of other jobs.
		if len(free) == 0 || len(free) < in.ranks && in.ranks <= len(rest) {
			p.note("%s: the ranks are not bound", otherJobs(rest, free))
			return BindNone
		}
	}
	return in.binding.To
}

func otherJobs(rest, free []int) string {
	return fmt.Sprintf("other weft jobs use %d of %d cores", len(rest)-len(free), len(rest))
}

// homes gives each rank a core to be on, or near to.
func (in *placing) homes(bind BindTo, rest, free []int, coreOf map[int]int) []int {
	out := make([]int, in.ranks)
	switch bind {
	case BindList:
		for rank := range out {
			out[rank] = coreOf[in.binding.CPUs[rank%len(in.binding.CPUs)]]
		}
	case BindCore:
		stride := 1
		if in.cq.From == CQAuto && len(free) >= 2*in.ranks {
			// Every other core is left to a handler, so that each is on its rank's node.
			free, stride = in.sorted(free, in.machine.NodeOf), 2
		}
		for rank := range out {
			out[rank] = free[rank*stride%len(free)]
		}
	default:
		// As many ranks to each node or socket as its share of the cores.
		rest = in.sorted(rest, in.domain(bind))
		for rank := range out {
			out[rank] = rest[rank*len(rest)/in.ranks]
		}
	}
	return out
}

// domain is the number, by core, of what a rank is bound to.
func (in *placing) domain(bind BindTo) []int {
	if bind == BindSocket {
		return in.machine.SocketOf
	}
	return in.machine.NodeOf
}

// sorted puts cores of the same domain together.
func (in *placing) sorted(cores, domain []int) []int {
	return slices.SortedStableFunc(slices.Values(cores), func(a, b int) int { return cmp.Compare(domain[a], domain[b]) })
}

// nearby finds a core for each rank's handler, on the rank's node if one is left there. Where they do not suffice there are none for
// anybody, and left is how many there would be.
func (in *placing) nearby(homes, free []int) (handlers [][]int, left int) {
	free = slices.DeleteFunc(slices.Clone(free), func(core int) bool { return slices.Contains(homes, core) })
	left = len(free)
	if in.machine.Quota > 0 {
		left = min(left, max(int(in.machine.Quota)-in.ranks, 0))
	}
	if left < in.ranks {
		return nil, left
	}
	for _, home := range homes {
		i := slices.IndexFunc(free, func(core int) bool { return in.machine.NodeOf[core] == in.machine.NodeOf[home] })
		i = max(i, 0)
		handlers = append(handlers, in.machine.Cores[free[i]])
		free = slices.Delete(free, i, i+1)
	}
	return handlers, left
}

// bind writes down what the ranks may run on. Nobody but a handler may run on its core.
func (in *placing) bind(p *placement, bind BindTo, homes []int, served map[int]bool) {
	switch bind {
	case BindCore:
		for _, home := range homes {
			p.cpus = append(p.cpus, in.machine.Cores[home])
		}
		p.claims = slices.Concat(p.cpus...)
		p.coresPerRank = min(p.coresPerRank, 1)
		p.ownCore = distinct(homes)
	case BindList:
		for rank := range in.ranks {
			p.cpus = append(p.cpus, []int{in.binding.CPUs[rank%len(in.binding.CPUs)]})
		}
		p.claims = slices.Concat(p.cpus...)
		p.coresPerRank = min(p.coresPerRank, 1)
		p.ownCore = in.ranks <= len(in.binding.CPUs)
	case BindNUMA, BindSocket:
		domain := in.domain(bind)
		ranksOf := make(map[int]int)
		for _, home := range homes {
			ranksOf[domain[home]]++
		}
		for _, home := range homes {
			cpus, cores := in.open(served, func(core int) bool { return domain[core] == domain[home] })
			p.cpus = append(p.cpus, cpus)
			p.coresPerRank = min(p.coresPerRank, cores/ranksOf[domain[home]])
		}
	default:
		if len(served) > 0 {
			cpus, _ := in.open(served, func(int) bool { return true })
			p.cpus = slices.Repeat([][]int{cpus}, in.ranks)
		}
	}
}

// open lists the processors of certain cores that no handler has, and counts the cores.
func (in *placing) open(served map[int]bool, wanted func(core int) bool) (cpus []int, cores int) {
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
