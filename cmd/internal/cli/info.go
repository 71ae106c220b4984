package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/klauspost/cpuid/v2"
	"github.com/spf13/cobra"

	"github.com/weft-mpi/weft/internal/allocation"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/transport/fabric"
	"github.com/weft-mpi/weft/transport/fabrics"
)

func newInfo() *cobra.Command {
	var settings, why, costs, measures, asJSON bool
	cmd := &cobra.Command{
		Use:     "info",
		Short:   "Describe this machine, as weft sees it",
		Example: "  weft info\n  weft info --settings\n  weft info --costs\n  weft info --json",
		Args:    noWords,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if measures {
				return measureAsRank(cmd.Context())
			}
			var facts interface{ print(w io.Writer) }
			switch {
			case settings && why || settings && costs || why && costs:
				return usageErrorf("--settings, --costs and --why: each prints something of its own; use one")
			case costs:
				facts, err = theCosts(cmd.Context())
			case settings:
				facts = theSettings()
			case why:
				facts, err = theAllocation()
			default:
				facts, err = thisMachine()
			}
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), facts)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			facts.print(w)
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&settings, "settings", false,
		"print the WEFT_* settings, with defaults and meanings, instead")
	cmd.Flags().BoolVar(&costs, "costs", false,
		"print what two ranks measure here of copies instead, in less than a second, and by which way "+
			"messages of which length therefore move over each fabric")
	cmd.Flags().BoolVar(&measures, measureFlag, false, "")
	hide(cmd.Flags(), measureFlag)
	cmd.Flags().BoolVar(&why, "why", false,
		"print what weft detects of a batch system instead: the hosts of the job, the variables that name "+
			"them, and what starts weft on other hosts")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return cmd
}

// writeJSON prints one value, for programs.
func writeJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// allocationFacts are the hosts that the environment names.
type allocationFacts struct {
	BatchSystem string     `json:"batch_system,omitempty"` // empty for none
	Why         string     `json:"why,omitempty"`          // the variables that say so
	Starter     string     `json:"starter"`
	Hosts       []hostFact `json:"hosts,omitempty"`
}

type hostFact struct {
	Name  string `json:"name"`
	Slots int    `json:"slots"`
}

func theAllocation() (*allocationFacts, error) {
	found, err := allocation.Detect(allocation.Source{Getenv: os.Getenv, ReadFile: os.ReadFile})
	if err != nil || found == nil {
		return &allocationFacts{Starter: launcher.DefaultStarter}, err
	}
	a := &allocationFacts{BatchSystem: found.Engine, Why: found.Why}
	for _, b := range batchSystems {
		if b.engine == found.Engine {
			a.Starter = b.starter
		}
	}
	for _, h := range found.Hosts {
		a.Hosts = append(a.Hosts, hostFact{h.Name, h.Slots})
	}
	return a, nil
}

func (a *allocationFacts) print(w io.Writer) {
	if a.BatchSystem == "" {
		fmt.Fprintln(w, "batch system\tnone: the environment has no allocation of Slurm, Grid Engine, "+
			"LSF or PBS")
		fmt.Fprintf(w, "starter\t%s, for hosts that --host or --hostfile names\n", a.Starter)
		return
	}
	fmt.Fprintf(w, "batch system\t%s, by %s\n", a.BatchSystem, a.Why)
	if a.Starter != "" {
		fmt.Fprintf(w, "starter\t%s\n", a.Starter)
	}
	for _, h := range a.Hosts {
		fmt.Fprintf(w, "host\t%s with %d slots\n", h.Name, h.Slots)
	}
}

// settingFacts are the settings.
type settingFacts []settingFact

type settingFact struct {
	Name    string `json:"name"`
	Default string `json:"default"`
	Meaning string `json:"meaning"`
}

func theSettings() (list settingFacts) {
	for _, s := range setting.All {
		meaning := s.Meaning
		if s == setting.Fabric {
			meaning += ": " + fabrics.Help()
		}
		list = append(list, settingFact{s.Name, fmt.Sprint(s.Default), meaning})
	}
	return list
}

func (list settingFacts) print(w io.Writer) {
	fmt.Fprintln(w, "SETTING\tDEFAULT\tMEANING")
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Default, s.Meaning)
	}
}

