package engine

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
	"github.com/weft-mpi/weft/transport/tcp"
)

var (
	maliceRuns = flag.Int("malice.runs", 0, "runs of TestMaliciousRank on each fabric; 0: a few")
	maliceSeed = flag.Uint64("malice.seed", 1, "seed of the first of them")
)

// malicious is the device of a rank that holds the job's secret and keeps to no rule: it changes the
// descriptors of its rings, the bytes of slots (kinds, lengths, indices, credits), where Writes go,
// immediates, and it repeats, leaves out and invents requests. The engine above it is a good one, so that the
// peers are led deep into each protocol before something is wrong.
type malicious struct {
	transport.Device
	*lies
}

// lies is what a malicious rank does, and how often it did.
type lies struct {
	mu     sync.Mutex
	rand   *rand.Rand
	after  int // requests that are honest first
	rate   int // one of so many is not
	lie    int // the kind of lie, or -1 for all
	own    transport.MR
	keys   []transport.Segment // that the peers have given
	struck atomic.Int64

	shared bool          // what is shared is changed, too
	over   chan struct{} // closed when that ends
	pokers sync.WaitGroup
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
		a.struck.Inc()
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

// PostSend posts something else now and then. The engine's lock is held: no two calls of a queue pair run at
// a time.
func (q *maliciousQP) PostSend(wr *transport.SendWR) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range wr.Remote {
		if len(q.keys) < 64 {
			q.keys = append(q.keys, s)
		}
	}
	if q.after--; q.after > 0 || q.rand.IntN(q.rate) > 0 {
		return q.QP.PostSend(wr)
	}
	x := *wr
	x.Remote = append([]transport.Segment(nil), wr.Remote...)
	lie := q.lie
	if lie < 0 {
		lie = q.rand.IntN(kindsOfLies)
	}
	switch lie {
	case 0: // the bytes of a slot, or of a control message
		if len(x.Local) > 0 && x.Op != transport.OpRead && x.Local[0].Length > 0 {
			s := x.Local[0]
			q.spoil(s.MR.Bytes()[s.Offset:][:s.Length])
		}
	case 1: // where it goes, by a few lines
		for i := range x.Remote {
			x.Remote[i].Offset += uint64(int64(64 * (q.rand.IntN(9) - 4)))
		}
	case 2: // where it goes, far off
		for i := range x.Remote {
			x.Remote[i].Offset = q.rand.Uint64() >> (18 + q.rand.IntN(46))
		}
	case 3: // another region
		for i := range x.Remote {
			x.Remote[i].Key = q.someKey().Key
		}
	case 4: // the immediate
		x.Imm ^= 1 << q.rand.IntN(32)
	case 5:
		x.Imm = q.rand.Uint32() >> q.rand.IntN(32)
	case 6: // twice
		q.QP.PostSend(&x)
	case 7: // not at all
		if x.Flags&transport.FlagSignaled == 0 {
			q.struck.Inc()
			return nil
		}
	case 8: // an immediate that nobody waits for
		q.QP.PostSend(&transport.SendWR{Op: transport.OpWriteImm, Imm: q.rand.Uint32() >> q.rand.IntN(32)})
	case 9: // a Write into what the peer has given, at any place
		q.invent(transport.OpWrite)
	case 10: // a Read of it
		q.invent(transport.OpRead)
	case 11: // a message that has no place in the protocol
		q.invent(transport.OpSend)
	}
	q.struck.Inc()
	if err := q.QP.PostSend(&x); err != nil && !errors.Is(err, transport.ErrInvalid) {
		return err
	}
	return nil
}

const kindsOfLies = 12

func (q *maliciousQP) someKey() transport.Segment {
	if len(q.keys) == 0 {
		return transport.Segment{Key: 1}
	}
	return q.keys[q.rand.IntN(len(q.keys))]
}

// invent posts a request of its own.
func (q *maliciousQP) invent(op transport.Opcode) {
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
	q.QP.PostSend(wr)
}

