package engine

import (
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/layout"
	"github.com/weft-mpi/weft/mpi/internal/rma"
)

// Errors of collectives whose calls differ between the ranks.
var (
	ErrCount      = errors.New("invalid count")
	ErrCollective = errors.New("the ranks called different collectives")
)

// Operator combines two vectors of elements, given as their bytes: inout = inout op in. It may overwrite in.
type Operator struct {
	Apply       func(inout, in []byte)
	Commutative bool
	// if not nil, combines several consecutive vectors into dst, with a single rounding
	ApplyToAll  func(dst, vectors []byte)
	Associative bool     // to the last bit, which addition of floating-point numbers is not
	Code        rma.Code // names a predefined operator in messages
	// a predefined operator takes no lock and time in proportion to the bytes, so short vectors are combined
	// under the engine's lock
	Predefined bool
	Label      string // name of a predefined operator
	Func       any    // function of an operator of the program
	digest     atomic.Uint64
}

// combine stores in dst the combination of all vectors, in order.
func (o *Operator) combine(dst, vectors []byte) {
	if o.ApplyToAll != nil {
		o.ApplyToAll(dst, vectors)
		return
	}
	n := len(dst)
	for copy(dst, vectors); len(vectors) > n; vectors = vectors[n:] {
		o.Apply(dst, vectors[n:2*n:2*n])
	}
}

// Digest returns a hash of the operator's name.
func (o *Operator) Digest() uint64 {
	d := o.digest.Load()
	if d == 0 {
		h := fnv.New64a()
		h.Write([]byte(o.Name()))
		d = h.Sum64() | 1
		o.digest.Store(d)
	}
	return d
}

// Name returns the operator's name for messages: its label, or that of the program's function.
func (o *Operator) Name() string {
	if o.Func == nil {
		return o.Label
	}
	f := runtime.FuncForPC(reflect.ValueOf(o.Func).Pointer())
	if f == nil {
		return "an operator of the program"
	}
	return f.Name()[strings.LastIndexByte(f.Name(), '/')+1:]
}

// collectiveState is the state of a collective.
type collectiveState uint8

const (
	collectiveIdle collectiveState = iota // not begun, or over; left by Run and Start
	// the messages of a round are under way; left when all of them are complete
	collectiveMessages
	// local steps are due that must not run under the engine's lock; left by the goroutine that begins them
	collectiveStepsDue
	// a goroutine executes local steps without the lock; left by that goroutine
	collectiveWorking
	// its messages go through mailboxes, and passes look for them; left when all have arrived, or one cannot
	collectiveInMailboxes
)

// Collective is one collective operation of this rank: a schedule and its buffers. It may be started again
// after its request was collected. The exported fields are set before it starts, and belong to the engine
// until it is over.
//
// Each pass advances it: when the messages of a round are complete, the pass posts the next round.
type Collective struct {
	Schedule      coll.Schedule
	Call          coll.Call // for which the schedule was built
	Signature     uint32    // hash of the call's arguments
	Context       uint32
	Tag           int     // of all its messages: see CollectiveTag
	Ranks         []int32 // world ranks of the communicator's ranks; nil for the world
	Input, Output []byte
	Op            *Operator  // nil without a reduction
	Canceller     *Canceller // cancels it; nil for none
	// checked for messages of ranks that run the call through mailboxes; may be nil
	WatchedMailboxes *Mailboxes
	// For a call on memory that is not contiguous: the blocks to send and to receive, instead of Input and
	// Output; else nil. The offset of a span of the schedule is then an index into the blocks, counted from
	// the end: 0 is the last block.
	Outgoing, Incoming []Block

	state     collectiveState
	memory    [3][]byte // by coll.Buffer
	scratch   []uint64  // aligned for every element type
	round     int       // the current one
	step      int       // the next local step of the round
	runSteps  func()    // calls Collectives.runSteps; made once, as each is allocated
	messages  []*request
	pending   int        // incomplete messages of the round
	sent      bool       // the round's send is out already
	queued    bool       // in Collectives.runnable
	failing   bool       // its messages are being cancelled
	hasWaiter bool       // a goroutine waits for it, or is about to, and executes its local steps
	noted     bool       // its beginning is recorded
	pooled    bool       // returned to the pool when it is over
	err       error      // the first failure
	wrong     *coll.Step // if err says that a message had the wrong length, the step that received it
	request   *request   // nil while shortRounds executes it
	pinned    [2]*Memory

	// for a call through mailboxes
	mailboxes *Mailboxes
	flagTag   int         // see mailboxTag
	exchange  []coll.Step // the messages of its round
	due       uint64      // a bit for each message of the round that is not sent, or has not arrived

	over            bool        // set only with wakesConditions
	wakesConditions bool        // its end wakes the goroutines that wait for a condition
	next            *Collective // in the pool
}

