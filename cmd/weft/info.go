package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/klauspost/cpuid/v2"
	"github.com/spf13/cobra"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/topology"
)

func newInfo() *cobra.Command {
	var settings bool
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Tell what weft finds on this machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			if settings {
				printSettings(w)
				return w.Flush()
			}
			if err := printMachine(w); err != nil {
				return err
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&settings, "settings", false, "print the WEFT_* settings of the environment instead")
	return cmd
}

func printSettings(w io.Writer) {
	fmt.Fprintln(w, "SETTING\tDEFAULT\tMEANING")
	for _, s := range setting.All {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Default, s.Meaning)
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
	fmt.Fprintf(w, "processors\t%s (%d cores) in the affinity mask\n", topology.FormatCPUList(m.CPUs), len(m.Cores))
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
