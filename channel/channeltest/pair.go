package channeltest

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/transport"
)

// Pair is two queue pairs, A and B. Drive carries out posted requests in order, each in one piece. It has no
// faults and allocates nothing once it is warm. It has the verbs that the protocol layers use.
type Pair struct {
	A, B *End
	// if set, called for each request when it is carried out
	Carried func(from *End, wr *transport.SendWR, data []byte)

	attr    transport.DeviceAttr
	regions map[transport.Key]*region
	free    []*region
	lastKey transport.Key
}

// End is one end: its queue pair and its protection domain.
type End struct {
	transport.QP // methods not implemented here must not be called
	Name         string
	Depth        int // of the send queue
	Inlined      int // inline Writes, which bypass the send queue

	pair    *Pair
	peer    *End
	posted  []request
	recvs   []uint64
	wcs     []transport.WC
	live    int // regions registered
	pages   int // bytes of them, each rounded up to whole pages
	aborted error
}

type request struct {
	wr     transport.SendWR
	key    transport.Key // of the local region when it was posted
	inline [64]byte
	local  [1]transport.SGE
	remote [1]transport.Segment
}

type region struct {
	owner  *End
	mem    []byte
	access transport.Access
	key    transport.Key
}

// NewPair makes two connected ends, with send queues of 256 requests.
func NewPair() *Pair {
	p := &Pair{attr: transport.DeviceAttr{Provider: "pair", MaxReads: 16, TailLast: true},
		regions: map[transport.Key]*region{}}
	p.A = &End{Name: "A", Depth: 256, pair: p}
	p.B = &End{Name: "B", Depth: 256, pair: p, peer: p.A}
	p.A.peer = p.B
	return p
}

// PD returns the end's protection domain.
func (e *End) PD() transport.PD { return (*domain)(e) }

// Regions returns the number of registered regions.
func (e *End) Regions() int { return e.live }

// Pages returns the memory of the registered regions. Each is mapped separately, so it counts in whole pages.
func (e *End) Pages() int { return e.pages }

// pageBytes is the size of a page.
const pageBytes = 4096

func paged(n int) int { return (n + pageBytes - 1) / pageBytes * pageBytes }

// Num returns 1 for A and 2 for B.
func (e *End) Num() transport.QPN { return transport.QPN(e.Name[0] - 'A' + 1) }

// PostSend queues a request with at most one local and one remote element; a Send has none.
func (e *End) PostSend(wr *transport.SendWR) error {
	switch {
	case e.aborted != nil:
		return fmt.Errorf("%s: %w", e.Name, transport.ErrState)
	case len(e.posted) >= e.Depth:
		return fmt.Errorf("%s: %d requests: %w", e.Name, len(e.posted), transport.ErrQueueFull)
	case len(wr.Local) > 1 || len(wr.Remote) > 1:
		return fmt.Errorf("%s: more than one element: %w", e.Name, transport.ErrInvalid)
	}
	for _, s := range wr.Local {
		r, ok := s.MR.(*region)
		if !ok || r.owner != e || r.mem == nil || s.Offset < 0 || s.Length < 0 ||
			s.Offset > len(r.mem)-s.Length {
			return fmt.Errorf("%s: element %+v: %w", e.Name, s, transport.ErrInvalid)
		}
	}
	n := len(e.posted)
	if n == cap(e.posted) {
		grown := make([]request, n, 2*n+16)
		copy(grown, e.posted)
		e.posted = grown
	}
	e.posted = e.posted[:n+1]
	r := &e.posted[n]
	*r = request{}
	r.wr = *wr
	r.wr.Local = r.local[:copy(r.local[:], wr.Local)]
	r.wr.Remote = r.remote[:copy(r.remote[:], wr.Remote)]
	if len(wr.Local) > 0 {
		s := wr.Local[0]
		r.key = s.MR.Key()
		if wr.Flags&transport.FlagInline != 0 && copy(r.inline[:],
			s.MR.Bytes()[s.Offset:][:s.Length]) < s.Length {
			return fmt.Errorf("%s: %d bytes inline: %w", e.Name, s.Length, transport.ErrInvalid)
		}
	}
	return nil
}

// PostRecv queues room for one empty message.
func (e *End) PostRecv(wr *transport.RecvWR) error {
	e.recvs = append(e.recvs, wr.ID)
	return nil
}

// Flush does nothing: Drive does everything.
func (e *End) Flush() {}

// Abort cuts the connection: posted requests are not carried out, and complete flushed.
func (e *End) Abort(cause error) {
	for _, x := range []*End{e, e.peer} {
		if x.aborted != nil {
			continue
		}
		x.aborted = cause
		for i := range x.posted {
			wr := &x.posted[i].wr
			x.wcs = append(x.wcs, transport.WC{ID: wr.ID, QP: x.Num(), Op: wr.Op,
				Status: transport.StatusFlushed, Err: cause})
		}
		x.posted = x.posted[:0]
	}
}

// Drive carries out the posted requests of both ends. It returns errors that would end the connection.
func (p *Pair) Drive() error {
	for _, e := range []*End{p.A, p.B} {
		for i := range e.posted {
			if err := e.carry(&e.posted[i]); err != nil {
				return err
			}
		}
		e.posted = e.posted[:0]
	}
	return nil
}

