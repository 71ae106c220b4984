package mpi

import (
	"github.com/weft-mpi/weft/internal/contextid"
)

// The ranks of a new communicator vote on its context id: rank 0, the leader, proposes one, and all must
// accept it. See contextid.Claims.

// agree returns the id of a new communicator: the same at every rank, or an error.
func (x *compoundCall) agree() (uint32, error) {
	for range maxBallots {
		id, ok, err := x.ballot()
		if err != nil || ok {
			return id, err
		}
	}
	return 0, contextid.ErrNoID // at all ranks
}

// maxBallots bounds the proposals. Few are refused, unless a rank accepts none.
const maxBallots = 1000

// ballot is one vote, on an id that the leader proposes.
func (x *compoundCall) ballot() (id uint32, ok bool, err error) {
	const (
		none = ^uint64(0) // instead of a proposal: there is no id
		lost = none - 1   // likewise: the leader does not have the endpoint
		// bits of a vote
		accepts = 1
		has     = 2 // this rank has the endpoint that the call names, if any
	)
	ids := x.comm.job.ids
	proposal, vote := []uint64{none}, []uint64{has}
	if x.endpoint != contextid.AnyEndpoint && !x.comm.job.hub.HasEndpoint(x.endpoint) {
		proposal[0], vote[0] = lost, 0
	}
	if x.rank == 0 && vote[0] == has {
		if id, ok = ids.Propose(x.endpoint); ok {
			proposal[0], vote[0] = uint64(id), has|accepts
		}
	}
	if err := x.bcast(proposal); err != nil {
		if ok {
			ids.Refuse(id) // the leader's vote is missing, so no rank has taken the id
		}
		return 0, false, err
	}
	switch proposal[0] {
	case none:
		return 0, false, contextid.ErrNoID
	case lost:
		return 0, false, noEndpoint(x.endpoint)
	}
	id = uint32(proposal[0])
	if x.rank != 0 && ids.Accept(id) {
		vote[0] |= accepts
	}
	claimed := vote[0]&accepts != 0
	if err := x.allreduceAnd(vote); err != nil {
		if claimed && isLoss(err) {
			// Others may have the communicator, and would wait there for this rank, whose program has no
			// communicator to revoke.
			_ = x.comm.job.endpointOf(id).Recovery.Revoke(id)
		}
		return 0, false, err
	}
	ok = vote[0]&accepts != 0
	if claimed && !ok {
		ids.Refuse(id)
	}
	if vote[0]&has == 0 {
		return 0, false, noEndpoint(x.endpoint)
	}
	return id, ok, nil
}
