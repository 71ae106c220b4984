package launcher

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/weft-mpi/weft/internal/plural"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/internal/placement"
)

// A display shows where the ranks of a job run.
type display struct {
	nodes    *nodes
	programs *programs
}

// picture shows where the job's ranks and their completion handlers run: every host with its cores.
func (d display) picture() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n", d.nodes.extent())
	for _, n := range d.nodes.all {
		if len(n.ranks) > 0 {
			d.drawNode(&text, n)
		}
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// mapOfHost says where the ranks of a host run, for programs.
type mapOfHost struct {
	Host  string      `json:"host"`
	Ranks []mapOfRank `json:"ranks"`
}

type mapOfRank struct {
	Rank    int      `json:"rank"`
	Command []string `json:"command"`
	CPUs    []int    `json:"cpus,omitempty"`    // absent if the rank is not bound
	Handler []int    `json:"cq_cpus,omitempty"` // of its completion handlers, for its endpoints in turn
	// of each rank the same
	Endpoints int `json:"endpoints"`
}

// writeMap writes as JSON where the job's ranks and their completion handlers run.
func (d display) writeMap(w io.Writer) error {
	hosts := []mapOfHost{}
	for _, n := range d.nodes.all {
		h := mapOfHost{Host: n.name}
		for i, id := range n.ranks {
			program := d.programs.of[id]
			r := mapOfRank{Rank: id, Command: d.programs.commandOn(n, program),
				Endpoints: n.plan.Endpoints}
			if n.plan.CPUs != nil {
				r.CPUs = n.plan.CPUs[i]
			}
			if n.plan.Handlers != nil {
				r.Handler = n.plan.Handlers[i]
			}
			h.Ranks = append(h.Ranks, r)
		}
		if h.Ranks != nil {
			hosts = append(hosts, h)
		}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Ranks int         `json:"ranks"`
		Hosts []mapOfHost `json:"hosts"`
	}{len(d.nodes.of), hosts})
}

// extent describes the number of ranks and hosts of the job.
func (h *nodes) extent() string {
	hosts := 0
	for _, n := range h.all {
		if len(n.ranks) > 0 {
			hosts++
		}
	}
	return plural.Count(len(h.of), "rank") + " on " + plural.Count(hosts, "host")
}

// drawNode shows one host.
func (d display) drawNode(text *strings.Builder, n *node) {
	fmt.Fprintf(text, "host %s: rank%s %s", n.name, plural.S(len(n.ranks)), topology.FormatCPUList(n.ranks))
	if n.plan.Interface != "" {
		fmt.Fprintf(text, ", reached at %s", n.plan.Interface)
	}
	text.WriteByte('\n')
	w := tabwriter.NewWriter(text, 0, 8, 2, ' ', 0)
	for _, row := range n.plan.coreRows(n.ranks) {
		fmt.Fprintf(w, "  core%s %s\t%s\t%s\n", plural.S(len(row.cores)), topology.FormatCPUList(row.cores),
			placement.Processors(row.cpus), row.runs)
	}
	w.Flush()
	if n.plan.CPUs == nil {
		fmt.Fprintf(text, "  ranks are %s\n", n.plan.boundTo(0))
	}
	switch {
	case n.plan.Endpoints < 2:
	case n.plan.Handlers == nil:
		fmt.Fprintf(text, "  each rank has %d endpoints\n", n.plan.Endpoints)
	default:
		for i, id := range n.ranks {
			fmt.Fprintf(text, "  rank %d: %s\n", id, n.plan.handledOn(i))
		}
	}
	for i := range d.programs.apps {
		if slices.ContainsFunc(n.ranks, func(id int) bool { return d.programs.of[id] == i }) {
			fmt.Fprintf(text, "  program %s\n", strings.Join(d.programs.commandOn(n, i), " "))
		}
	}
}

// A coreRow is a group of cores with the same use.
type coreRow struct {
	cores, cpus []int
	runs        string
}

// coreRows returns the host's cores in order; neighbors with the same use share a row.
func (p *plan) coreRows(ranks []int) (rows []coreRow) {
	for core, cpus := range p.Cores {
		runs := p.runsOn(cpus, ranks)
		if last := len(rows) - 1; last >= 0 && rows[last].runs == runs {
			rows[last].cores = append(rows[last].cores, core)
			rows[last].cpus = append(rows[last].cpus, cpus...)
			continue
		}
		rows = append(rows, coreRow{[]int{core}, slices.Clone(cpus), runs})
	}
	for _, row := range rows {
		slices.Sort(row.cpus)
	}
	return rows
}

// runsOn returns the ranks of the host, and their completion handlers, that run on a core.
func (p *plan) runsOn(core, ranks []int) string {
	there := func(lists [][]int) (list []int) {
		for i, cpus := range lists {
			if slices.ContainsFunc(cpus, func(cpu int) bool { return slices.Contains(core, cpu) }) {
				list = append(list, ranks[i])
			}
		}
		return list
	}
	var uses []string
	if list := there(p.CPUs); list != nil {
		uses = append(uses, fmt.Sprintf("rank%s %s", plural.S(len(list)), topology.FormatCPUList(list)))
	}
	if list := there(p.Handlers); list != nil {
		uses = append(uses, fmt.Sprintf("completion queue%s of rank%s %s", plural.S(len(list)),
			plural.S(len(list)), topology.FormatCPUList(list)))
	}
	if uses == nil {
		return "-"
	}
	return strings.Join(uses, ", ")
}