func (e *End) carry(r *request) error {
	wr := &r.wr
	var local []byte
	if len(wr.Local) > 0 {
		switch s := wr.Local[0]; {
		case wr.Flags&transport.FlagInline != 0:
			local = r.inline[:s.Length]
		case e.pair.regions[r.key] == nil:
			return fmt.Errorf("%s: the local region is gone: %w", e.Name, transport.ErrAccess)
		default:
			local = s.MR.Bytes()[s.Offset:][:s.Length]
		}
	}
	if len(local) > 0 {
		right := transport.RemoteWrite
		if wr.Op == transport.OpRead {
			right = transport.RemoteRead
		}
		remote, err := e.reach(wr.Remote[0], right)
		if err != nil {
			return err
		}
		if wr.Op == transport.OpRead {
			copy(local, remote)
		} else {
			copy(remote, local)
		}
	}
	if e.pair.Carried != nil {
		e.pair.Carried(e, wr, local)
	}
	if wr.Op == transport.OpWriteImm || wr.Op == transport.OpSend {
		if len(e.peer.recvs) == 0 {
			return fmt.Errorf("%s: no receive is posted: %w", e.peer.Name, transport.ErrProtocol)
		}
		e.peer.wcs = append(e.peer.wcs, transport.WC{ID: e.peer.recvs[0], QP: e.peer.Num(),
			Op: transport.OpRecv, Imm: wr.Imm,
			HasImm: wr.Op == transport.OpWriteImm})
		e.peer.recvs = e.peer.recvs[:copy(e.peer.recvs, e.peer.recvs[1:])]
	}
	if wr.Flags&transport.FlagSignaled != 0 {
		e.wcs = append(e.wcs, transport.WC{ID: wr.ID, QP: e.Num(), Op: wr.Op, Bytes: len(local)})
	}
	return nil
}

func (e *End) reach(s transport.Segment, right transport.Access) ([]byte, error) {
	r := e.pair.regions[s.Key]
	if r == nil || r.owner != e.peer || r.access&right == 0 || s.Offset > uint64(len(r.mem)) ||
		s.Length > uint64(len(r.mem))-s.Offset {
		return nil, fmt.Errorf("%s: %+v: %w", e.Name, s, transport.ErrAccess)
	}
	return r.mem[s.Offset:][:s.Length], nil
}

// Inline returns a queue pair of the end that writes inline, as long as no request waits: into the peer's
// mapped memory, or as if over a fast network. From now on the pair's domains announce this.
func (e *End) Inline(mapped bool) transport.QP {
	e.pair.attr.InlineWrites, e.pair.attr.PeerMapped = true, mapped
	return inlineQP{e}
}

type inlineQP struct{ *End }

func (p inlineQP) PrefetchAddr(uint64) uintptr { return 0 }

func (p inlineQP) WriteInline(to *transport.Segment, head, payload []byte, tail uint64) bool {
	m, err := p.reach(*to, transport.RemoteWrite)
	if err != nil || len(p.posted) > 0 || p.aborted != nil ||
		len(m) < len(head)+len(payload)+transport.TailSize {
		return false
	}
	copy(m[copy(m, head):], payload)
	wordcopy.Put(m, len(m)-wordcopy.Size, tail)
	p.Inlined++
	if p.pair.Carried != nil {
		p.pair.Carried(p.End, &transport.SendWR{Op: transport.OpWrite, Remote: []transport.Segment{*to}}, m)
	}
	return true
}

// Poll takes completions, oldest first.
func (e *End) Poll(wc []transport.WC) int {
	n := copy(wc, e.wcs)
	e.wcs = e.wcs[:copy(e.wcs, e.wcs[n:])]
	return n
}

// domain is an End as a protection domain.
type domain End

func (d *domain) Register(buf []byte, access transport.Access) (transport.MR, error) {
	if len(buf) == 0 {
		return nil, fmt.Errorf("a region of no bytes: %w", transport.ErrInvalid) // some providers refuse it
	}
	p := d.pair
	var r *region
	if n := len(p.free); n > 0 {
		r, p.free = p.free[n-1], p.free[:n-1]
	} else {
		r = &region{}
	}
	p.lastKey++
	*r = region{owner: (*End)(d), mem: buf, access: access, key: p.lastKey}
	p.regions[r.key] = r
	d.live++
	d.pages += paged(len(buf))
	return r, nil
}

func (d *domain) Alloc(n int, access transport.Access) (transport.MR, error) {
	return d.Register(make([]byte, n), access)
}

func (d *domain) Close() error { return nil }

func (d *domain) DeviceAttr() transport.DeviceAttr { return d.pair.attr }

func (r *region) Bytes() []byte            { return r.mem }
func (r *region) Key() transport.Key       { return r.key }
func (r *region) Access() transport.Access { return r.access }

func (r *region) Deregister() error {
	if r.mem == nil {
		return fmt.Errorf("the region is gone: %w", transport.ErrInvalid)
	}
	delete(r.owner.pair.regions, r.key)
	r.owner.live--
	r.owner.pages -= paged(len(r.mem))
	r.mem = nil
	r.owner.pair.free = append(r.owner.pair.free, r)
	return nil
}

func (r *region) Detach() error { return r.Deregister() }

// Drop discards the first n posted requests.
func (e *End) Drop(n int) { e.posted = e.posted[n:] }
