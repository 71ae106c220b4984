package mpi

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/inprocess"
)

// Special ranks and tags (MPI 4.1, sections 3.2.4 and 3.11).
const (
	AnySource = engine.AnySource // receive from any rank
	AnyTag    = engine.AnyTag    // receive any tag
	ProcNull  = engine.ProcNull  // no rank: sending to it and receiving from it do nothing
	Undefined = -32766           // the color of a rank that Split leaves out
)

// TagUB is the largest tag.
const TagUB = 1<<30 - 1

// Comm is a communicator: a group of ranks with its own message space (MPI 4.1, chapter 7). Messages of
// different communicators never mix.
type Comm struct {
	*commState
	canceller *engine.Canceller // ends with the context.Context of WithContext; nil without one
}

// commState is the state that all handles to a communicator share.
type commState struct {
	e     *engine.Engine
	label atomic.Pointer[string] // the name, for messages
	// the communicator's id, which is also the context id of its point-to-point messages: see
	// contextid.Claims
	context   uint32
	rank      int
	size      int
	members   *members // nil for the world's
	job       *job
	choices   *coll.Selection // of algorithms
	placement commPlacement
	coll      collState
	freed     atomic.Bool // Free has been called
	revoked   atomic.Bool // Revoke has been called, here or at another rank
	// calls must make all checks: it is freed or revoked, or its rank is in checking mode or has called
	// Finalize
	slowPath atomic.Bool
	checker  *checker // nil unless in checking mode
	// the window that owns the communicator; nil for most
	window atomic.Pointer[window]
	// reductions give the same bits on any number of ranks; set when it is made
	reproducible bool
	made         string // the call that made it, in checking mode

	mu         sync.Mutex
	groupCalls map[uint64]int // calls of CreateGroup so far, by a hash of group and tag
	turns      turns          // of agreements
	attributes []attribute    // in the order of Set

	partitionTags partitionTags // of this rank
}

// newComm makes a communicator of the job. members is nil for the ranks of the world.
func (j *job) newComm(name string, id uint32, rank int, m *members) *Comm {
	e := j.endpointOf(id)
	s := &commState{e: e, context: id, rank: rank, size: e.Size(), members: m, job: j,
		choices: &j.choices}
	var world []int32
	if m != nil {
		s.size, world = len(m.world), m.world
	}
	s.label.Store(&name)
	s.coll.mu.Init()
	if s.checker = j.checker; s.checker != nil {
		s.slowPath.Store(true)
		s.made = s.checker.callOf()
	}
	j.comms.add(s)
	if j.ended.Load() { // else finalize finds it among the others
		s.slowPath.Store(true)
	}
	if e.Recovery.OpenCommunicator(id, world) {
		j.comms.revoke(id)
	}
	j.log.Debug("communicator", "name", name, "id", contextid.Number(id), "commRank", rank, "size", s.size)
	return &Comm{commState: s}
}

// countGroupCall counts a call of CreateGroup with a group and a tag, and returns the number of earlier ones.
func (s *commState) countGroupCall(key uint64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groupCalls == nil {
		s.groupCalls = map[uint64]int{}
	}
	n := s.groupCalls[key]
	s.groupCalls[key]++
	return n
}

// Rank returns this process's rank in the communicator: 0 … Size-1.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.size }

// Name returns the communicator's name: the one that SetName set, or one that says how the communicator was
// made.
func (c *Comm) Name() string {
	if c == nil || c.commState == nil {
		return ""
	}
	return *c.label.Load()
}

// String returns the name.
func (c *Comm) String() string { return c.Name() }

// SetName names the communicator in errors and reports of this rank (MPI 4.1, 7.8). It does not tell other
// ranks.
func (c *Comm) SetName(name string) {
	if c != nil && c.commState != nil {
		c.label.Store(&name)
	}
}

// Abort ends the whole job, with every rank. The launcher exits with the low 8 bits of code. For a code of 0
// it exits with 1, so that an abort never looks like success. Abort does not return.
func (c *Comm) Abort(code int) {
	if code&0xff == 0 {
		code = 1
	}
	fmt.Fprintf(c.job.out, "weft: rank %d called Abort(%d)\n", c.rank, code)
	c.job.endAll(code & 0xff)
}

// check refuses a call on a communicator that cannot be used.
func (c *Comm) check() error {
	if c == nil {
		if process.world.Load() == nil && !inprocess.Here() {
			return ErrNotInitialized
		}
		return fmt.Errorf("%w: nil", ErrComm)
	}
	if c.commState == nil {
		return fmt.Errorf("%w: a Comm comes from Init, Run, Dup, Split and similar calls", ErrComm)
	}
	if c.job.ended.Load() {
		return ErrFinalized
	}
	if c.freed.Load() {
		return fmt.Errorf("%w: %s has been freed", ErrComm, c.Name())
	}
	if c.revoked.Load() {
		return ErrRevoked
	}
	return nil
}

// checkCall is check for calls that end with the context of their handle. Collectives check that only after
// they were counted.
func (c *Comm) checkCall() error {
	if err := c.check(); err != nil {
		return err
	}
	return c.canceller.Err()
}

// fastPathOK reports whether checkSend and checkRecv cannot fail: no wildcard, no context that might end, no
// checking mode.
func (c *Comm) fastPathOK(peer, tag int) bool {
	return c != nil && c.commState != nil && c.canceller == nil && !c.slowPath.Load() &&
		uint(peer) < uint(c.size) && uint(tag) <= TagUB
}

// checkSend refuses a message that cannot be sent to dst with tag.
func (c *Comm) checkSend(dst, tag int) error {
	if err := c.checkCall(); err != nil {
		return err
	}
	if dst == ProcNull {
		return nil
	}
	if uint(dst) >= uint(c.size) {
		return fmt.Errorf("%w: %d; %s", ErrRank, dst, c.rankRange())
	}
	if uint(tag) > TagUB {
		return fmt.Errorf("%w: %d; tags are 0 to %d", ErrTag, tag, TagUB)
	}
	return nil
}

// checkRecv is checkSend with the wildcards allowed.
func (c *Comm) checkRecv(src, tag int) error {
	if err := c.checkCall(); err != nil {
		return err
	}
	if src == ProcNull {
		return nil
	}
	if uint(src) >= uint(c.size) && src != AnySource {
		return fmt.Errorf("%w: %d; %s", ErrRank, src, c.rankRange())
	}
	if uint(tag) > TagUB && tag != AnyTag {
		return fmt.Errorf("%w: %d; tags are 0 to %d, or AnyTag", ErrTag, tag, TagUB)
	}
	return nil
}

// rankRange names the ranks of the communicator, for the error of a call that asks for another one.
func (c *Comm) rankRange() string {
	text := fmt.Sprintf("%s has ranks 0 to %d", c.Name(), c.size-1)
	if c.job.wire.Alone() {
		text += "; this process was started alone: weft run -n 2 PROGRAM starts two ranks"
	}
	return text
}

// LogValue represents a communicator in the program's own logs (log/slog) as a group of attributes: its name,
// this process's rank in it, its size, and the host:
//
//	slog.Info("assembled", "mpi", world)
//
// weft's own log entries have the rank in the world and the host.
func (c *Comm) LogValue() slog.Value {
	if c == nil || c.commState == nil {
		return slog.StringValue("no communicator")
	}
	return slog.GroupValue(slog.String("comm", c.Name()), slog.Int("rank", c.rank), slog.Int("size", c.size),
		slog.String("host", hostName()))
}

// hostName returns the host's own name, for messages.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