// A misdeed is what the malicious rank does. stop ends it, before the rank does; its deeds are counted.
type misdeed interface {
	stop()
	deeds() int64
}

func newLies(seed uint64) *lies {
	random := rand.New(rand.NewPCG(seed, 100))
	return &lies{rand: random, after: random.IntN(60), rate: 1 + random.IntN(30),
		lie: max(random.IntN(2*kindsOfLies)-kindsOfLies, -1), over: make(chan struct{})}
}

func (l *lies) deeds() int64 { return l.struck.Load() }

func (l *lies) stop() {
	close(l.over)
	l.pokers.Wait()
}

// malices are what a malicious rank is tried on, and what it does there.
var malices = map[string]struct {
	device func() (transport.Device, error)
	of     func(t *testing.T, d transport.Device, seed uint64) (transport.Device, misdeed)
}{
	"tcp":       {plainTCP, requests},
	"lanes":     {threeLanes, requests},
	"reconnect": {checkedTCP, requests},
	"tls":       {func() (transport.Device, error) { return tcp.New(tcp.Options{TLS: true}) }, requests},
	"shm":       {sharedMemory, requests},

	"frames of tcp":       {plainTCP, frames},
	"frames of lanes":     {threeLanes, frames},
	"frames of reconnect": {reconnectingTCP, frames},
	"rings of shm":        {sharedMemory, rings},
}

func plainTCP() (transport.Device, error)   { return tcp.New(tcp.Options{}) }
func threeLanes() (transport.Device, error) { return tcp.New(tcp.Options{Lanes: 3}) }
func checkedTCP() (transport.Device, error) {
	return tcp.New(tcp.Options{Reconnect: true, Checksum: tcp.ChecksumAlways})
}
func reconnectingTCP() (transport.Device, error) { return tcp.New(tcp.Options{Reconnect: true}) }
func sharedMemory() (transport.Device, error)    { return shm.New(shm.Options{}) }

func requests(_ *testing.T, d transport.Device, seed uint64) (transport.Device, misdeed) {
	l := newLies(seed)
	return malicious{d, l}, l
}

func frames(t *testing.T, d transport.Device, seed uint64) (transport.Device, misdeed) {
	p := newTap(t, seed)
	return tapped{d, p}, p
}

func rings(_ *testing.T, d transport.Device, seed uint64) (transport.Device, misdeed) {
	l := newLies(seed)
	l.shared, l.rate = true, 1+l.rate/3
	return malicious{d, l}, l
}

// TestMaliciousRank: two honest ranks and one that holds the secret and keeps to no rule. What the honest
// ones say to each other comes, whole and in order; what they have to do with the third succeeds or fails
// with an error that names it, and nothing waits any more when it is gone; no rank panics, and what is kept
// of its messages is bounded.
func TestMaliciousRank(t *testing.T) {
	runs := *maliceRuns
	if runs == 0 {
		if runs = 7; testing.Short() {
			runs = 4
		}
	}
	for name, malice := range malices {
		t.Run(name, func(t *testing.T) {
			struck, failed := int64(0), 0
			for run := range runs {
				seed := *maliceSeed + uint64(run)
				if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
					s, f := againstMalice(t, malice.device, malice.of, seed)
					struck, failed = struck+s, failed+f
				}) {
					t.Fatalf("run it again with -malice.runs=1 -malice.seed=%d", seed)
				}
			}
			t.Logf("%d runs: %d lies; %d operations failed", runs, struck, failed)
			require.Positive(t, struck)
		})
	}
}

const maliceKeep = 256 << 10

