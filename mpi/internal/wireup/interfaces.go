package wireup

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-mpi/weft/internal/allocation"
	"github.com/weft-mpi/weft/internal/setting"
)

// netInterface is a network interface of this machine, with the addresses at which a peer can reach it.
type netInterface struct {
	name     string
	up       bool
	prefixes []netip.Prefix
}

// Interfaces returns the addresses of this machine at which peers reach it, at least one, in the order of the
// setting: the first address of each interface that it names, and of each interface in a network that it
// gives as CIDR. Without the setting, if ranks may be on other hosts, it is the local address on the route to
// them.
func (j *Job) Interfaces() ([]netip.Addr, error) {
	if !j.set.IsSet(setting.Interface) {
		_, elsewhere := j.Neighbors()
		if addr := j.way.address(elsewhere); addr.IsValid() {
			return []netip.Addr{addr}, nil
		}
	}
	return interfaces(j.set)
}

// knownHosts returns hosts of the job that other launchers name, possibly including this one: Hydra names the
// rank's host, PMI_PORT the host of the launcher or its proxy, and Slurm all hosts.
func knownHosts(getenv func(string) string) (hosts []string) {
	add := func(host string) {
		if host != "" {
			hosts = append(hosts, host)
		}
	}
	add(getenv("MPIR_CVAR_CH3_INTERFACE_HOSTNAME"))
	if host, _, err := net.SplitHostPort(getenv("PMI_PORT")); err == nil {
		add(host)
	}
	add(getenv("SLURM_LAUNCH_NODE_IPADDR"))
	if list, err := allocation.ParseNodeList(getenv("SLURM_STEP_NODELIST")); err == nil {
		for _, host := range list[:min(len(list), maxTried)] {
			add(host)
		}
	}
	return hosts
}

// maxTried is the maximum number of hosts of a list to look up: one that resolves is enough.
const maxTried = 4

func interfaces(set setting.Values) ([]netip.Addr, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("network interfaces: %w", err)
	}
	var known []netInterface
	for _, i := range all {
		n := netInterface{name: i.Name, up: i.Flags&net.FlagUp != 0}
		addrs, _ := i.Addrs() // none if the interface has vanished
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
				n.prefixes = append(n.prefixes, p)
			}
		}
		known = append(known, n)
	}
	list := "lo"
	if set.IsSet(setting.Interface) {
		list = set.Of(setting.Interface).String()
	}
	addrs, err := choose(list, known)
	if err != nil {
		return nil, fmt.Errorf("%s=%q: %w", setting.Interface.Name, list, err)
	}
	return addrs, nil
}

// choose returns the addresses that a list of interface names and networks selects, without duplicates.
func choose(list string, known []netInterface) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for want := range strings.SplitSeq(list, ",") {
		want = strings.TrimSpace(want)
		if want == "" {
			return nil, fmt.Errorf("an empty name; interfaces and networks are wanted, such as eth0 or " +
				"10.1.0.0/16, with ',' between them")
		}
		network, err := netip.ParsePrefix(want)
		asked := func(i *netInterface, _ netip.Prefix) bool { return i.name == want }
		if err == nil {
			asked = func(_ *netInterface, p netip.Prefix) bool { return network.Contains(p.Addr()) }
		}
		found := false
		for i := range known {
			at := slices.IndexFunc(known[i].prefixes, func(p netip.Prefix) bool {
				return asked(&known[i],
					p)
			})
			if at < 0 || !known[i].up {
				continue
			}
			found = true
			if addr := known[i].prefixes[at].Addr(); !slices.Contains(addrs, addr) {
				addrs = append(addrs, addr)
			}
		}
		if !found {
			return nil, fmt.Errorf("no interface or network %q is up here; there are: %s", want,
				describe(known))
		}
	}
	return addrs, nil
}

// describe lists interfaces, for an error about one that does not exist.
func describe(known []netInterface) string {
	var list []string
	for _, i := range known {
		text := i.name
		for _, p := range i.prefixes {
			text += " " + p.String()
		}
		switch {
		case !i.up:
			text += " (down)"
		case len(i.prefixes) == 0:
			text += " (no address)"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}