// machineFacts describe this machine. Lists of CPUs have the kernel's format.
type machineFacts struct {
	Weft        string          `json:"weft"`
	Host        string          `json:"host"`
	System      string          `json:"system,omitempty"`
	Processor   string          `json:"processor"`
	Caches      string          `json:"caches"`
	CPUs        string          `json:"cpus"`  // in the affinity mask
	Cores       int             `json:"cores"` // in it
	Quota       float64         `json:"quota,omitempty"`
	UsableCores int             `json:"usable_cores"`
	NUMANodes   []nodeFact      `json:"numa_nodes"`
	Limits      []limitFact     `json:"limits"`
	Fabrics     []fabricFact    `json:"fabrics"`
	Interfaces  []interfaceFact `json:"interfaces"`
}

type nodeFact struct {
	ID   int    `json:"id"`
	CPUs string `json:"cpus"`
}

type limitFact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type fabricFact struct {
	Name  string `json:"name"`
	About string `json:"about"`
	State string `json:"state"` // "available", or why not
}

type interfaceFact struct {
	Name      string   `json:"name"`
	MTU       int      `json:"mtu"`
	Flags     string   `json:"flags"`
	Addresses []string `json:"addresses"`
}

func thisMachine() (*machineFacts, error) {
	m, err := topology.Read()
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	f := &machineFacts{Weft: version(), Host: host, System: sys.Release(),
		Processor: orUnknown(cpuid.CPU.BrandName), Caches: caches(), CPUs: topology.FormatCPUList(m.CPUs),
		Cores: len(m.Cores), Quota: m.Quota, UsableCores: m.UsableCores()}
	for _, n := range topology.Nodes() {
		f.NUMANodes = append(f.NUMANodes, nodeFact{n.ID, topology.FormatCPUList(n.CPUs)})
	}
	for _, l := range sys.Limits() {
		f.Limits = append(f.Limits, limitFact{l.Name, fmt.Sprint(l.Value)})
	}
	for _, fabric := range fabrics.All {
		f.Fabrics = append(f.Fabrics, fabricFact{fabric.Name, fabric.About, availability(fabric)})
	}
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		fact := interfaceFact{i.Name, i.MTU, i.Flags.String(), nil}
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			fact.Addresses = append(fact.Addresses, a.String())
		}
		f.Interfaces = append(f.Interfaces, fact)
	}
	return f, nil
}

func (f *machineFacts) print(w io.Writer) {
	fmt.Fprintf(w, "weft\t%s\n", f.Weft)
	fmt.Fprintf(w, "host\t%s\n", f.Host)
	if f.System != "" {
		fmt.Fprintf(w, "system\t%s\n", f.System)
	}
	fmt.Fprintf(w, "processor\t%s\n", f.Processor)
	fmt.Fprintf(w, "caches\t%s\n", f.Caches)
	fmt.Fprintf(w, "processors\t%s (%d cores) in the affinity mask\n", f.CPUs, f.Cores)
	if f.Quota > 0 {
		fmt.Fprintf(w, "quota\t%.2f processors, by the control group\n", f.Quota)
	}
	fmt.Fprintf(w, "usable cores\t%d\n", f.UsableCores)
	for _, n := range f.NUMANodes {
		fmt.Fprintf(w, "NUMA node %d\t%s\n", n.ID, n.CPUs)
	}
	for _, l := range f.Limits {
		fmt.Fprintf(w, "limit\t%s %s\n", l.Name, l.Value)
	}
	for _, fabric := range f.Fabrics {
		fmt.Fprintf(w, "fabric\t%s (%s): %s\n", fabric.Name, fabric.About, fabric.State)
	}
	for _, i := range f.Interfaces {
		fmt.Fprintf(w, "interface\t%s mtu %d %s %s\n", i.Name, i.MTU, i.Flags, strings.Join(i.Addresses, " "))
	}
}

// availability tries a fabric, like a rank that connects with ranks of this host.
func availability(f fabric.Fabric) string {
	d, err := f.Open(fabric.Config{
		Log: slog.New(slog.DiscardHandler), PeerTimeout: time.Minute, Lanes: 1,
		Interfaces: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})},
	})
	if err == nil {
		err = d.Close()
	}
	if err != nil {
		return fmt.Sprintf("not available: %v", err)
	}
	return "available"
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func caches() string {
	c := cpuid.CPU.Cache
	var list []string
	for _, level := range []struct {
		name string
		size int
	}{{"L1d", c.L1D}, {"L1i", c.L1I}, {"L2", c.L2}, {"L3", c.L3}} {
		if level.size > 0 {
			list = append(list, fmt.Sprintf("%s %d KiB", level.name, level.size>>10))
		}
	}
	return orUnknown(strings.Join(list, ", "))
}
