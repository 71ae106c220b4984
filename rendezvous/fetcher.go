package rendezvous

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// FetcherConfig says how messages are read. A zero field stands for its default.
type FetcherConfig struct {
	Piece int // bytes of one Read; 512 KiB
	Depth int // Reads of one channel under way at once; 8
}

// Fetcher is the receiver's side, one for a rank.
type Fetcher struct {
	pd    transport.PD
	piece int
	depth int
	table []*transfer
	free  *transfer
	lines map[*channel.Channel]*line
}

// line is what one channel has to fetch, in the order of Start.
type line struct {
	first, last *transfer // those that have not all their Reads posted
	inFlight    int       // Reads
	owed        []fin     // FINs that found the send queue full

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
	first      int    // of into: the first part that is not all asked for
	want       int    // bytes to read: the message, or what of it fits
	posted     int    // of these, asked for
	arrived    int    // of these, placed
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
	wrTag          = 0x52
	generationMask = 1<<24 - 1
)

func (t *transfer) wrID() uint64 {
	return wrTag<<56 | uint64(t.generation&generationMask)<<32 | uint64(t.index)
}

// Owns tells whether a completion is of a work request of this package, by its id.
func Owns(id uint64) bool { return id>>56 == wrTag }

// NewFetcher makes the receiver's side of a rank whose channels use pd.
func NewFetcher(pd transport.PD, c FetcherConfig) *Fetcher {
	if c.Piece <= 0 {
		c.Piece = 512 << 10
	}
	if c.Depth <= 0 {
		c.Depth = 8
	}
	return &Fetcher{pd: pd, piece: c.Piece, depth: c.Depth, lines: map[*channel.Channel]*line{}}
}

// Start begins to read what was announced into bufs, one after the other, as much of it as fits. When it returns done there was nothing to
// read, and the token is not given back. Otherwise the buffers must be left alone until Completed, or Fail, gives token back; the slice
// of them is the caller's again. An error means that the channel must be failed; nothing of the message is kept then unless Fail gives the
// token back.
func (f *Fetcher) Start(c *channel.Channel, s Source, bufs [][]byte, token uint64) (done bool, err error) {
	l := f.line(c)
	t := f.take()
	t.source, t.token = s, token
	t.first, t.want, t.posted, t.arrived = 0, 0, 0, 0
	for _, buf := range bufs {
		if left := s.Length - uint64(t.want); uint64(len(buf)) > left {
			buf = buf[:left]
		}
		if len(buf) == 0 {
			continue
		}
		mr, err := f.pd.Register(buf, transport.LocalWrite)
		if err != nil {
			return false, errors.Join(fmt.Errorf("receive buffer of %d bytes: %w", len(buf), err), f.put(t))
		}
		t.into = append(t.into, part{mr: mr})
		t.want += len(buf)
	}
	if t.want == 0 {
		l.owed = append(l.owed, fin{s.ID})
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

func (f *Fetcher) line(c *channel.Channel) *line {
	l := f.lines[c]
	if l == nil {
		l = &line{}
		l.read = transport.SendWR{Op: transport.OpRead, Flags: transport.FlagSignaled, Local: l.local[:], Remote: l.remote[:]}
		l.fin = transport.SendWR{Op: transport.OpWriteImm}
		f.lines[c] = l
	}
	return l
}

// Progress posts the Reads and FINs that there is room for. Call it after completions of the channel's QP.
func (f *Fetcher) Progress(c *channel.Channel) error {
	l := f.lines[c]
	if l == nil {
		return nil
	}
	for len(l.owed) > 0 {
		l.fin.Imm = l.owed[0].imm()
		if full, err := post(c.QP(), &l.fin); full || err != nil {
			return err
		}
		l.owed = l.owed[:copy(l.owed, l.owed[1:])]
	}
	for l.first != nil && l.inFlight < f.depth {
		t := l.first
		p := &t.into[t.first]
		size := len(p.mr.Bytes())
		n := min(f.piece, size-p.posted)
		l.read.ID = t.wrID()
		l.local[0] = transport.SGE{MR: p.mr, Offset: p.posted, Length: n}
		l.remote[0] = transport.Segment{Key: t.source.Key, Offset: t.source.Offset + uint64(t.posted), Length: uint64(n)}
		if full, err := post(c.QP(), &l.read); full || err != nil {
			return err
		}
		l.inFlight++
		if p.posted += n; p.posted == size {
			t.first++
		}
		if t.posted += n; t.posted == t.want {
			l.first, t.next = t.next, nil
		}
	}
	return nil
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
	if !Owns(wc.ID) || int(i) >= len(f.table) || f.table[i].c == nil || f.table[i].wrID() != wc.ID {
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
	delete(f.lines, c)
	return first
}

func (f *Fetcher) take() *transfer {
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
	for i := range t.into {
		err = errors.Join(err, t.into[i].mr.Deregister())
		t.into[i] = part{}
	}
	t.generation++
	t.c, t.into = nil, t.into[:0]
	t.next, f.free = f.free, t
	return err
}
