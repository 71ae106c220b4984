package rendezvous

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/sharedcopy"
	"github.com/weft-mpi/weft/transport"
)

// ReceiverConfig says how messages are read. A zero field selects its default.
type ReceiverConfig struct {
	Piece int // transfer size: bytes of one Read; 1 MiB
	Depth int // Reads of one channel in flight, 8; or open grants, MaxOpenGrants, which is also the maximum
	// Grant disables Reads: receivers grant their buffers, and senders write. A device without Reads always
	// works like this.
	Grant bool
	// GrantContiguous does so for contiguous buffers. Its sender need not wait for a FIN: it is done when its
	// Writes are, which a provider that copies what it sends completes at once.
	GrantContiguous bool
	// Share lets the senders of long messages copy a part of them, if queue pairs copy immediately. It is for
	// ranks with a core each.
	Share bool
	// Place receives the bytes that StartStaged fetches, in order, with their position; they are invalid when
	// it returns
	Place func(token uint64, at int, bytes []byte)
}

// Defaults: bytes of a Read or Write, and their number per channel in flight.
const (
	defaultPiece = 1 << 20
	defaultDepth = 8
)

func orDefault(n, without int) int {
	if n <= 0 {
		return without
	}
	return n
}

// Receiver is the receiving side of a rank, for all its channels.
type Receiver struct {
	pd        transport.PD
	piece     int
	depth     int              // of Reads
	maxGrants int              // of a channel, open
	grants    bool             // there are no Reads
	grantsAll bool             // contiguous buffers are granted
	copies    bool             // queue pairs can copy the peer's memory immediately
	shares    bool             // and senders copy a part
	budget    int              // bytes that this pass may still copy
	stopped   bool             // the budget was too small for the next copy
	gathering *channel.Channel // see Gather
	table     []*fetch
	free      *fetch
	inUse     int // fetches, and unsent ends of announcements
	queues    map[*channel.Channel]*channelQueue
	lastQueue *channelQueue    // of the last channel used
	finSource transport.MR     // from which FIN words are posted; nil until there are some
	emptyRecv transport.RecvWR // for the end of a grant: no bytes
	place     func(token uint64, at int, bytes []byte)
	stages    stages
	views     transport.ViewRegistrar // nil if the device does not support views
}

// channelQueue has the messages that one channel fetches, in the order of Start.
type channelQueue struct {
	c           *channel.Channel
	first, last *fetch // fetches with Reads to post or CTSs to send
	inFlight    int    // Reads, or grants
	pendingFINs []ATS  // ends of announcements to send, in order: by a word, by an immediate, or by ATS
	finsSent    int    // of these
	spareRecvs  int    // receive requests posted for grants that failed
	queueFull   bool   // the send queue was full, or the pass may copy no more: try again in the next pass
	held        bool   // CTSs were posted that may share a write with others

	shared  sharedCopies
	ends    finWriter
	granted openGrants
	read    transport.SendWR
	local   [1]transport.SGE
	remote  [1]transport.Segment
	fin     transport.SendWR
}

// fetch is one announced message that is being received.
type fetch struct {
	index uint32
	// reuse count, so that a completion of an earlier use does not match
	generation uint32
	c          *channel.Channel // nil in a free entry
	source     Source
	want       int    // bytes to receive: the message, or the part that fits
	asked      int    // of these, requested by Reads or grants, or copied
	arrived    int    // of these, received
	token      uint64 // the caller's cookie, returned unchanged, as a wr_id
	next       *fetch
	method     transferMethod
	depth      int      // how many Reads or grants of the channel may be under way for it to ask for another
	into       segments // the user's buffer, if the message is received directly
	staged     staged   // otherwise
}

// A transferMethod moves the bytes of a message.
type transferMethod interface {
	// ask requests the next bytes of the channel's first message. It returns false if there is no room now.
	ask(r *Receiver, l *channelQueue, t *fetch) (asked bool, err error)
	// arrive notes that a Read or a grant of n bytes has completed.
	arrive(r *Receiver, t *fetch, n int)
}

// segments are a user's buffer. Their memory is reused.
type segments struct {
	list  []segment
	first int // the first that is not requested completely
}

