package mpi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Partitioned is a send or a receive of a buffer in partitions, which is set up once and started repeatedly
// (MPI 4.1, chapter 4). Goroutines that fill the buffer of a send each mark their partitions with Pready, and
// goroutines that use the buffer of a receive ask with Parrived for theirs. It is inactive at first. Start
// makes it active, and it is inactive again when Wait returns, or Test with true. Any goroutine may call any
// method at any time, but only one at a time Wait or Test.
//
// A send from PsendInit goes to a receive from PrecvInit. Those with the same ranks and tag correspond in the
// order of these calls; messages of other calls never match them. The two buffers have the same size in
// bytes, and may have different numbers of partitions.
//
// The communicator must not be freed while the operation is active. After Wait has returned an error, which
// may be that the context of the communicator's handle ended, the operation can only be freed.
type Partitioned struct {
	c          *Comm
	receive    bool
	buf        []byte
	memory     *engine.Memory // of buf, if it comes from Alloc
	elem       int
	partitions int
	peer, tag  int

	// in checking mode
	element    *check.Element
	site       *check.Site // of PrecvInit
	operations []check.Operation

	mu     *engine.Lock
	active bool
	freed  bool
	failed error

	announced engine.Request // the announcement, until it is known to be complete
	words     [announcementWords]uint64
	first     int // tag of the message of the sender's first partition
	own       int // tag of a message of this rank to itself, which reports that all messages are begun
	// A request of the current Start that completes when all messages are begun: at the sender by Pready, at
	// the receiver when it knows the sender's partitions.
	begun    engine.Request
	messages []engine.Request // one for each partition of the sender
	awaited  []engine.Request // memory for the requests of the next Wait
	left     int              // for a send: partitions that are not marked
	marked   []bool           // for a send
	mismatch error            // for a receive: the sender's buffer does not match
	err      error            // why a message of the current Start could not be begun
}

// MaxPartitions is the largest number of partitions of a buffer.
const MaxPartitions = 1 << 16

// The messages of partitioned operations are in the context of Post and Complete, with tags of their own. A
// sender announces an operation with announceTag and the tag of the program. The messages of its partitions
// have tags that it takes for itself: see partitionTags.
const (
	announceTag       = TagUB + 1
	firstPartitionTag = contextid.CompleteTag + 1
	lastPartitionTag  = TagUB
)

// announcementWords is the length of an announcement: the number of partitions, the size of the buffer, the
// tag of the first partition's message, and in checking mode the layout of an element.
const announcementWords = 4

// PsendInit sets up a send of buf in partitions of equal length to rank dst (MPI 4.1, 4.2.1). It does not
// wait for the receiver. Elements of buf may be changed until their partition is marked, and again after
// Wait. Each partition travels as one message.
func PsendInit[T any](c *Comm, buf []T, partitions, dst, tag int) (*Partitioned, error) {
	p, err := newPartitioned(c, buf, partitions)
	if err == nil {
		err = c.checkSend(dst, tag)
	}
	if err == nil {
		p.mu = c.e.NewLock()
		if dst != ProcNull {
			p.peer, p.tag = dst, tag
			err = p.announce()
		}
	}
	if err != nil {
		return nil, c.fail("PsendInit", dst, tag, err)
	}
	p.peer, p.tag, p.memory = dst, tag, c.job.hub.Memory.Pin(p.buf)
	return p, nil
}

// PrecvInit sets up a receive into buf, in partitions of equal length, from rank src, which is not AnySource,
// with tag, which is not AnyTag (MPI 4.1, 4.2.1). It does not wait for the sender. buf belongs to weft while
// the receive is active, except for partitions that have arrived.
func PrecvInit[T any](c *Comm, buf []T, partitions, src, tag int) (*Partitioned, error) {
	p, err := newPartitioned(c, buf, partitions)
	if err == nil {
		err = c.checkSend(src, tag) // wildcards are refused
	}
	if err == nil {
		p.mu = c.e.NewLock()
		p.receive, p.peer, p.tag = true, src, tag
		if src != ProcNull {
			err = p.awaitAnnouncement()
		}
	}
	if err != nil {
		return nil, c.fail("PrecvInit", src, tag, err)
	}
	p.memory = c.job.hub.Memory.Pin(p.buf)
	return p, nil
}

