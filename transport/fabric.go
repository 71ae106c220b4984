package transport

import (
	"log/slog"
	"net/netip"
	"time"
)

// Fabric is a provider as it is chosen by name.
type Fabric struct {
	Name  string // as in DeviceAttr.Provider
	About string // in a few words, for those who choose

	// Local says that the fabric reaches ranks of its own host only. Where nothing is chosen, the first local
	// fabric and the first other one are used, each where it reaches.
	Local bool

	MinPeerTimeout time.Duration // the least FabricConfig.PeerTimeout

	EagerMax int // bytes of a message above which rendezvous is faster; 0: what the largest slot carries
	// bytes of a large message that one Read or Write moves best; 0: what the protocol finds best
	Piece int

	Open func(FabricConfig) (Device, error)
}

// FabricConfig is what a user can say of fabrics. A provider takes what concerns it.
type FabricConfig struct {
	Log         *slog.Logger
	PeerTimeout time.Duration // how long a peer may be silent

	// Fatal is called, at most once for each peer and from a goroutine of its own, when a system call on a
	// peer's memory does not end although the peer was given up: the thread that waits in it, and what that
	// holds, come back with the end of this process alone.
	Fatal func(peer uint32, err error)

	Interfaces        []netip.Addr // local addresses to be reached at; the first is the rank's own
	LowPort, HighPort int          // to listen on; 0: any
	Lanes             int          // connections for each peer
	Reconnect         bool         // a lost connection is made anew
	TLS               bool
	Checksum          Checksum
}

// Checksum is whether frames carry a checksum.
type Checksum uint8

const (
	ChecksumAuto   Checksum = iota // where the provider finds it worth its price
	ChecksumAlways                 // in any case, with any peer
	ChecksumNever                  // only with peers that insist
)