// Block is the bytes that a layout selects from memory.
type Block struct {
	Layout *layout.Layout
	Memory unsafe.Pointer
}

func (b Block) cursor() layout.Cursor { return layout.Cursor{Layout: b.Layout, Memory: b.Memory} }

// emptyLayout is the layout of an empty block.
var emptyLayout layout.Layout

// blockOf returns the block of a span. The offset of an empty span has no meaning.
func blockOf(blocks []Block, s coll.Span) Block {
	if s.Len == 0 {
		return Block{Layout: &emptyLayout}
	}
	return blocks[len(blocks)-1-s.Off]
}

// inputLen is the length of the input.
func (c *Collective) inputLen() int {
	n := len(c.Input)
	for _, b := range c.Outgoing {
		n += b.Layout.Bytes()
	}
	return n
}

// span returns the memory of p.
func (c *Collective) span(p coll.Span) []byte { return c.memory[p.Buf][p.Off:][:p.Len:p.Len] }

func (c *Collective) worldRank(rank int) int {
	if c.Ranks == nil {
		return rank
	}
	return int(c.Ranks[rank])
}

// prepare sets up the buffers for the first round.
func (c *Collective) prepare() {
	if words := (c.Schedule.Scratch + 7) / 8; len(c.scratch) < words {
		c.scratch = make([]uint64, words)
	}
	c.memory[coll.Input], c.memory[coll.Output] = c.Input, c.Output
	if n := len(c.scratch); n > 0 {
		c.memory[coll.Scratch] = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(c.scratch))), 8*n)
	}
	c.round, c.step, c.err, c.sent, c.failing, c.noted, c.wrong = 0, 0, nil, false, false, false, nil
}

// carryOut executes a local step, which is one that is not a message.
func (c *Collective) carryOut(s *coll.Step) {
	if c.Outgoing != nil { // only blocks of this rank for itself are copied
		from, to := blockOf(c.Outgoing, s.Src).cursor(), blockOf(c.Incoming, s.Dst).cursor()
		buf := copyBuffers.Get().(*copyBuffer)
		layout.Copy(&to, &from, buf[:])
		copyBuffers.Put(buf)
		return
	}
	dst, src := c.span(s.Dst), c.span(s.Src)
	switch s.Kind {
	case coll.Copy:
		if c.takesLong(len(src)) {
			sys.CopyLong(dst, src)
		} else {
			copy(dst, src)
		}
	case coll.ReduceRight:
		c.Op.Apply(dst, src)
	case coll.ReduceLeft:
		c.Op.Apply(src, dst)
		copy(dst, src)
	case coll.Combine:
		c.Op.combine(dst, src)
	}
}

// copyBuffer is a buffer for copies between two layouts.
type copyBuffer [16 << 10]byte

var copyBuffers = sync.Pool{New: func() any { return new(copyBuffer) }}

// The tag of a collective consists of, from the highest bit: whether it is persistent, the number of the call
// on the communicator, its operation, and its signature. Messages of one call differ in the last two only if
// the ranks' calls differ.
const (
	signatureBits = 7
	operationBits = 5
	numberBits    = 18
	callBits      = signatureBits + operationBits
)

// OperationSetup is the operation, in tags, of calls that make a communicator, and of collectives on
// arbitrary Go values (AllreduceValue …).
const OperationSetup coll.Operation = 1<<operationBits - 1

// OperationMailboxes is the operation, in tags, of the set-up of mailboxes.
const OperationMailboxes = OperationSetup - 1

// CollectiveTag returns the tag of the messages of a collective.
func CollectiveTag(persistent bool, number uint32, o coll.Operation, signature uint32) int {
	tag := int(number&(1<<numberBits-1))<<callBits | int(o)<<signatureBits |
		int(signature&(1<<signatureBits-1))
	if persistent {
		tag |= 1 << (numberBits + callBits)
	}
	return tag
}

// CollectiveNumber returns the low bits of the number of a collective's call, which are in its tag. It
// returns false for a persistent collective: those are numbered separately.
func CollectiveNumber(tag int) (number uint32, bits int, ok bool) {
	return uint32(tag>>callBits) & (1<<numberBits - 1), numberBits, tag>>(numberBits+callBits)&1 == 0
}