func newPartitioned[T any](c *Comm, buf []T, partitions int) (*Partitioned, error) {
	b, err := bytesOf(buf)
	if err != nil {
		return nil, err
	}
	if partitions < 1 || partitions > MaxPartitions || len(buf)%partitions != 0 {
		return nil, fmt.Errorf("%w: %d elements in %d partitions: there are 1 to %d partitions, all of the "+
			"same length", ErrCount, len(buf), partitions, MaxPartitions)
	}
	return &Partitioned{c: c, buf: b, elem: sizeOf[T](), partitions: partitions,
		element: elementOf[T](c)}, nil
}

func (p *Partitioned) context() uint32 { return contextid.Exposure.In(p.c.context) }

// announce takes tags for a send, and sends the announcement.
func (p *Partitioned) announce() error {
	c := p.c
	first, ok := c.takePartitionTags(p.partitions + 1)
	if !ok {
		return fmt.Errorf("%w: partitioned sends on %s have more than %d partitions together: free some",
			ErrArg, c.Name(), lastPartitionTag-firstPartitionTag)
	}
	p.first, p.own = first, first+p.partitions
	p.messages, p.marked = make([]engine.Request, p.partitions), make([]bool, p.partitions)
	p.words = [...]uint64{uint64(p.partitions), uint64(len(p.buf)), uint64(first), 0}
	if p.element != nil {
		p.words[3] = uint64(p.element.Layout)
	}
	h, err := c.e.Sends.Isend(p.context(), wordBytes(p.words[:]), c.worldRank(p.peer), announceTag|p.tag)
	if err != nil {
		c.returnPartitionTags(first)
		return err
	}
	c.e.Cancels.Bind(h, c.canceller)
	p.announced = h
	return nil
}

// awaitAnnouncement posts the receive of the announcement.
func (p *Partitioned) awaitAnnouncement() error {
	c := p.c
	own, ok := c.takePartitionTags(1)
	if !ok {
		return fmt.Errorf("%w: too many partitioned operations on %s: free some", ErrArg, c.Name())
	}
	h, err := c.e.Recvs.Irecv(p.context(), wordBytes(p.words[:]), c.worldRank(p.peer), announceTag|p.tag, 1)
	if err != nil {
		c.returnPartitionTags(own)
		return err
	}
	c.e.Cancels.Bind(h, c.canceller)
	p.own, p.announced = own, h
	if c.checker != nil {
		p.site = c.checker.sites.Here()
	}
	return nil
}

