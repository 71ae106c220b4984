package rendezvous

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// FetcherConfig says how messages are read. A zero field stands for its default.
type FetcherConfig struct {
	Piece int  // bytes of one Read; 1 MiB
	Depth int  // Reads of one channel under way at once, 8; or grants, MaxGranted, which is also the most
	Grant bool // nothing is read: buffers are granted to the senders, who write
}

// What is moved at once if nothing else is said: bytes of a piece, and pieces of one channel under way.
const (
	pieceBytes = 1 << 20
	pieceDepth = 8
)

func orDefault(n, without int) int {
	if n <= 0 {
		return without
	}
	return n
}

// Fetcher is the receiver's side, one for a rank.
type Fetcher struct {
	pd     transport.PD
	piece  int
	depth  int
	grants bool
	table  []*transfer
	free   *transfer
	busy   int // transfers, and FINs that are owed
	lines  map[*channel.Channel]*line
	room   transport.RecvWR // for the end of a grant: no bytes
}

// line is what one channel has to fetch, in the order of Start.
type line struct {
	first, last *transfer // those that have not all their Reads posted, or their CTSs sent
	inFlight    int       // Reads, or grants
	owed        []fin     // FINs that found the send queue full
	spare       int       // Recvs that were posted for grants that did not come about
	full        bool      // the send queue had no room for what is next

	getter transport.Getter // of the channel's queue pair; nil if that is none
	read   transport.SendWR
	local  [1]transport.SGE
	remote [1]transport.Segment
	fin    transport.SendWR
}

// transfer is one announced message on its way into a user's buffer.
type transfer struct {
	index      uint32
	generation uint32           // steps with every use, so that a completion of an earlier one does not match
	c          *channel.Channel // nil in a free entry
	source     Source
	into       []part // the user's buffer; keeps its memory from one use to the next
	first      int    // of into: the first part that is not all asked for, or granted
	want       int    // bytes to read: the message, or what of it fits
	posted     int    // of these, asked for, or granted
	arrived    int    // of these, placed by Reads
	ended      int    // grants that their sender has ended
	token      uint64
	next       *transfer
}

// part is a stretch of the user's buffer.
type part struct {
	mr     transport.MR
	posted int // bytes asked for
}

// The top byte marks the WR ids of this package.
const (
	readTag        = 0x52
	writeTag       = 0x57
	generationMask = 1<<24 - 1
)

func (t *transfer) wrID() uint64 {
	return readTag<<56 | uint64(t.generation&generationMask)<<32 | uint64(t.index)
}

// Owns tells whether a completion is of a work request of this package, by its id.
func Owns(id uint64) bool { return id>>56 == readTag || id>>56 == writeTag }

// NewFetcher makes the receiver's side of a rank whose channels use pd.
func NewFetcher(pd transport.PD, c FetcherConfig) *Fetcher {
	depth := orDefault(c.Depth, pieceDepth)
	if c.Grant {
		depth = min(orDefault(c.Depth, MaxGranted), MaxGranted)
	}
	return &Fetcher{pd: pd, piece: orDefault(c.Piece, pieceBytes), depth: depth, grants: c.Grant, lines: map[*channel.Channel]*line{}}
}

// Start begins to fetch what was announced into bufs, one after the other, as much of it as fits. When it returns done there was nothing to
// fetch, and the token is not given back. Otherwise the buffers must be left alone until Completed, Ended or Fail gives token back; the slice
// of them is the caller's again. An error means that the channel must be failed; nothing of the message is kept then unless Fail gives the
// token back.
func (f *Fetcher) Start(c *channel.Channel, s Source, bufs [][]byte, token uint64) (done bool, err error) {
	l := f.line(c)
	t := f.take()
	t.source, t.token = s, token
	t.first, t.want, t.posted, t.arrived, t.ended = 0, 0, 0, 0, 0
	rights := transport.LocalWrite
	if f.grants {
		rights = transport.RemoteWrite
	}
	for _, buf := range bufs {
		if left := s.Length - uint64(t.want); uint64(len(buf)) > left {
			buf = buf[:left]
		}
		if len(buf) == 0 {
			continue
		}
		mr, err := f.pd.Register(buf, rights)
		if err != nil {
			return false, errors.Join(fmt.Errorf("receive buffer of %d bytes: %w", len(buf), err), f.put(t))
		}
		t.into = append(t.into, part{mr: mr})
		t.want += len(buf)
	}
	if t.want == 0 {
		l.owed = append(l.owed, fin{s.ID})
		f.busy++
		return true, errors.Join(f.put(t), f.Progress(c))
	}
	t.c = c
	if l.first == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
	return false, f.Progress(c)
}

// Get is Start where the message can be copied at once: done tells whether buf has all of it, and its FIN is on its way. Otherwise nothing has
// happened, except that buf may have been written to. An error beside done means that the channel must be failed.
func (f *Fetcher) Get(c *channel.Channel, s Source, buf []byte) (done bool, err error) {
	l := f.line(c)
	if f.grants || l.getter == nil || s.Length == 0 || s.Length > uint64(len(buf)) || l.first != nil || l.inFlight > 0 {
		return false, nil
	}
	l.remote[0] = transport.Segment{Key: s.Key, Offset: s.Offset, Length: s.Length}
	if !l.getter.Get(buf[:s.Length], &l.remote[0]) {
		return false, nil
	}
	l.owed = append(l.owed, fin{s.ID})
	f.busy++
	return true, f.Progress(c)
}