// segment is a registered part of the user's buffer.
type segment struct {
	mr    transport.MR
	at    int // offset of its first byte in the region
	size  int
	asked int // bytes
}

// The top byte of a work request's id says which side handles its completion: ReadOwner for
// Receiver.OnCompletion, WriteOwner for Sender.OnCompletion.
const (
	ReadOwner  = 0x52
	WriteOwner = 0x57
)

const (
	generationMask = 1<<24 - 1
)

func (t *fetch) wrID() uint64 {
	return ReadOwner<<56 | uint64(t.generation&generationMask)<<32 | uint64(t.index)
}

// NewReceiver makes the receiving side of a rank whose channels use pd.
func NewReceiver(pd transport.PD, c ReceiverConfig) *Receiver {
	attr := pd.DeviceAttr()
	grant := c.Grant || attr.MaxReads == 0
	copies := attr.DirectCopies && !grant
	return &Receiver{pd: pd, piece: orDefault(c.Piece, defaultPiece),
		depth:     orDefault(c.Depth, defaultDepth),
		maxGrants: min(orDefault(c.Depth, MaxOpenGrants), MaxOpenGrants),
		grants:    grant, grantsAll: grant || c.GrantContiguous,
		copies: copies, shares: copies && c.Share, queues: map[*channel.Channel]*channelQueue{},
		place: c.Place, stages: stages{pd: pd, rights: transport.LocalWrite | transport.RemoteWrite},
		views: transport.ViewRegistrarOf(pd)}
}

// Start begins to fetch an announced message into bufs, one after the other, as much of it as fits. token is
// a cookie of the caller that is returned unchanged, as a wr_id. If done is true there was nothing to fetch,
// and the token is not returned later. Otherwise the buffers must not be accessed until OnCompletion,
// OnGrantEnd or Fail returns token; the slice bufs itself belongs to the caller again. An error means that
// the channel must be failed; then nothing of the message is kept unless Fail returns the token.
func (r *Receiver) Start(c *channel.Channel, s Source, bufs [][]byte, token uint64) (done bool, err error) {
	l := r.queue(c)
	t := r.start(s, token)
	rights := transport.LocalWrite
	switch {
	case r.grantsAll:
		t.method, t.depth = byGrants{}, r.maxGrants
		rights |= transport.RemoteWrite | transport.SoleWriter // the key goes to one peer, for one Write
	case len(bufs) == 1 && l.shareable(&s, len(bufs[0])):
		t.method, rights = byBothEnds{}, rights|transport.RemoteWrite
	}
	for _, buf := range bufs {
		if left := s.Length - uint64(t.want); uint64(len(buf)) > left {
			buf = buf[:left]
		}
		if len(buf) == 0 {
			continue
		}
		mr, err := r.pd.Register(buf, rights)
		if err != nil {
			return false, errors.Join(fmt.Errorf("receive buffer of %d bytes: %w", len(buf), err),
				r.release(t))
		}
		t.into.list = append(t.into.list, segment{mr: mr, size: len(buf)})
		t.want += len(buf)
	}
	if t.want == 0 {
		r.queueFIN(l, ATS{ID: s.ID})
		return true, errors.Join(r.release(t), r.Progress(c))
	}
	l.add(t, c)
	return false, r.Progress(c)
}

// start allocates a fetch for an announced message, by Reads unless the caller changes the method.
func (r *Receiver) start(s Source, token uint64) *fetch {
	t := r.alloc()
	t.source, t.token, t.method, t.depth = s, token, byReads{}, r.depth
	t.want, t.asked, t.arrived = 0, 0, 0
	return t
}

// add queues a fetch for Progress.
func (l *channelQueue) add(t *fetch, c *channel.Channel) {
	t.c = c
	if l.first == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
}

