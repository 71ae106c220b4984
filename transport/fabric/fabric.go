// Package fabric lets programs select a provider by name, and defines what users can configure. Fabric is the
// user's word for a provider.
package fabric

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// Fabric is a provider that can be selected by name.
type Fabric struct {
	Name  string // as in DeviceAttr.Provider
	About string // a short description for users

	// Local says that the fabric reaches only ranks of its own host. If the user selects nothing, weft uses
	// the first local fabric and the first other one, each where it reaches.
	Local bool

	MinPeerTimeout time.Duration // the smallest valid Config.PeerTimeout

	// bytes of a message above which rendezvous is faster; 0: the channel's largest eager message
	EagerMax int
	// the best size of one Read or Write of a large message, in bytes; 0: the protocol decides
	Piece int

	Open func(Config) (transport.Device, error)
}

// Config is the user's configuration of fabrics. A provider uses the fields that concern it.
type Config struct {
	Log         *slog.Logger
	PeerTimeout time.Duration // how long a peer may be silent

	// Running reports whether a peer is a process of this host that is known to run, or that waits only for a
	// processor. Such a peer is not given up for its silence while its connection is open. Running may return
	// false while it does not know yet: it is called well before the answer decides. It does not block.
	Running func(peer uint32) bool

	// Fatal is called, at most once for each peer and from its own goroutine, when a system call on a peer's
	// memory does not return although the peer has been declared failed. The thread in that call is released
	// only when this process ends.
	Fatal func(peer uint32, err error)

	// CopyCosts is what copies between processes of a host take; zero: the provider measures it.
	CopyCosts transport.CopyCosts

	// HugePages allows a provider to move memory that peers often reach onto huge pages.
	HugePages bool

	Interfaces        []netip.Addr // local addresses for peers to use; the first is the rank's own
	LowPort, HighPort int          // to listen on; 0: any
	Lanes             int          // connections for each peer
	Reconnect         bool         // a lost connection is re-established
	TLS               bool
	Checksum          Checksum
}

// Checksum says whether frames carry a checksum.
type Checksum uint8

const (
	ChecksumAuto   Checksum = iota // where the provider considers it worth its cost
	ChecksumAlways                 // always, with any peer
	ChecksumNever                  // only with peers that require it
)
