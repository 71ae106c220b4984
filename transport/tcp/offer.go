package tcp

import (
	"net"
	"net/netip"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/fabric"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// offer returns this end's parameters for the handshake of a queue pair.
func (e *endpoint) offer(conf transport.QPConfig, h *setup.Handshake) message.Parameters {
	o := &e.dev.opts
	p := message.Parameters{Reads: conf.Reads, Lanes: 1, Recv: conf.RecvWR,
		Checksum: wished(o.Checksum, h.LocalAddr(), h.RemoteAddr())}
	if o.reconnects() && !h.Adopted() {
		p.Listens = e.listens(h)
		p.Reconnects = len(p.Listens) > 0
	}
	if p.Reconnects {
		p.Lanes = max(1, o.Lanes)
	}
	return p
}

// listens returns the addresses to which the peer can connect lanes: those of the device's interfaces, or the
// one that it listens on.
func (e *endpoint) listens(h *setup.Handshake) (list []netip.AddrPort) {
	at, err := netip.ParseAddrPort(e.listeners[0].Addr().String())
	if err != nil {
		return nil
	}
	for _, a := range e.dev.opts.Interfaces {
		list = append(list, netip.AddrPortFrom(a.Unmap(), at.Port()))
	}
	if len(list) > 0 {
		return list
	}
	if at.Addr().IsUnspecified() {
		if own, ok := h.LocalAddr().(*net.TCPAddr); ok {
			at = netip.AddrPortFrom(own.AddrPort().Addr(), at.Port())
		}
	}
	return []netip.AddrPort{netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())}
}

// Checksum says when a device requests a checksum in every frame. A connection has it if either side requests
// it.
type Checksum = fabric.Checksum

const (
	ChecksumAuto   = fabric.ChecksumAuto   // if the two ends are on different machines
	ChecksumAlways = fabric.ChecksumAlways //
	ChecksumNever  = fabric.ChecksumNever  // only if the peer requests it
)

// wished reports whether this side requests checksums on a connection between two addresses.
func wished(c Checksum, local, remote net.Addr) bool {
	return c == ChecksumAlways || c == ChecksumAuto && !setup.SameMachine(local, remote)
}
