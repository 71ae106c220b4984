//go:build linux

// Package malicetest makes devices for a rank that has the job's secret and breaks the rules. The engine
// above such a device is honest, so that the peers get deep into each protocol before something is wrong. It
// is for tests of the engine, with all ranks in one process, and of whole jobs.
package malicetest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/transport"
)

// A Misdeed is a protocol violation by a malicious (Byzantine) rank.
type Misdeed interface {
	Stop() // ends the misdeeds, before the rank ends
	Deeds() int64
	// Tell registers a function that is called before the first misdeed, while no peer has noticed any. Later
	// ones are only counted. It is for a rank that may be killed at any time afterwards.
	Tell(first func())
}

// deeds counts the misdeeds of a malicious rank.
type deeds struct {
	count atomic.Int64
	first func()
}

func (d *deeds) Deeds() int64 { return d.count.Load() }

func (d *deeds) Tell(first func()) { d.first = first }

// add is called before a deed.
func (d *deeds) add() {
	if d.count.Inc() == 1 && d.first != nil {
		d.first()
	}
}

// Kind makes a malicious device from an honest one. Its misdeeds depend on the seed, and on the timing of the
// peers' messages.
type Kind func(d transport.Device, seed uint64) (transport.Device, Misdeed)

// Requests changes the descriptors of rings, the bytes of slots (kinds, lengths, indices, credits), the
// targets of Writes, and immediates; it repeats, omits and invents requests.
func Requests(d transport.Device, seed uint64) (transport.Device, Misdeed) {
	l := newLies(seed)
	return malicious{d, l}, l
}

// Rings is Requests over shared memory, which also changes the memory shared with a peer.
func Rings(d transport.Device, seed uint64) (transport.Device, Misdeed) {
	l := newLies(seed)
	l.shared, l.rate = true, 1+l.rate/3
	return malicious{d, l}, l
}

type malicious struct {
	transport.Device
	*lies
}

// lies has the settings and the count of a malicious rank's misdeeds.
type lies struct {
	mu    sync.Mutex
	rand  *rand.Rand
	after int // number of honest requests at first
	rate  int // one in so many later requests is a lie
	lie   int // the kind of lie, or -1 for all
	own   transport.MR
	keys  []transport.Segment // given by the peers
	deeds

	shared bool          // also changes shared memory
	over   chan struct{} // closed when the changes to shared memory end
	pokers sync.WaitGroup
}

func newLies(seed uint64) *lies {
	random := rand.New(rand.NewPCG(seed, 100))
	return &lies{rand: random, after: random.IntN(60), rate: 1 + random.IntN(30),
		lie: max(random.IntN(2*kindsOfLies)-kindsOfLies, -1), over: make(chan struct{})}
}

func (l *lies) Stop() {
	close(l.over)
	l.pokers.Wait()
}

func (d malicious) Listen(id transport.Identity, a transport.Acceptor) (transport.Endpoint, error) {
	return d.Device.Listen(id, maliciousAcceptor{a, d.lies})
}

type maliciousAcceptor struct {
	transport.Acceptor
	*lies
}

// Prepare changes the descriptor of the rings now and then.
func (a maliciousAcceptor) Prepare(rank uint32) (transport.QPConfig, []byte, error) {
	conf, private, err := a.Acceptor.Prepare(rank)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		return conf, private, err
	}
	if a.own == nil {
		if a.own, err = conf.PD.Alloc(4096,
			transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead); err != nil {
			return conf, private, err
		}
	}
	if a.rand.IntN(6) == 0 && len(private) > 0 {
		private = bytes.Clone(private)
		a.spoil(private)
		a.add()
	}
	return conf, private, nil
}

func (a maliciousAcceptor) Connected(rank uint32, qp transport.QP, private []byte) {
	if a.shared {
		state := sharedStateOf(qp)
		a.pokers.Go(func() { state.pokeNowAndThen(a.lies) })
	}
	a.Acceptor.Connected(rank, &maliciousQP{QP: qp, lies: a.lies}, private)
}

func (l *lies) spoil(b []byte) { spoil(l.rand, b) }

// spoil changes some bytes: a bit, or a word that is most likely out of range.
func spoil(r *rand.Rand, b []byte) {
	near := min(len(b), 40)
	switch r.IntN(4) {
	case 0:
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
	case 1:
		b[r.IntN(near)] ^= 1 << r.IntN(8)
	case 2:
		b[len(b)-1-r.IntN(near)] ^= 1 << r.IntN(8)
	default:
		value, width := oddNumber(r), []int{1, 2, 4, 8}[r.IntN(4)]
		for i, at := 0, r.IntN(near)/width*width; i < width && at+i < len(b); i++ {
			b[at+i] = byte(value >> (8 * i))
		}
	}
}

func oddNumber(r *rand.Rand) uint64 {
	odd := []uint64{0, 1, 7, 1 << 16, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 63, 1<<64 - 1,
		r.Uint64()}
	return odd[r.IntN(len(odd))]
}

type maliciousQP struct {
	transport.QP
	*lies
}

// MapRegion is honest: any use of the mapped memory is allowed and unchecked.
func (q *maliciousQP) MapRegion(key transport.Key) (mem []byte, unmap func() error, ok bool) {
	if m, is := q.QP.(transport.Mapper); is {
		return m.MapRegion(key)
	}
	return nil, nil, false
}