// TryCopy is Start for a message that can be copied immediately: done means that buf has all of it.
// Otherwise, if there is no error, nothing has happened except that buf may have been written to. An error
// means that the channel must be failed; without done, the copy may have succeeded nevertheless.
func (r *Receiver) TryCopy(c *channel.Channel, s Source, buf []byte) (done bool, err error) {
	l := r.queue(c)
	if !r.copies || s.Key == 0 || s.Length == 0 || s.Length > uint64(len(buf)) || l.first != nil ||
		l.inFlight > 0 {
		return false, nil
	}
	buf = buf[:s.Length]
	if l.shareable(&s, len(buf)) && len(buf) <= sharedcopy.MaxPart {
		to, err := r.pd.Register(buf, transport.LocalWrite|transport.RemoteWrite)
		if err != nil {
			return false, nil
		}
		done = l.copyShared(c, &s, 0, len(buf), to)
		if err := errors.Join(to.Deregister(), l.shared.settle()); err != nil || !done {
			return false, err
		}
	} else {
		l.remote[0] = transport.Segment{Key: s.Key, Offset: s.Offset, Length: s.Length}
		if c.QP().Get(buf, &l.remote[0]) != nil {
			return false, nil
		}
	}
	if EndsInWord(s.ID) && len(l.pendingFINs) == 0 {
		if full, err := l.ends.write(c.QP(), s.ID); !full {
			return true, err
		}
	}
	r.queueFIN(l, ATS{ID: s.ID})
	return true, r.Progress(c)
}

func (r *Receiver) queue(c *channel.Channel) *channelQueue {
	if r.lastQueue != nil && r.lastQueue.c == c {
		return r.lastQueue
	}
	l := r.queues[c]
	if l == nil {
		l = &channelQueue{c: c}
		l.read = transport.SendWR{Op: transport.OpRead, Flags: transport.FlagSignaled, Local: l.local[:],
			Remote: l.remote[:]}
		l.fin = transport.SendWR{Op: transport.OpWriteImm}
		r.queues[c] = l
	}
	r.lastQueue = l
	return l
}

// Gather makes Progress of a channel do nothing until Gather(nil), so that what several messages that arrived
// together give occasion to goes out together. Call Progress then.
func (r *Receiver) Gather(c *channel.Channel) { r.gathering = c }

// Progress posts the Reads and FINs, and sends the CTSs, for which there is room. Call it after completions
// of the channel's QP, and when credits have arrived.
func (r *Receiver) Progress(c *channel.Channel) (err error) {
	l := r.queues[c]
	if l == nil || c == r.gathering {
		return nil
	}
	err = r.advance(c, l)
	if l.held {
		l.held = false
		c.QP().Flush()
	}
	return err
}

func (r *Receiver) advance(c *channel.Channel, l *channelQueue) (err error) {
	l.queueFull = false
	if len(l.pendingFINs) > 0 {
		if err := r.sendFINs(c, l); err != nil || l.queueFull {
			return err
		}
	}
	for l.first != nil && l.inFlight < l.first.depth && !l.granted.enough() {
		t := l.first
		if asked, err := t.method.ask(r, l, t); !asked {
			return err
		}
		l.inFlight++
		if t.asked == t.want {
			l.first, t.next = t.next, nil
		}
	}
	return nil
}

// queueFIN queues the end of an announcement for Progress.
func (r *Receiver) queueFIN(l *channelQueue, d ATS) {
	if l.finsSent > len(l.pendingFINs)/2 {
		l.pendingFINs, l.finsSent = l.pendingFINs[:copy(l.pendingFINs, l.pendingFINs[l.finsSent:])], 0
	}
	l.pendingFINs = append(l.pendingFINs, d)
	r.inUse++
}

// sendFINs sends the ends of announcements, in order, while there is room: each by a word, by an immediate or
// by ATS, as the announcement's id says.
func (r *Receiver) sendFINs(c *channel.Channel, l *channelQueue) (err error) {
	for ; l.finsSent < len(l.pendingFINs); l.finsSent++ {
		d := l.pendingFINs[l.finsSent]
		switch {
		case d.Withdrawn || d.ID&endsWithATS != 0:
			var sent bool
			sent, l.queueFull, err = sendControl(c, channel.ATS, atsLen, false, d)
			if !sent && !l.queueFull && err == nil {
				return nil
			}
		case d.ID&endsWithWord != 0:
			l.queueFull, err = l.ends.write(c.QP(), d.ID)
		default:
			l.fin.Imm = finOf(d.ID).imm()
			l.queueFull, err = post(c.QP(), &l.fin)
		}
		if l.queueFull || err != nil {
			return err
		}
		r.inUse--
	}
	l.pendingFINs, l.finsSent = l.pendingFINs[:0], 0
	return nil
}

