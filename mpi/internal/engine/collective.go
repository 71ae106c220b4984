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

	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/layout"
	"github.com/weft-mpi/weft/mpi/internal/rma"
)

// Errors of collectives whose calls do not fit together at the ranks.
var (
	ErrCount      = errors.New("invalid count")
	ErrCollective = errors.New("the ranks called different collectives")
)

// Operator combines two vectors of elements, given as their bytes: inout = inout op in. It may overwrite in.
type Operator struct {
	Apply       func(inout, in []byte)
	Commutative bool
	// of several vectors, one after another, into one as long as dst, rounded once; nil if Apply is all
	ApplyToAll  func(dst, vectors []byte)
	Associative bool     // to the last bit, as is no addition of floating-point numbers
	Code        rma.Code // of a predefined operator, by which ranks tell each other of it
	// it takes no lock and no longer than the bytes need, so short vectors are combined under the engine's
	// lock
	Predefined bool
	Label      string // of a predefined one
	Func       any    // of one of the program's
	digest     atomic.Uint64
}

// combine leaves in dst what the vectors come to, one after another.
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

// Digest is equal for operators of equal names.
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

// Name names an operator in messages: a predefined one, or the function of the program.
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

// collectiveState is where a collective is.
type collectiveState uint8

const (
	collectiveIdle collectiveState = iota // not begun, or over; left by Run and Start
	// the messages of a round are under way; left when all of them are complete
	collectiveMessages
	// local steps are due that are not for the engine's lock; left by whoever takes them up
	collectiveStepsDue
	// a goroutine carries out local steps without the lock; left by that goroutine
	collectiveWorking
	// its messages go through mailboxes, and passes look for them; left when all have come, or one cannot
	collectiveInMailboxes
)

// Collective is one collective operation of this rank: a schedule, and what it works on. It may be begun
// again when its request has been collected. The exported fields are set before it is begun, and are the
// engine's until it is over.
//
// Under way it makes progress in every pass: whoever makes one posts the next round when the messages of a
// round are complete.
type Collective struct {
	Schedule      coll.Schedule
	Call          coll.Call // of which the schedule is
	Signature     uint32    // of the call
	Context       uint32
	Tag           int     // of all its messages: see CollectiveTag
	Ranks         []int32 // world ranks of the communicator's ranks; nil for the world
	Input, Output []byte
	Op            *Operator  // nil without a reduction
	Canceller     *Canceller // whose end gives it up
	Beside        *Mailboxes // of the communicator, where its messages do not go through them; may be nil
	// in place of Input and Output, of a call on memory that is not contiguous: the blocks that are sent, and
	// those that are received; else nil. A span of the schedule has the number of its block, counted down
	// from the last one, as its offset.
	Outgoing, Incoming []Block

	state     collectiveState
	memory    [3][]byte // by coll.Buffer
	scratch   []uint64  // aligned for every element type
	round     int       // the current one
	step      int       // the next step of the round that is not a message
	messages  []*request
	pending   int        // messages of the round that are not complete
	sent      bool       // the round's send is out already
	queued    bool       // in Collectives.runnable
	failing   bool       // its messages are being given up
	hasWaiter bool       // a goroutine waits, or is about to, that carries out local steps
	noted     bool       // its beginning is recorded
	pooled    bool       // back to the pool when it is over
	err       error      // the first failure
	wrong     *coll.Step // the receive whose message had another length, if that is err
	request   *request   // nil while it is carried out by shortRounds
	pinned    [2]*Memory

	// of a call through mailboxes
	mailboxes *Mailboxes
	flagTag   int         // see mailboxTag
	exchange  []coll.Step // the messages of its round
	due       uint64      // the messages of its round that are not sent, or have not come; a bit for each

	over            bool        // of one that wakes probes
	wakesConditions bool        // when it is over, those wake who wait for something other than a request
	next            *Collective // in the pool
}

// Block is bytes of a layout of some memory.
type Block struct {
	Layout *layout.Layout
	Memory unsafe.Pointer
}

func (b Block) cursor() layout.Cursor { return layout.Cursor{Layout: b.Layout, Memory: b.Memory} }

// emptyLayout is the layout of an empty block.
var emptyLayout layout.Layout

// blockOf returns the block of a span; an empty one has no offset.
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

// span is the memory of a span.
func (c *Collective) span(p coll.Span) []byte { return c.memory[p.Buf][p.Off:][:p.Len:p.Len] }

