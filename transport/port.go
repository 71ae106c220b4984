package transport

import "fmt"

// Two ranks may have several connections: one through each of their ports, which are numbered from 0. Port p
// of a rank is connected only with port p of other ranks. A consumer that is several independent parts gives
// each of them a port; all others use port 0.
//
// Where connection management takes or passes a peer, that is a rank in the low bits and a port in the high
// ones. So a peer through port 0 is the rank itself.

const (
	rankBits = 24
	rankMask = 1<<rankBits - 1

	// MaxPorts is the largest number of ports of a rank.
	MaxPorts = 1 << (32 - rankBits)
	// MaxRanks is the largest number of ranks of a job.
	MaxRanks = 1 << rankBits
)

// PeerAt returns the peer that is a rank through a port.
func PeerAt(rank uint32, port int) uint32 { return rank | uint32(port)<<rankBits }

// RankOf returns the rank of a peer.
func RankOf(peer uint32) uint32 { return peer & rankMask }

// PortOf returns the port of a peer.
func PortOf(peer uint32) int { return int(peer >> rankBits) }

// Facing returns this rank as a peer sees it: through the same port.
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

// Meets reports whether a peer that has begun a connection with what it takes for this rank may have it.
func (id *Identity) Meets(initiator, responder uint32) bool {
	return responder == id.Facing(initiator) && id.CheckPeer(initiator) == nil
}