// Idle reports whether nothing is in progress, on any channel: Progress then has nothing to do.
func (r *Receiver) Idle() bool { return r.inUse == 0 }

// SendQueueFull reports whether Progress stopped because the send queue was full, or because this pass may
// copy no more. Call Progress again in the next pass.
func (r *Receiver) SendQueueFull(c *channel.Channel) bool {
	l := r.queues[c]
	return l != nil && l.queueFull
}

// sendControl sends a control message with a body of n bytes; with more set, Flush of the QP must follow. If
// it was not sent, full says that the send queue was full; otherwise credits are missing.
func sendControl[M interface{ Append([]byte) []byte }](c *channel.Channel, k channel.Kind, n int,
	more bool, m M) (sent, full bool, err error) {
	sent, err = c.TrySendControl(k, n, more, func(body []byte) error {
		full = true
		m.Append(body[:0])
		return nil
	})
	return sent, full && !sent && err == nil, err
}

// post posts a request. A full send queue is not an error: the caller waits for completions.
func post(qp transport.QP, wr *transport.SendWR) (full bool, err error) {
	err = qp.PostSend(wr)
	if errors.Is(err, transport.ErrQueueFull) {
		return true, nil
	}
	return false, err
}

// OnCompletion handles the completion of a Read. When the last Read of a message has completed, its FIN is
// sent, the buffer belongs to the receiver again, and done is true for its token. done may be true together
// with an error, which then comes from the FIN or from later Reads.
func (r *Receiver) OnCompletion(wc *transport.WC) (token uint64, done bool, err error) {
	i := uint32(wc.ID)
	if int(i) >= len(r.table) || r.table[i].c == nil || r.table[i].wrID() != wc.ID {
		return 0, false, nil // of a failed fetch
	}
	t := r.table[i]
	l := r.queues[t.c]
	l.inFlight--
	t.method.arrive(r, t, wc.Bytes)
	if t.arrived < t.want {
		return 0, false, r.Progress(t.c)
	}
	c, token := t.c, t.token
	r.queueFIN(l, ATS{ID: t.source.ID})
	if err := r.release(t); err != nil {
		return token, true, err
	}
	return token, true, r.Progress(c)
}

// Missing returns how many bytes of the messages with a token are to be fetched and have not arrived. A Read,
// or a grant, counts when it has completed.
func (r *Receiver) Missing(token uint64) (n int) {
	for _, t := range r.table {
		if t.c != nil && t.token == token {
			n += t.want - t.arrived
		}
	}
	return n
}

// Fail abandons everything that a channel whose queue pair is cut has to fetch, and passes the tokens to
// each.
func (r *Receiver) Fail(c *channel.Channel, each func(token uint64)) error {
	var first error
	for _, t := range r.table {
		if t.c == c {
			token := t.token
			if t.staged.in != nil {
				first = errors.Join(first, r.stages.drop(t.staged.in))
				t.staged.in = nil
			}
			if err := r.release(t); err != nil && first == nil {
				first = err
			}
			each(token)
		}
	}
	if l := r.queues[c]; l != nil {
		r.inUse -= len(l.pendingFINs) - l.finsSent
		first = errors.Join(first, l.shared.drop())
		delete(r.queues, c)
		r.lastQueue = nil
	}
	return first
}

func (r *Receiver) alloc() *fetch {
	r.inUse++
	t := r.free
	if t == nil {
		t = &fetch{index: uint32(len(r.table))}
		r.table = append(r.table, t)
		return t
	}
	r.free, t.next = t.next, nil
	return t
}

// release frees a fetch and deregisters the user's buffer.
func (r *Receiver) release(t *fetch) (err error) {
	r.inUse--
	for i := range t.into.list {
		err = errors.Join(err, t.into.list[i].mr.Deregister())
		t.into.list[i] = segment{}
	}
	err = errors.Join(err, r.stages.give(t.staged.in))
	t.generation++
	t.c, t.into, t.staged = nil, segments{list: t.into.list[:0]}, staged{}
	t.next, r.free = r.free, t
	return err
}
