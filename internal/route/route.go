// Package route finds the address at which the other hosts of a job reach this one.
package route

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// virtual has the name prefixes of interfaces that only lead to this host.
var virtual = []string{"lo", "docker", "virbr", "veth", "br-", "cni", "podman"}

// resolveWithin bounds the look-up of all names together.
const resolveWithin = 3 * time.Second

// Towards returns this host's address on the route to other hosts, given by name or address: the address of
// the first route that leaves this host, or else of the first interface that is up. A name of this host
// itself counts as its address, unless that is a loopback address.
func Towards(hosts []string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveWithin)
	defer cancel()
	for _, host := range hosts {
		// Nothing is sent: the system only looks the route up.
		conn, err := new(net.Dialer).DialContext(ctx, "udp", net.JoinHostPort(host, "9"))
		if err != nil {
			continue
		}
		addr := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		conn.Close()
		if !addr.IsLoopback() {
			return addr.WithZone(""), nil
		}
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}, err
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
				return p.Addr(), nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("no network interface that is up leads to %s; --iface names one",
		strings.Join(hosts, ", "))
}