// againstMalice is one run. It tells how often the malicious rank lied, and how many operations failed over
// it.
func againstMalice(t *testing.T, device func() (transport.Device, error),
	of func(*testing.T, transport.Device, uint64) (transport.Device, misdeed),
	seed uint64) (struck int64, failed int) {
	random := rand.New(rand.NewPCG(seed, 99))
	var m misdeed
	devices := make([]transport.Device, 3)
	for i := range devices {
		d, err := device()
		require.NoError(t, err)
		if devices[i] = d; i == 2 {
			devices[i], m = of(t, d, seed)
		}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := worldOf(t, devices, Config{MaxUnexpectedBytes: maliceKeep})

	var honest, dealings, third sync.WaitGroup
	var count atomic.Int64
	for r := range 2 {
		honest.Go(func() {
			if err := exchangeHonestly(w[r], 1-r, rand.New(rand.NewPCG(seed, 1))); err != nil {
				t.Errorf("honest rank %d: %v", r, err)
			}
		})
		for i, deal := range []func(e *Engine, peer int, random *rand.Rand) error{sendTo, receiveFrom,
			sendTo} {
			dealings.Go(func() {
				if err := deal(w[r], 2, rand.New(rand.NewPCG(seed, uint64(10+i)))); err != nil {
					count.Inc()
					if !strings.Contains(err.Error(), "rank 2") {
						t.Errorf("rank %d: the error does not name rank 2: %v", r, err)
					}
				}
			})
		}
		third.Go(func() { sendTo(w[2], r, rand.New(rand.NewPCG(seed, 20))) })
		third.Go(func() { receiveFrom(w[2], r, rand.New(rand.NewPCG(seed, 21))) })
		third.Go(func() { receiveFrom(w[2], r, rand.New(rand.NewPCG(seed, 22))) })
	}
	if !endsWithin(&honest) {
		t.Errorf("the honest ranks wait for each other")
	}
	time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond) // the third goes at any moment
	for _, e := range w[:2] {
		e.mu.Lock()
		if kept := e.unexpected.bytes; kept > 2*maliceKeep {
			t.Errorf("rank %d keeps %d bytes of unexpected messages", e.Rank(), kept)
		}
		e.mu.Unlock()
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 192<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	m.stop()
	w[2].Fail(ErrAborted)
	if !endsWithin(&dealings) {
		for _, e := range w {
			e.Fail(ErrAborted)
		}
		dealings.Wait()
		t.Errorf("a rank waits for one that is gone")
	}
	third.Wait()
	for _, e := range w {
		require.NoError(t, e.Destroy(ErrFinalized))
	}
	return m.deeds(), int(count.Load())
}

// endsWithin tells whether a group ends before it is given up.
func endsWithin(wg *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(time.Minute):
		return false
	}
}

// sizeOf is the size of a message: mostly small, some that go by rendezvous.
func sizeOf(random *rand.Rand) int {
	switch random.IntN(8) {
	case 0:
		return random.IntN(200_000)
	case 1, 2:
		return random.IntN(10_000)
	}
	return random.IntN(200)
}

const maliceMessages = 60

// exchangeHonestly sends a peer messages and takes as many of it.
func exchangeHonestly(e *Engine, peer int, random *rand.Rand) error {
	for seq := range maliceMessages {
		n := sizeOf(random)
		out, in := make([]byte, n), make([]byte, n)
		pattern(out, e.Rank(), seq)
		r, err := e.Irecv(world0, in, peer, 1, 1)
		if err != nil {
			return err
		}
		if err := e.Send(world0, out, peer, 1); err != nil {
			return err
		}
		if _, err := e.Wait(r); err != nil {
			return err
		}
		if err := checkPattern(in, peer, seq); err != nil {
			return err
		}
	}
	return nil
}

func sendTo(e *Engine, peer int, random *rand.Rand) error {
	for i := range maliceMessages {
		if err := e.Send(world0, make([]byte, sizeOf(random)), peer, 2+i%2); err != nil {
			return err
		}
	}
	return nil
}

// receiveFrom takes messages, of which nothing is believed.
func receiveFrom(e *Engine, peer int, random *rand.Rand) error {
	buf := make([]byte, 1<<20)
	for i := range maliceMessages {
		switch _, err := e.recv(world0, buf[:len(buf)>>random.IntN(12)], peer, 2+i%2, 1); {
		case errors.Is(err, ErrTruncate): // a message that is too long ends nothing
		case err != nil:
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}