func (f *Fetcher) line(c *channel.Channel) *line {
	l := f.lines[c]
	if l == nil {
		l = &line{}
		l.getter, _ = c.QP().(transport.Getter)
		l.read = transport.SendWR{Op: transport.OpRead, Flags: transport.FlagSignaled, Local: l.local[:], Remote: l.remote[:]}
		l.fin = transport.SendWR{Op: transport.OpWriteImm}
		f.lines[c] = l
	}
	return l
}

// Progress posts the Reads and FINs, and sends the CTSs, that there is room for. Call it after completions of the channel's QP, and when
// credits have come.
func (f *Fetcher) Progress(c *channel.Channel) (err error) {
	l := f.lines[c]
	if l == nil {
		return nil
	}
	l.full = false
	for len(l.owed) > 0 {
		l.fin.Imm = l.owed[0].imm()
		if l.full, err = post(c.QP(), &l.fin); l.full || err != nil {
			return err
		}
		l.owed = l.owed[:copy(l.owed, l.owed[1:])]
		f.busy--
	}
	for l.first != nil && l.inFlight < f.depth {
		t, ask := l.first, (*Fetcher).read
		if f.grants {
			ask = (*Fetcher).grant
		}
		if asked, err := ask(f, c, l, t); !asked {
			return err
		}
		l.inFlight++
		if t.posted == t.want {
			l.first, t.next = t.next, nil
		}
	}
	return nil
}

// Idle tells whether nothing is under way, on any channel: then Progress has nothing to do.
func (f *Fetcher) Idle() bool { return f.busy == 0 }

// Full tells whether Progress has found the send queue full, and is to be called again after the next pass.
func (f *Fetcher) Full(c *channel.Channel) bool {
	l := f.lines[c]
	return l != nil && l.full
}

// read posts the next Read of a message; false when there is no room for it.
func (f *Fetcher) read(c *channel.Channel, l *line, t *transfer) (bool, error) {
	p := &t.into[t.first]
	size := len(p.mr.Bytes())
	n := min(f.piece, size-p.posted)
	l.read.ID = t.wrID()
	l.local[0] = transport.SGE{MR: p.mr, Offset: p.posted, Length: n}
	l.remote[0] = transport.Segment{Key: t.source.Key, Offset: t.source.Offset + uint64(t.posted), Length: uint64(n)}
	var err error
	if l.full, err = post(c.QP(), &l.read); l.full || err != nil {
		return false, err
	}
	if p.posted += n; p.posted == size {
		t.first++
	}
	t.posted += n
	return true, nil
}

// post posts a request; a full send queue is no error, but time to wait for completions.
func post(qp transport.QP, wr *transport.SendWR) (full bool, err error) {
	err = qp.PostSend(wr)
	if errors.Is(err, transport.ErrQueueFull) {
		return true, nil
	}
	return false, err
}

// Completed takes the completion of a Read. When the last one of a message has come its FIN is sent, the buffer is the receiver's again,
// and done says so for its token; beside an error, too, which then is of the FIN or of the Reads behind it.
func (f *Fetcher) Completed(wc *transport.WC) (token uint64, done bool, err error) {
	i := uint32(wc.ID)
	if int(i) >= len(f.table) || f.table[i].c == nil || f.table[i].wrID() != wc.ID {
		return 0, false, nil // of a transfer that was given up
	}
	t := f.table[i]
	l := f.lines[t.c]
	l.inFlight--
	t.arrived += wc.Bytes
	if t.arrived < t.want {
		return 0, false, f.Progress(t.c)
	}
	c, token := t.c, t.token
	l.owed = append(l.owed, fin{t.source.ID})
	f.busy++
	if err := f.put(t); err != nil {
		return token, true, err
	}
	return token, true, f.Progress(c)
}

// Fail gives up all that a channel whose queue pair is cut has to fetch, and gives the tokens to each.
func (f *Fetcher) Fail(c *channel.Channel, each func(token uint64)) error {
	var first error
	for _, t := range f.table {
		if t.c == c {
			token := t.token
			if err := f.put(t); err != nil && first == nil {
				first = err
			}
			each(token)
		}
	}
	if l := f.lines[c]; l != nil {
		f.busy -= len(l.owed)
		delete(f.lines, c)
	}
	return first
}

func (f *Fetcher) take() *transfer {
	f.busy++
	t := f.free
	if t == nil {
		t = &transfer{index: uint32(len(f.table))}
		f.table = append(f.table, t)
		return t
	}
	f.free, t.next = t.next, nil
	return t
}

// put frees an entry and gives the user's buffer back.
func (f *Fetcher) put(t *transfer) (err error) {
	f.busy--
	for i := range t.into {
		err = errors.Join(err, t.into[i].mr.Deregister())
		t.into[i] = part{}
	}
	t.generation++
	t.c, t.into = nil, t.into[:0]
	t.next, f.free = f.free, t
	return err
}
