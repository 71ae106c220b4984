package launcher

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// virtual are the interfaces that only lead to this host itself.
var virtual = []string{"lo", "docker", "virbr", "veth", "br-", "cni", "podman"}

// reachable finds the address at which the job's other hosts reach this one: that of the route to them, or
// else of the first interface that leads anywhere.
func reachable(peers []string) (string, error) {
	for _, peer := range peers {
		if _, after, is := strings.Cut(peer, "@"); is {
			peer = after
		}
		// Nothing is sent: the system only looks the route up.
		conn, err := net.Dial("udp", net.JoinHostPort(peer, "9"))
		if err != nil {
			continue
		}
		addr := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		conn.Close()
		if !addr.IsLoopback() {
			return netip.PrefixFrom(addr, addr.BitLen()).String(), nil
		}
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range interfaces {
		named := func(prefix string) bool { return strings.HasPrefix(i.Name, prefix) }
		if i.Flags&net.FlagUp == 0 || slices.ContainsFunc(virtual, named) {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && p.Addr().IsGlobalUnicast() {
				return netip.PrefixFrom(p.Addr(), p.Addr().BitLen()).String(), nil
			}
		}
	}
	return "", fmt.Errorf("no network interface leads to %s; --iface names one", strings.Join(peers, ", "))
}