// due reports whether the next request is a lie, and which.
func (q *maliciousQP) due(to []transport.Segment) (lie int, due bool) {
	for _, s := range to {
		if len(q.keys) < 64 {
			q.keys = append(q.keys, s)
		}
	}
	if q.after--; q.after > 0 || q.rand.IntN(q.rate) > 0 {
		return 0, false
	}
	if q.lie < 0 {
		return q.rand.IntN(kindsOfLies), true
	}
	return q.lie, true
}

// PostSend sometimes posts something else. The engine's lock is held, so calls of a queue pair are
// serialized.
func (q *maliciousQP) PostSend(wr *transport.SendWR) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	lie, due := q.due(wr.Remote)
	if !due {
		return q.QP.PostSend(wr)
	}
	x := *wr
	x.Remote = append([]transport.Segment(nil), wr.Remote...)
	changed := true
	switch lie {
	case 0: // the bytes of a slot, or of a control message
		if changed = len(x.Local) > 0 && x.Op != transport.OpRead && x.Local[0].Length > 0; changed {
			s := x.Local[0]
			q.spoil(s.MR.Bytes()[s.Offset:][:s.Length])
		}
	case 4: // the immediate
		changed = x.Op == transport.OpWriteImm
		x.Imm ^= 1 << q.rand.IntN(32)
	case 5:
		changed = x.Op == transport.OpWriteImm
		x.Imm = q.rand.Uint32() >> q.rand.IntN(32)
	case 6: // twice
		q.add()
		q.QP.PostSend(&x)
		changed = false // it is counted
	case 7: // not at all
		if changed = x.Flags&transport.FlagSignaled == 0; changed {
			q.add()
			return nil
		}
	default:
		changed = q.misplace(lie, x.Remote)
		if !changed {
			q.inventBefore(lie)
		}
	}
	if changed {
		q.add()
	}
	if err := q.QP.PostSend(&x); err != nil && !errors.Is(err, transport.ErrInvalid) {
		return err
	}
	return nil
}

// WriteInline sometimes writes something else, as PostSend does.
func (q *maliciousQP) WriteInline(to *transport.Segment, head, payload []byte, tail uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	x := []transport.Segment{*to}
	lie, due := q.due(x)
	if !due {
		return q.QP.WriteInline(to, head, payload, tail)
	}
	if uint64(len(head)+len(payload))+transport.TailSize > to.Length {
		return false // as the provider may, too
	}
	switch lie {
	case 0:
		part := bytes.Clone(head)
		if len(payload) > 0 && q.rand.IntN(2) == 0 {
			part = bytes.Clone(payload)
		}
		if len(part) == 0 || q.rand.IntN(4) == 0 {
			tail = oddNumber(q.rand)
			break
		}
		if q.spoil(part); len(part) == len(head) {
			head = part
		} else {
			payload = part
		}
	case 4:
		tail ^= 1 << q.rand.IntN(64)
	case 5:
		tail = q.rand.Uint64() >> q.rand.IntN(64)
	case 6:
		q.add()
		q.QP.WriteInline(to, head, payload, tail)
		return q.QP.WriteInline(to, head, payload, tail)
	case 7:
		q.add()
		return true
	default:
		if !q.misplace(lie, x) {
			q.inventBefore(lie)
			return q.QP.WriteInline(to, head, payload, tail)
		}
	}
	q.add()
	return q.QP.WriteInline(&x[0], head, payload, tail) || x[0] != *to
}

// The kinds of lies that concern any request are those of misplace and inventBefore.
const kindsOfLies = 12

// misplace changes the target of a request.
func (q *maliciousQP) misplace(lie int, to []transport.Segment) bool {
	for i := range to {
		switch lie {
		case 1: // by a few lines
			to[i].Offset += uint64(int64(64 * (q.rand.IntN(9) - 4)))
		case 2: // far off
			to[i].Offset = q.rand.Uint64() >> (18 + q.rand.IntN(46))
		case 3: // another region
			to[i].Key = q.someKey().Key
		default:
			return false
		}
	}
	return len(to) > 0
}

// inventBefore posts a request without a reason.
func (q *maliciousQP) inventBefore(lie int) {
	wr := &transport.SendWR{Op: transport.OpWriteImm, Imm: q.rand.Uint32() >> q.rand.IntN(32)}
	switch lie {
	case 8: // an immediate that nobody waits for
	case 9: // a Write to any place of a region that the peer has given
		wr = q.invented(transport.OpWrite)
	case 10: // a Read of that region
		wr = q.invented(transport.OpRead)
	case 11: // a message that has no place in the protocol
		wr = q.invented(transport.OpSend)
	default:
		return
	}
	q.add()
	if q.QP.PostSend(wr) != nil {
		q.count.Dec()
	}
}

func (q *maliciousQP) someKey() transport.Segment {
	if len(q.keys) == 0 {
		return transport.Segment{Key: 1}
	}
	return q.keys[q.rand.IntN(len(q.keys))]
}

// invented returns a request that the engine has not made.
func (q *maliciousQP) invented(op transport.Opcode) *transport.SendWR {
	n := 8 * (1 + q.rand.IntN(64))
	b := q.own.Bytes()[:n]
	for i := range b {
		b[i] = byte(q.rand.Uint32())
	}
	wr := &transport.SendWR{Op: op, Local: []transport.SGE{{MR: q.own, Length: n}}}
	if op != transport.OpSend {
		to := q.someKey()
		to.Length = uint64(n)
		if q.rand.IntN(2) == 0 {
			to.Offset = to.Offset/8*8 + uint64(64*q.rand.IntN(64))
		}
		wr.Remote = []transport.Segment{to}
	}
	return wr
}