func operationOf(tag int) coll.Operation {
	return coll.Operation(tag >> signatureBits & (1<<operationBits - 1))
}

// differs reports whether a tag belongs to the same call as the collective's, but to another operation or
// other arguments.
func (c *Collective) differs(tag int) bool { return tag != c.Tag && c.sameCall(tag) }

// sameCall reports whether a tag belongs to the same call as the collective's.
func (c *Collective) sameCall(tag int) bool { return tag>>callBits == c.Tag>>callBits }

// unknownLength stands for the length of a message in a mailbox, where only the tag is known.
const unknownLength = -1

// mismatch returns the error of a collective that finds a message of another operation, or of the same one
// with other arguments. sent is the message's length.
func (c *Collective) mismatch(source, tag, sent int) error {
	mine, theirs := operationOf(c.Tag), operationOf(tag)
	from := rankName(c.commRank(source), source)
	switch {
	case mine == theirs:
		return fmt.Errorf("%w: %s called %v with another length, root or element size than this rank%s",
			ErrCount, from, mine, c.lengthsText(sent, source, tag))
	case theirs == OperationSetup:
		return fmt.Errorf("%w: %s made a call on values, such as AllreduceValue, or a new communicator, "+
			"where this rank called %v; %s", ErrCollective, from, mine, sameOrder)
	}
	return fmt.Errorf("%w: %s called %v where this rank called %v; %s", ErrCollective, from, theirs, mine,
		sameOrder)
}

const sameOrder = "all ranks of a communicator must call its collectives in the same order; " +
	"WEFT_CHECK=1 names the lines"

// expects returns how many bytes the collective expects from a rank in the current round.
func (c *Collective) expects(source int) int {
	if c.Incoming != nil || c.Schedule.Pulls || c.round >= c.Schedule.Rounds() {
		return unknownLength
	}
	for _, s := range c.Schedule.Round(c.round) {
		if s.Kind == coll.Recv && c.worldRank(s.Peer) == source {
			return s.Dst.Len
		}
	}
	return unknownLength
}

// lengthsText describes what is known of the lengths of a message that does not match.
func (c *Collective) lengthsText(sent, source, tag int) string {
	if sent == unknownLength {
		if passed := c.passedBy(tag); passed != unknownLength {
			return fmt.Sprintf(": its length is %d bytes, and this rank's is %d", passed,
				c.Call.Count*c.Call.ElemSize)
		}
	}
	expected := c.expects(source)
	switch {
	case sent != unknownLength && expected != unknownLength:
		return fmt.Sprintf(": it sent %d bytes, and this rank expects %d", sent, expected)
	case sent != unknownLength:
		return fmt.Sprintf(": it sent %d bytes", sent)
	case expected != unknownLength:
		return fmt.Sprintf(": this rank expects %d bytes of it", expected)
	}
	return ""
}

// maxPassed bounds the counts that passedBy tries.
const maxPassed = 8 << 10

// passedBy returns the length with which another rank made the same call, derived from the tag of its message
// in a mailbox: the length that, with all other arguments equal, yields the tag's signature. It is unknown if
// no length does, if two do, or if another root does with this rank's length.
func (c *Collective) passedBy(tag int) int {
	const seen = 1<<mailboxSignatureBits - 1
	theirs := mailboxSignature(tag)
	if c.Call.Send != nil || c.Call.Recv != nil {
		return unknownLength // blocks of several lengths
	}
	call := c.Call
	for call.Root = range call.Size {
		if call.Signature()&seen == theirs {
			return unknownLength
		}
	}
	call = c.Call
	passed := unknownLength
	for call.Count = range maxPassed {
		if call.Signature()&seen != theirs {
			continue
		}
		if passed != unknownLength {
			return unknownLength
		}
		passed = call.Count * call.ElemSize
	}
	return passed
}

// rankName names a rank of a communicator, and its world rank if that differs.
func rankName(rank, world int) string {
	if rank == world {
		return fmt.Sprint("rank ", rank)
	}
	return fmt.Sprintf("rank %d (world rank %d)", rank, world)
}

// commRank returns the rank in the communicator of a world rank.
func (c *Collective) commRank(world int) int {
	for rank, w := range c.Ranks {
		if int(w) == world {
			return rank
		}
	}
	return world
}