func (c *Collective) worldRank(rank int) int {
	if c.Ranks == nil {
		return rank
	}
	return int(c.Ranks[rank])
}

// prepare makes the memory ready for the first round.
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

// carryOut carries out a step that is no message.
func (c *Collective) carryOut(s *coll.Step) {
	if c.Outgoing != nil { // blocks of this rank for itself are all that is copied
		from, to := blockOf(c.Outgoing, s.Src).cursor(), blockOf(c.Incoming, s.Dst).cursor()
		buf := copyBuffers.Get().(*copyBuffer)
		layout.Copy(&to, &from, buf[:])
		copyBuffers.Put(buf)
		return
	}
	dst, src := c.span(s.Dst), c.span(s.Src)
	switch s.Kind {
	case coll.Copy:
		copy(dst, src)
	case coll.ReduceRight:
		c.Op.Apply(dst, src)
	case coll.ReduceLeft:
		c.Op.Apply(src, dst)
		copy(dst, src)
	case coll.Combine:
		c.Op.combine(dst, src)
	}
}

// copyBuffer is what a rank copies through between memory that is contiguous at neither end.
type copyBuffer [16 << 10]byte

var copyBuffers = sync.Pool{New: func() any { return new(copyBuffer) }}

// A tag of a collective has, from the highest bit on: whether it is persistent, the number of the call on the
// communicator, which operation it is, and the signature of the call. Messages of one call differ in the last
// two only where the ranks' calls do not fit together.
const (
	signatureBits = 7
	operationBits = 5
	numberBits    = 18
	callBits      = signatureBits + operationBits
)

// OperationSetup stands for a call that makes a communicator, in the tag of a collective.
const OperationSetup coll.Operation = 1<<operationBits - 1

// OperationMailboxes stands for the preparation of mailboxes, likewise.
const OperationMailboxes = OperationSetup - 1

// CollectiveTag is the tag of the messages of a collective.
func CollectiveTag(persistent bool, number uint32, o coll.Operation, signature uint32) int {
	tag := int(number&(1<<numberBits-1))<<callBits | int(o)<<signatureBits |
		int(signature&(1<<signatureBits-1))
	if persistent {
		tag |= 1 << (numberBits + callBits)
	}
	return tag
}

// CollectiveNumber is the number of a collective's call, of which its tag has only so many bits. It returns
// false for a persistent one, whose numbers are its own.
func CollectiveNumber(tag int) (number uint32, bits int, ok bool) {
	return uint32(tag>>callBits) & (1<<numberBits - 1), numberBits, tag>>(numberBits+callBits)&1 == 0
}

func operationOf(tag int) coll.Operation {
	return coll.Operation(tag >> signatureBits & (1<<operationBits - 1))
}

// differs tells whether a tag is of the same call as the collective's, and of another operation or other
// arguments.
func (c *Collective) differs(tag int) bool { return tag != c.Tag && c.sameCall(tag) }

// sameCall tells whether a tag is of the same call as the collective's.
func (c *Collective) sameCall(tag int) bool { return tag>>callBits == c.Tag>>callBits }

// unknownLength is that of a message in a mailbox, which is told apart from others by its tag alone.
const unknownLength = -1

// mismatch is the error of a collective that meets a message of another operation, or of the same one with
// other arguments, of so many bytes.
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

// expects is how many bytes the collective expects of a rank in its present round.
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

// lengthsText says what is known of the lengths of a message that does not fit.
func (c *Collective) lengthsText(sent, source, tag int) string {
	if sent == unknownLength {
		if passed := c.passedBy(tag); passed != unknownLength {
			return fmt.Sprintf(": it passed %d bytes, and this rank %d", passed, c.Call.Count*c.Call.ElemSize)
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

// maxPassed bounds the elements of the calls that passedBy compares.
const maxPassed = 8 << 10

// passedBy is how many bytes another rank has passed to the same call, by the tag of its message in a
// mailbox: the length that, with all else equal, has the tag's signature. It is unknown if none has it, if
// two have it, or if another root has it with this rank's length.
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

// rankName names a rank of a communicator, and of the world where that differs.
func rankName(rank, world int) string {
	if rank == world {
		return fmt.Sprint("rank ", rank)
	}
	return fmt.Sprintf("rank %d (world rank %d)", rank, world)
}

// commRank is the rank in the communicator of a world rank.
func (c *Collective) commRank(world int) int {
	for rank, w := range c.Ranks {
		if int(w) == world {
			return rank
		}
	}
	return world
}
