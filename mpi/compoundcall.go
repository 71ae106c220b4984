package mpi

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"unsafe"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/value"
)

// compoundCall is an internal collective call of several steps, each a small collective, at one rank. The
// steps share a tag that no other call uses, so a rank that abandons the call at any step is in step with the
// others at its next call.
type compoundCall struct {
	comm     *Comm
	context  uint32
	tag      int
	rank     int   // index among the ranks that make the call
	ranks    []int // ranks in the communicator that make the call; nil for all
	schedule coll.Schedule
	group    engine.GroupCall
	requests []engine.Request // of the current round
	endpoint int              // endpoint of the communicator that the call makes, or contextid.AnyEndpoint
	err      error            // why it cannot begin: in checking mode, the ranks' calls differ
}

// newCompoundCall begins a call that is collective over the communicator.
func (c *Comm) newCompoundCall() *compoundCall { return c.newComparedCall(noRoot, "") }

// noRoot stands for the root of a call that has none.
const noRoot = -1

// newValueCall is newCompoundCall for a call on values of a type, with a root or noRoot.
func (c *Comm) newValueCall(root int, t *value.Type) *compoundCall {
	x := c.newUncomparedCall()
	x.err = c.compareCompound(root, "", t.Element)
	return x
}

// newComparedCall is newCompoundCall for a call with arguments, described in words, that must be the same at
// all ranks.
func (c *Comm) newComparedCall(root int, arguments string) *compoundCall {
	x := c.newUncomparedCall()
	x.err = c.compareCompound(root, arguments, nil)
	return x
}

// newUncomparedCall is newCompoundCall without a comparison in checking mode.
func (c *Comm) newUncomparedCall() *compoundCall {
	return &compoundCall{comm: c, context: contextid.Collective.In(c.context), tag: c.nextTag(), rank: c.rank,
		endpoint: contextid.AnyEndpoint}
}

// newCompoundCallLater is newCompoundCall without blocking: compare, called on another goroutine, returns why
// the call cannot begin.
func (c *Comm) newCompoundCallLater() (x *compoundCall, compare func() error) {
	compare = c.compareCompoundLater(noRoot, "", nil)
	return c.newUncomparedCall(), compare
}

// newGroupCompoundCall begins a call that is collective over ranks of the communicator, in this order. Calls
// with the same ranks and tag are ordered; the tag of its messages distinguishes them from each other and
// from calls of other groups.
func (c *Comm) newGroupCompoundCall(ranks []int, rank, tag int) *compoundCall {
	hash := fnv.New64a()
	word := func(v int) { hash.Write(binary.LittleEndian.AppendUint64(nil, uint64(v))) }
	word(tag)
	for _, r := range ranks {
		word(r)
	}
	key := hash.Sum64()
	word(c.countGroupCall(key))
	return &compoundCall{
		comm: c, context: contextid.Group.In(c.context), tag: int(hash.Sum64() >> 34), rank: rank,
		ranks: ranks, endpoint: contextid.AnyEndpoint,
	}
}

func (x *compoundCall) size() int {
	if x.ranks == nil {
		return x.comm.size
	}
	return len(x.ranks)
}

// commRank returns the rank in the calling communicator of a participant.
func (x *compoundCall) commRank(rank int) int {
	if x.ranks == nil {
		return rank
	}
	return x.ranks[rank]
}

func (x *compoundCall) worldRank(rank int) int { return x.comm.worldRank(x.commRank(rank)) }

// worldRanks returns the world ranks of the participants; nil for all ranks of the communicator.
func (x *compoundCall) worldRanks() []int32 {
	if x.ranks == nil {
		return nil
	}
	list := make([]int32, len(x.ranks))
	for i := range list {
		list[i] = int32(x.worldRank(i))
	}
	return list
}

// bcast copies rank 0's words to every rank.
func (x *compoundCall) bcast(words []uint64) error {
	return x.run(coll.Call{Operation: coll.OpBcast, Count: len(words), ElemSize: 8}, nil, wordBytes(words))
}

// allreduceAnd combines the words of all ranks by the bitwise and.
func (x *compoundCall) allreduceAnd(words []uint64) error {
	b := wordBytes(words)
	return x.run(coll.Call{Operation: coll.OpAllreduce, Count: len(words), ElemSize: 8, Commutative: true},
		b, b)
}

// allgather concatenates the words of all ranks in all.
func (x *compoundCall) allgather(words, all []uint64) error {
	return x.run(coll.Call{Operation: coll.OpAllgather, Count: len(words), ElemSize: 8}, wordBytes(words),
		wordBytes(all))
}

// run executes one step. Its reductions are the bitwise and.
func (x *compoundCall) run(call coll.Call, in, out []byte) error {
	if x.err != nil {
		return x.err
	}
	if err := x.comm.canceller.Err(); err != nil {
		return err
	}
	e := x.comm.e
	x.group = engine.GroupCall{Context: x.context, Tag: x.tag, Ranks: x.worldRanks()}
	if err := e.Recovery.BeginGroupCall(&x.group); err != nil {
		return err
	}
	defer e.Recovery.EndGroupCall(&x.group)
	call.Rank, call.Size = x.rank, x.size()
	call.Build(&x.schedule)
	scratch := make([]uint64, (x.schedule.Scratch+7)/8)
	memory := [3][]byte{coll.Input: in, coll.Output: out, coll.Scratch: wordBytes(scratch)}
	at := func(p coll.Span) []byte { return memory[p.Buf][p.Off:][:p.Len:p.Len] }
	for i := range x.schedule.Rounds() {
		steps := x.schedule.Round(i)
		if err := x.exchange(steps, at); err != nil {
			return err
		}
		for _, step := range steps {
			switch step.Kind {
			case coll.Copy:
				copy(at(step.Dst), at(step.Src))
			case coll.ReduceLeft, coll.ReduceRight:
				dst, src := at(step.Dst), at(step.Src)
				for i := range dst {
					dst[i] &= src[i]
				}
			}
		}
	}
	return nil
}

// exchange sends and receives the messages of a round, and returns the first error. When it returns, only
// sends may still be under way.
func (x *compoundCall) exchange(steps []coll.Step, at func(coll.Span) []byte) error {
	e, canceller := x.comm.e, x.comm.canceller
	x.requests = x.requests[:0]
	var first error
	for _, step := range steps {
		var r engine.Request
		switch step.Kind {
		case coll.Recv:
			r, first = e.Recvs.Irecv(x.context, at(step.Dst), x.worldRank(step.Peer), x.tag, 1)
		case coll.Send:
			r, first = e.Sends.Isend(x.context, at(step.Src), x.worldRank(step.Peer), x.tag)
		default:
			continue
		}
		if first != nil {
			break
		}
		e.Cancels.Bind(r, canceller)
		x.requests = append(x.requests, r)
	}
	if first == nil {
		first = e.Recovery.GroupCallErr(&x.group)
	}
	for i, r := range x.requests {
		if first != nil && canceller.Err() == nil {
			e.Cancels.CancelAndFree(r) // its answer may never come
			continue
		}
		st, err := e.Requests.Wait(r)
		if step := steps[i]; err == nil && step.Kind == coll.Recv && st.Bytes != step.Dst.Len {
			err = fmt.Errorf("%w: rank %d sent %d bytes instead of %d: the ranks call different collectives",
				ErrCount, x.commRank(step.Peer), st.Bytes, step.Dst.Len)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func wordBytes(words []uint64) []byte {
	if len(words) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}
