package main

import (
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
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/fabrics"
)

func newInfo() *cobra.Command {
	var settings, why bool
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Describe this machine, as weft sees it",
		Args:  noWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			if settings {
				printSettings(w)
				return w.Flush()
			}
			if why {
				if err := printAllocation(w); err != nil {
					return err
				}
				return w.Flush()
			}
			if err := printMachine(w); err != nil {
				return err
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&settings, "settings", false,
		"print the WEFT_* settings, with defaults and meanings, instead")
	cmd.Flags().BoolVar(&why, "why", false,
		"print what weft detects of a batch system instead: the hosts of the job, the variables that name "+
			"them, and what starts weft on other hosts")
	return cmd
}

// printAllocation tells which hosts the environment names.
func printAllocation(w io.Writer) error {
	found, err := allocation.Detect(allocation.Source{Getenv: os.Getenv, ReadFile: os.ReadFile})
	if err != nil {
		return err
	}
	if found == nil {
		fmt.Fprintln(w, "batch system\tnone: the environment has no allocation of Slurm, Grid Engine, "+
			"LSF or PBS")
		fmt.Fprintf(w, "starter\t%s, for hosts that --host or --hostfile names\n", launcher.DefaultStarter)
		return nil
	}
	fmt.Fprintf(w, "batch system\t%s, by %s\n", found.Engine, found.Why)
	for _, b := range batchSystems {
		if b.engine == found.Engine {
			fmt.Fprintf(w, "starter\t%s\n", b.starter)
		}
	}
	for _, h := range found.Hosts {
		fmt.Fprintf(w, "host\t%s with %d slots\n", h.Name, h.Slots)
	}
	return nil
}

func printSettings(w io.Writer) {
	fmt.Fprintln(w, "SETTING\tDEFAULT\tMEANING")
	for _, s := range setting.All {
		meaning := s.Meaning
		if s == setting.Fabric {
			meaning += ": " + fabrics.Help()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Default, meaning)
	}
}

func printMachine(w io.Writer) error {
	m, err := topology.Read()
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	fmt.Fprintf(w, "weft\t%s\n", version())
	fmt.Fprintf(w, "host\t%s\n", host)
	if release := sys.Release(); release != "" {
		fmt.Fprintf(w, "system\t%s\n", release)
	}
	fmt.Fprintf(w, "processor\t%s\n", orUnknown(cpuid.CPU.BrandName))
	fmt.Fprintf(w, "caches\t%s\n", caches())
	fmt.Fprintf(w, "processors\t%s (%d cores) in the affinity mask\n", topology.FormatCPUList(m.CPUs),
		len(m.Cores))
	if m.Quota > 0 {
		fmt.Fprintf(w, "quota\t%.2f processors, by the control group\n", m.Quota)
	}
	fmt.Fprintf(w, "usable cores\t%d\n", m.UsableCores())
	for _, n := range topology.Nodes() {
		fmt.Fprintf(w, "NUMA node %d\t%s\n", n.ID, topology.FormatCPUList(n.CPUs))
	}
	for _, l := range sys.Limits() {
		fmt.Fprintf(w, "limit\t%s %s\n", l.Name, l.Value)
	}
	for _, f := range fabrics.All {
		fmt.Fprintf(w, "fabric\t%s (%s): %s\n", f.Name, f.About, availability(f))
	}
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		addresses, _ := i.Addrs()
		var list []string
		for _, a := range addresses {
			list = append(list, a.String())
		}
		fmt.Fprintf(w, "interface\t%s mtu %d %s %s\n", i.Name, i.MTU, i.Flags, strings.Join(list, " "))
	}
	return nil
}

// availability tries a fabric, as a rank would that talks to ranks of this host.
func availability(f transport.Fabric) string {
	d, err := f.Open(transport.FabricConfig{
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
