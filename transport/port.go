package transport

import "fmt"

// Two ranks may have several connections: one through each of their ports, which are numbered from 0. Port p
// of a rank is connected only with port p of other ranks. A consumer with several independent parts gives
// each of them a port; all others use port 0.
//
// In connection management, a peer is a rank (low bits) and a port (high bits). A peer through port 0 is the
// rank itself.

const (
	rankBits = 24
	rankMask = 1<<rankBits - 1

	// MaxPorts is the largest number of ports of a rank.
	MaxPorts = 1 << (32 - rankBits)
	// MaxRanks is the largest number of ranks of a job.
	MaxRanks = 1 << rankBits
)

// PeerAt returns the peer with this rank and port.
func PeerAt(rank uint32, port int) uint32 { return rank | uint32(port)<<rankBits }

// RankOf returns the rank of a peer.
func RankOf(peer uint32) uint32 { return peer & rankMask }

// PortOf returns the port of a peer.
func PortOf(peer uint32) int { return int(peer >> rankBits) }

// Facing returns this rank as the peer names it: with the peer's port.
func (id *Identity) Facing(peer uint32) uint32 { return id.Rank | peer&^rankMask }

// CheckPeer refuses a peer with which this rank cannot be connected.
func (id *Identity) CheckPeer(peer uint32) error {
	if rank := RankOf(peer); rank == id.Rank || rank >= id.Size {
		return fmt.Errorf("%w: rank %d of %d connects to rank %d", ErrInvalid, id.Rank, id.Size, rank)
	}
	if port, ports := PortOf(peer), max(id.Ports, 1); port >= ports {
		return fmt.Errorf("%w: port %d of rank %d, which has %d", ErrInvalid, port, id.Rank, ports)
	}
	return nil
}

// Meets reports whether this rank may connect with initiator, which asked for responder.
func (id *Identity) Meets(initiator, responder uint32) bool {
	return responder == id.Facing(initiator) && id.CheckPeer(initiator) == nil
}