// Start makes the operation active (MPI 4.1, 4.2.2). Start of a send sends nothing before Pready. Start does
// not block.
func (p *Partitioned) Start() error {
	if p == nil || p.c == nil {
		return asError("Start", errNotPartitioned)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.usable()
	switch {
	case err != nil:
	case p.active:
		err = errActive
	case p.failed != nil:
		err = fmt.Errorf("%w: it has failed: %w", ErrRequest, p.failed)
	default:
		err = p.c.checkCall()
	}
	if err == nil {
		p.err = nil
		if p.left = p.partitions; p.peer != ProcNull {
			err = p.begin()
		}
	}
	if err != nil {
		return p.c.fail("Start", p.peer, p.tag, err)
	}
	p.active = true
	return nil
}

func (p *Partitioned) begin() error {
	c := p.c
	if !p.receive {
		clear(p.marked)
		clear(p.messages)
		if c.checker != nil {
			p.operations = make([]check.Operation, p.partitions)
		}
		return p.awaitOwn()
	}
	if p.announced != (engine.Request{}) {
		_, known, err := c.e.Requests.Test(p.announced)
		switch {
		case err != nil:
			p.announced, p.failed = engine.Request{}, err
			return err
		case known:
			p.announced = engine.Request{}
			p.parseAnnouncement()
		default:
			if err := p.awaitOwn(); err != nil {
				return err
			}
			// the messages must be received even if the program waits for something else
			announced, begun := p.announced, p.begun
			c.e.Go(func() { p.postWhenAnnounced(announced, begun) })
		}
	}
	if c.checker != nil {
		site := c.checker.sites.Here()
		p.operations = []check.Operation{{Site: site, With: c.with(site.Call, p.peer, p.tag),
			Writes: [][]byte{p.buf}}}
		c.checker.operations.Begin(&p.operations[0])
	}
	if p.announced == (engine.Request{}) {
		p.post()
	}
	return nil
}

// awaitOwn posts the receive of the message of this rank to itself that reports that all messages are begun.
// The context of the handle, and Revoke, end it.
func (p *Partitioned) awaitOwn() (err error) {
	p.begun, err = p.c.e.Recvs.Irecv(p.context(), nil, p.c.worldRank(p.c.rank), p.own, 1)
	if err == nil {
		p.c.e.Cancels.Bind(p.begun, p.c.canceller)
	}
	return err
}

// allBegun sends that message.
func (p *Partitioned) allBegun() {
	h, err := p.c.e.Sends.Isend(p.context(), nil, p.c.worldRank(p.c.rank), p.own)
	if err == nil {
		p.c.e.Cancels.CancelAndFree(h)
	}
}

// postWhenAnnounced waits for the announcement and then posts the receives of the Start to which the request
// begun belongs.
func (p *Partitioned) postWhenAnnounced(announced, begun engine.Request) {
	_, err := p.c.e.Requests.Wait(announced)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.announced = (engine.Request{}); err == nil {
		p.parseAnnouncement()
	}
	if !p.active || p.begun != begun {
		return // Wait has failed
	}
	if p.err = err; err == nil {
		p.post()
	}
	p.allBegun()
}

// parseAnnouncement reads the number and size of the sender's partitions. Messages that do not match the
// buffer are still received, without memory.
func (p *Partitioned) parseAnnouncement() {
	partitions, bytes, first := p.words[0], p.words[1], p.words[2]
	if partitions < 1 || partitions > MaxPartitions || first < firstPartitionTag ||
		first > lastPartitionTag-partitions {
		p.mismatch = fmt.Errorf("%w: rank %d announces %d partitions with tag %d, which is invalid", ErrArg,
			p.peer, partitions, first)
		return
	}
	p.first, p.messages = int(first), make([]engine.Request, partitions)
	if bytes != uint64(len(p.buf)) {
		p.mismatch = fmt.Errorf("%w: rank %d sends %d bytes in %d partitions, the buffer has %d", ErrCount,
			p.peer, bytes, partitions, len(p.buf))
	} else if len(p.buf)%int(partitions) != 0 {
		p.mismatch = fmt.Errorf("%w: %d bytes in %d partitions", ErrCount, bytes, partitions)
	}
	if e := p.element; e != nil && p.words[3] != uint64(e.Layout) && len(p.buf) > 0 {
		p.c.checker.Report("different type", fmt.Sprintf("%s of %s %s at %s, whose sender has elements of "+
			"another type", p.site.Call, e.Name, p.c.with(p.site.Call, p.peer, p.tag), p.site.Line))
	}
}

// post posts the receives of the messages.
func (p *Partitioned) post() {
	for i := range p.messages {
		var b []byte
		if p.mismatch == nil {
			b = partitionOf(p.buf, i, len(p.messages))
		}
		h, err := p.c.e.Recvs.Irecv(p.context(), b, p.c.worldRank(p.peer), p.first+i, 1)
		if err != nil {
			p.err = err
			return
		}
		p.c.e.Cancels.Bind(h, p.c.canceller)
		p.messages[i] = h
	}
}

// partitionOf returns the i-th of n equal parts of a buffer.
func partitionOf(buf []byte, i, n int) []byte {
	size := len(buf) / n
	return buf[i*size:][:size:size]
}

// Pready marks a partition of an active send: it is sent, and must not be changed before Wait returns (MPI
// 4.1, 4.2.3). Each partition is marked once for each Start. Pready does not block.
func (p *Partitioned) Pready(partition int) error {
	return p.pready("Pready", partition, partition+1)
}

// PreadyRange marks the partitions from one up to, and without, another.
func (p *Partitioned) PreadyRange(from, to int) error { return p.pready("PreadyRange", from, to) }

func (p *Partitioned) pready(op string, from, to int) error {
	if p == nil || p.c == nil {
		return asError(op, errNotPartitioned)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.usable()
	switch {
	case err != nil:
	case p.receive:
		err = fmt.Errorf("%w: it is a receive", ErrRequest)
	case !p.active:
		err = fmt.Errorf("%w: it is not active: Start it first", ErrRequest)
	case from < 0 || from > to || to > p.partitions:
		err = fmt.Errorf("%w: partitions %d to %d of %d", ErrArg, from, to-1, p.partitions)
	case p.peer == ProcNull:
		return nil
	default:
		if i := slices.Index(p.marked[from:to], true); i >= 0 {
			err = fmt.Errorf("%w: partition %d is marked already", ErrArg, from+i)
		}
	}
	if err == nil {
		for i := from; i < to; i++ {
			err = cmp.Or(err, p.send(i))
		}
		p.err = cmp.Or(p.err, err)
	}
	return p.c.fail(op, p.peer, p.tag, err)
}

// send sends a partition. One that cannot be sent counts as sent: Wait returns the error.
func (p *Partitioned) send(i int) error {
	c := p.c
	p.marked[i] = true
	b := partitionOf(p.buf, i, p.partitions)
	if c.checker != nil {
		site := c.checker.sites.Here()
		p.operations[i] = check.Operation{Site: site, With: c.with(site.Call, p.peer, p.tag),
			Reads: [][]byte{b}}
		c.checker.operations.Begin(&p.operations[i])
	}
	err := c.checkCall()
	if err == nil {
		if p.messages[i], err = c.e.Sends.Isend(p.context(), b, c.worldRank(p.peer), p.first+i); err == nil {
			c.e.Cancels.Bind(p.messages[i], c.canceller)
		}
	}
	if p.left--; p.left == 0 {
		p.allBegun()
	}
	return err
}

// Parrived reports whether a partition of a receive has arrived; then its elements may be used (MPI 4.1,
// 4.2.4). It makes progress, does not block, and does not end the receive. It reports true if the receive is
// inactive, and false with the error if the partition cannot arrive.
func (p *Partitioned) Parrived(partition int) (bool, error) {
	if p == nil || p.c == nil {
		return false, asError("Parrived", errNotPartitioned)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.usable()
	switch {
	case err != nil:
	case !p.receive:
		err = fmt.Errorf("%w: it is a send", ErrRequest)
	case uint(partition) >= uint(p.partitions):
		err = fmt.Errorf("%w: partition %d of %d", ErrArg, partition, p.partitions)
	case !p.active || p.peer == ProcNull:
		return true, nil
	}
	arrived := false
	if err == nil {
		arrived, err = p.arrived(partition)
	}
	return arrived, p.c.fail("Parrived", p.peer, p.tag, err)
}

func (p *Partitioned) arrived(partition int) (bool, error) {
	if err := p.result(nil); err != nil {
		return false, err
	}
	if done, err := p.look(p.begun); !done || err != nil {
		return false, err
	}
	if err := p.result(nil); err != nil {
		return false, err
	}
	for _, h := range p.messages[partition*len(p.messages)/p.partitions : (partition*len(p.messages)+
		len(p.messages)+p.partitions-1)/p.partitions] {
		if done, err := p.look(h); !done || err != nil {
			return false, err
		}
	}
	return true, nil
}

// look reports whether a request is complete, or Wait has used it up.
func (p *Partitioned) look(h engine.Request) (bool, error) {
	_, done, err := p.c.e.Requests.Look(h)
	if errors.Is(err, engine.ErrRequest) {
		return true, nil
	}
	return done, err
}

// result returns the error of the current Start, given the first error err of its messages.
func (p *Partitioned) result(err error) error {
	if p.mismatch != nil {
		return p.mismatch // instead of the truncation errors of the messages
	}
	if p.err != nil {
		return p.err
	}
	return err
}

// Wait returns when the operation is complete: all partitions are marked and sent, or all have arrived. It
// returns the status of the receive. It drives all of the rank's communication while it waits. Wait of an
// inactive operation returns at once.
func (p *Partitioned) Wait() (Status, error) { return p.wait("Wait") }

func (p *Partitioned) wait(op string) (Status, error) {
	if p == nil || p.c == nil {
		return Status{}, asError(op, errNotPartitioned)
	}
	p.mu.Lock()
	active, begun := p.active, p.begun
	p.mu.Unlock()
	switch {
	case !active:
		return emptyStatus, nil
	case p.peer == ProcNull:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.active = false
		return nullStatus(), nil
	}
	e := p.c.e
	_, first := e.Requests.Wait(begun)
	if errors.Is(first, engine.ErrRequest) {
		return Status{}, p.c.fail(op, p.peer, p.tag, first) // another goroutine waits
	}
	p.mu.Lock()
	p.begun = engine.Request{}
	messages, announced := append(p.awaited[:0], p.messages...), p.announced
	p.awaited = nil
	if first != nil {
		p.active = false // no further message is begun
	}
	p.mu.Unlock()
	for _, h := range messages {
		if _, err := e.Requests.Wait(h); first == nil {
			first = err
		}
	}
	if !p.receive { // a receive has received the announcement if it has the messages
		if _, err := e.Requests.Wait(announced); first == nil {
			first = err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.operations {
		p.c.checker.operations.End(&p.operations[i])
	}
	clear(p.messages)
	p.active, p.operations, p.awaited = false, nil, messages
	if !p.receive {
		p.announced = engine.Request{}
	}
	if p.failed = p.result(first); p.failed != nil {
		return Status{}, p.c.fail(op, p.peer, p.tag, p.failed)
	}
	if !p.receive {
		return emptyStatus, nil
	}
	return Status{Source: p.peer, Tag: p.tag, Count: len(p.buf) / max(p.elem, 1), bytes: len(p.buf)}, nil
}

// Test reports whether the operation is complete, as Wait does if so. It does not block.
func (p *Partitioned) Test() (Status, bool, error) {
	if p == nil || p.c == nil {
		return Status{}, false, asError("Test", errNotPartitioned)
	}
	p.mu.Lock()
	done := true
	if p.active && p.peer != ProcNull {
		var err error
		if done, err = p.look(p.begun); done && err == nil {
			for _, h := range p.messages {
				if done, _ = p.look(h); !done {
					break
				}
			}
			if done && !p.receive { // its peer may take the announcement after the messages
				done, _ = p.look(p.announced)
			}
		}
		done = done || err != nil
	}
	p.mu.Unlock()
	if !done {
		return Status{}, false, nil
	}
	st, err := p.wait("Test")
	return st, true, err
}

// Free ends the use of p, which must be inactive; it cannot be started any more.
func (p *Partitioned) Free() error {
	if p == nil || p.c == nil {
		return asError("Free", errNotPartitioned)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.usable()
	if err == nil && p.active {
		err = errActive
	}
	if err != nil {
		return p.c.fail("Free", p.peer, p.tag, err)
	}
	if p.announced != (engine.Request{}) {
		p.c.e.Cancels.CancelAndFree(p.announced)
	}
	if p.peer != ProcNull && p.receive {
		p.c.returnPartitionTags(p.own)
	} else if p.peer != ProcNull {
		p.c.returnPartitionTags(p.first)
	}
	p.c.job.hub.Memory.Unpin(p.memory)
	p.freed, p.buf, p.memory = true, nil, nil
	return nil
}

var errNotPartitioned = fmt.Errorf("%w: a Partitioned comes from PsendInit or PrecvInit", ErrRequest)

func (p *Partitioned) usable() error {
	if p.freed {
		return errFreed
	}
	return nil
}

// partitionTags are the tags for the messages of partitions that this rank sends. The lock of the
// communicator guards them.
type partitionTags struct {
	next int
	used []tagRange
}

type tagRange struct{ first, end int }

// takePartitionTags takes n consecutive tags, and returns the first. It reports false if there are none.
func (s *commState) takePartitionTags(n int) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.partitionTags
	for range 2*len(t.used) + 2 {
		if t.next < firstPartitionTag || t.next+n-1 > lastPartitionTag {
			t.next = firstPartitionTag
		}
		r := tagRange{t.next, t.next + n}
		i := slices.IndexFunc(t.used, func(u tagRange) bool { return r.first < u.end && u.first < r.end })
		if i < 0 {
			t.used, t.next = append(t.used, r), r.end
			return r.first, true
		}
		t.next = t.used[i].end
	}
	return 0, false
}

// returnPartitionTags returns the tags of a takePartitionTags that has returned first.
func (s *commState) returnPartitionTags(first int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.partitionTags
	t.used = slices.DeleteFunc(t.used, func(r tagRange) bool { return r.first == first })
}
