package shm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// The tests here run one rank in a process of its own: this binary again, which these environment variables
// make rank 1.
const (
	childKind  = "WEFT_TEST_SHM_KIND"  // what it does all the time
	childFlood = "WEFT_TEST_SHM_FLOOD" // the socket that kindFlood connects to
)

// kindFlood is a child that is no rank.
const kindFlood = "flood"

func TestMain(m *testing.M) {
	if kind := os.Getenv(childKind); kind != "" {
		var err error
		if kind == kindFlood {
			err = flood(os.Getenv(childFlood))
		} else {
			err = childRank(kind)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// traffic is what one side does to the other, over and over.
type traffic struct {
	name  string
	noCMA bool
	bytes int
	post  func(e *end, local transport.MR, far transport.Key, n int) *transport.SendWR
	far   func(e *end, n int) (transport.MR, error)
	recvs bool // the other side needs Recvs

	change func(o *Options)
}

const everyRight = transport.LocalWrite | transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic

func allocated(e *end, n int) (transport.MR, error) { return e.pd.Alloc(n, everyRight) }

func ordinary(e *end, n int) (transport.MR, error) { return e.pd.Register(make([]byte, n), everyRight) }

func request(op transport.Opcode) func(*end, transport.MR, transport.Key, int) *transport.SendWR {
	return func(_ *end, local transport.MR, far transport.Key, n int) *transport.SendWR {
		wr := &transport.SendWR{Op: op, Flags: transport.FlagSignaled, Operand: 1,
			Local: []transport.SGE{{MR: local, Length: n}}}
		if op != transport.OpSend {
			wr.Remote = []transport.Segment{{Key: far, Length: uint64(n)}}
		}
		return wr
	}
}

// kinds are all the ways in which bytes move.
var kinds = []traffic{
	{name: "Write", bytes: 1 << 20, far: allocated, post: request(transport.OpWrite)},
	{name: "WriteSmall", bytes: 64, far: allocated, post: request(transport.OpWrite)},
	{name: "WriteToOrdinaryMemory", bytes: 100_000, far: ordinary, post: request(transport.OpWrite)},
	{name: "WriteImm", bytes: 100_000, far: allocated, post: request(transport.OpWriteImm), recvs: true},
	{name: "Send", bytes: 100_000, far: allocated, post: request(transport.OpSend), recvs: true},
	{name: "Read", bytes: 1 << 20, far: allocated, post: request(transport.OpRead)},
	{name: "ReadOfOrdinaryMemory", bytes: 1 << 20, far: ordinary, post: request(transport.OpRead)},
	{name: "ReadThroughTheRing", bytes: 1 << 20, far: ordinary, post: request(transport.OpRead), noCMA: true},
	{name: "Atomic", bytes: 8, far: allocated, post: request(transport.OpFetchAdd)},
	{name: "AtomicOnOrdinaryMemory", bytes: 8, far: ordinary, post: request(transport.OpFetchAdd)},
}

func kindOf(name string) *traffic {
	if name == withheldRead.name {
		return &withheldRead
	}
	for i := range kinds {
		if kinds[i].name == name {
			return &kinds[i]
		}
	}
	return nil
}

func (k *traffic) options() Options {
	o := Options{NoCMA: k.noCMA}
	if k.change != nil {
		k.change(&o)
	}
	return o
}

// rank makes one end that listens.
func rank(number uint32, o Options) (*end, transport.Endpoint, error) {
	d, err := New(o)
	if err != nil {
		return nil, nil, err
	}
	e := &end{dev: d, made: make(chan transport.QP, 1)}
	var errs [2]error
	e.pd, errs[0] = d.AllocPD()
	e.cq, errs[1] = d.CreateCQ(1<<16, 0)
	ep, err := d.Listen(transport.Identity{Job: "processes", Rank: number, Size: 2}, e)
	return e, ep, errors.Join(errs[0], errs[1], err)
}

// run keeps requests of a kind under way until the connection ends, and tells each success.
func (k *traffic) run(e *end, far transport.Key, done func()) error {
	local, err := e.pd.Alloc(k.bytes, everyRight)
	if err != nil {
		return err
	}
	wr := k.post(e, local, far, k.bytes)
	var wc [16]transport.WC
	for under := 0; ; {
		for under < 4 {
			err := e.qp.PostSend(wr)
			if errors.Is(err, transport.ErrQueueFull) {
				break
			}
			if err != nil {
				return err
			}
			under++
		}
		for _, c := range wc[:e.cq.Poll(wc[:])] {
			if c.Op == transport.OpRecv {
				continue
			}
			under--
			if c.Status != transport.StatusSuccess {
				return c.Err
			}
			done()
		}
	}
}

// serve drives an end to which the other does everything, until the connection ends.
func (k *traffic) serve(e *end, stop func() bool) (rest []transport.WC) {
	var wc [16]transport.WC
	for e.qp.State() == transport.StateReady && !stop() {
		for _, c := range wc[:e.cq.Poll(wc[:])] {
			if c.Op == transport.OpRecv && c.Status == transport.StatusSuccess {
				_ = e.qp.PostRecv(e.room(k)) // of a queue that has just given one back
			} else {
				rest = append(rest, c)
			}
		}
	}
	for n := e.cq.Poll(wc[:]); n > 0; n = e.cq.Poll(wc[:]) {
		rest = append(rest, wc[:n]...)
	}
	return rest
}

func (e *end) room(k *traffic) *transport.RecvWR {
	wr := &transport.RecvWR{}
	if k.name == "Send" {
		wr.Local = []transport.SGE{{MR: e.into, Length: k.bytes}}
	}
	return wr
}

// childRank is rank 1: it connects to the address that it is given, and does what its kind says to the region
// whose key it is given; a kind with a '-' before is done to it.
func childRank(kind string) error {
	k := kindOf(strings.TrimPrefix(kind, "-"))
	in := bufio.NewReader(os.Stdin)
	e, ep, err := rank(1, k.options())
	if err != nil {
		return err
	}
	far, err := k.far(e, k.bytes)
	if err == nil {
		e.into, err = e.pd.Alloc(k.bytes, everyRight)
	}
	if err != nil {
		return err
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	addr, key, _ := strings.Cut(strings.TrimSpace(line), " ")
	theirs, err := strconv.ParseUint(key, 16, 64)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := ep.Connect(ctx, 0, addr); err != nil {
		return err
	}
	e.qp = (<-e.made).(*qp)
	for range recvs {
		if err := e.qp.PostRecv(e.room(k)); err != nil {
			return err
		}
	}
	fmt.Printf("%x\n", uint64(far.Key()))
	if strings.HasPrefix(kind, "-") {
		k.serve(e, func() bool { return false })
		return nil
	}
	// it ends with the connection, whose end the other side looks at
	_ = k.run(e, transport.Key(theirs), func() {})
	return nil
}

// child is a rank in a process of its own.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	far transport.Key // a region of it
}

// spawn makes rank 0 here and rank 1 in another process, connected, and gives both, with a region here that
// the child knows of.
func spawn(t *testing.T, kind string) (*end, *child, transport.MR) {
	t.Helper()
	k := kindOf(strings.TrimPrefix(kind, "-"))
	self, err := os.Executable()
	require.NoError(t, err)
	e, ep, err := rank(0, k.options())
	require.NoError(t, err)
	mine, err := k.far(e, k.bytes)
	require.NoError(t, err)
	e.into, err = e.pd.Alloc(k.bytes, everyRight)
	require.NoError(t, err)

	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), childKind+"="+kind)
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.in, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, start(t, c.cmd))
	t.Cleanup(func() { c.kill(); _ = e.dev.Close() })
	_, err = fmt.Fprintf(c.in, "%s %x\n", ep.Addr(), uint64(mine.Key()))
	require.NoError(t, err)
	select {
	case q := <-e.made:
		e.qp = q.(*qp)
	case <-time.After(2 * time.Minute):
		t.Fatal("the child does not connect")
	}
	for range recvs {
		require.NoError(t, e.qp.PostRecv(e.room(k)))
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	far, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	require.NoError(t, err)
	c.far = transport.Key(far)
	return e, c, mine
}

// start starts a program that ends with this one: with the thread that has started it, to be exact, so that
// thread is kept until the test is over.
func start(t *testing.T, cmd *exec.Cmd) error {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- cmd.Start()
		<-over
	}()
	return <-started
}

// kill ends the child, if it has not ended, and reaps it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	c.in.Close()
}

func (c *child) signal(t *testing.T, s syscall.Signal) { require.NoError(t, c.cmd.Process.Signal(s)) }

// stop stops the child and waits until it is.
func (c *child) stop(t *testing.T) {
	c.signal(t, syscall.SIGSTOP)
	var status syscall.WaitStatus
	_, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped(), "the child has ended: %v", status)
}

// stopOutsideWrites stops it, but not in the middle of a Write to e: that would have it waited for, then killed.
func (c *child) stopOutsideWrites(t *testing.T, e *end) {
	t.Helper()
	in := e.qp.conn.in
	for c.stop(t); atomic.LoadUint64(&in.block.placementSeq)&1 == 1; c.stop(t) {
		c.signal(t, syscall.SIGCONT)
	}
}

// recvs is how many Recvs a side has posted: more than there can be messages in a ring.
const recvs = 200

// held is how many peers may be writing here yet.
func (e *end) held() int {
	e.dev.live.Lock()
	defer e.dev.live.Unlock()
	return max(len(e.dev.live.links), len(e.dev.live.inbounds))
}

// left counts the descriptors of this process, and what it has mapped.
func left(t *testing.T) (descriptors int, mapped int64) {
	list, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	return len(list), sys.Mapped()
}

// A peer that is killed while it does something to us: each Recv completes once, the error names the loss,
// and nothing of it is left.
func TestProcess_PeerIsKilledAsItWorks(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			fds, mapped := left(t)
			e, c, mine := spawn(t, k.name)
			passes := 0
			wcs := k.serve(e, func() bool {
				passes++
				if passes == 2000 {
					c.kill()
				}
				return false
			})
			require.Equal(t, transport.StateError, e.qp.State())
			require.ErrorIs(t, e.qp.Err(), transport.ErrPeerLost)
			require.Len(t, wcs, recvs, "every posted Recv completes")
			for _, wc := range wcs {
				require.NotEqual(t, transport.StatusSuccess, wc.Status)
			}
			require.NoError(t, mine.Deregister())
			e.qp.Release()
			require.Zero(t, e.held(), "its end was heard of")
			require.NoError(t, e.dev.Close())
			nowFds, nowMapped := left(t)
			require.Equal(t, mapped, nowMapped)
			require.LessOrEqual(t, nowFds, fds)
		})
	}
}

// A peer that is killed while we do something to it.
func TestProcess_PeerIsKilledAsWeWork(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			fds, mapped := left(t)
			e, c, _ := spawn(t, "-"+k.name)
			done := 0
			err := k.run(e, c.far, func() {
				if done++; done == 50 {
					c.kill()
				}
			})
			require.GreaterOrEqual(t, done, 50)
			require.True(t, errors.Is(err, transport.ErrPeerLost) || errors.Is(err, transport.ErrState),
				"%v", err)
			require.ErrorIs(t, e.qp.Err(), transport.ErrPeerLost)
			require.NoError(t, e.dev.Close())
			nowFds, nowMapped := left(t)
			require.Equal(t, mapped, nowMapped)
			require.LessOrEqual(t, nowFds, fds)
		})
	}
}

// A peer that is stopped in the middle of a Write can wake up and go on: the memory that it was writing is
// not used for anything else.
func TestProcess_MemoryThatAStoppedPeerWritesIsNotUsedAgain(t *testing.T) {
	e, c, mine := spawn(t, "Write")
	var wc [16]transport.WC
	in := e.qp.conn.in
	for tries := 0; ; tries++ {
		require.Less(t, tries, 10_000, "it is never caught as it writes")
		e.cq.Poll(wc[:])
		c.stop(t)
		if atomic.LoadUint64(&in.block.placementSeq)&1 == 1 {
			break
		}
		c.signal(t, syscall.SIGCONT)
		time.Sleep(100 * time.Microsecond) // so that it gets on
	}
	at := addressOf(mine.Bytes())
	require.NoError(t, mine.Deregister())
	require.Len(t, e.dev.arena.quarantine, 1)
	next, err := e.pd.Alloc(1<<20, everyRight)
	require.NoError(t, err)
	require.NotEqual(t, at, addressOf(next.Bytes()), "the memory is used again")
	c.signal(t, syscall.SIGCONT)
	require.Eventually(t, func() bool { // its next Write names a key that is gone
		e.cq.Poll(wc[:])
		return e.qp.State() == transport.StateError
	}, 2*time.Minute, time.Millisecond)
	require.ErrorIs(t, e.qp.Err(), transport.ErrAccess)
	for _, b := range next.Bytes() {
		require.Zero(t, b, "it wrote into other memory")
	}
	require.NoError(t, next.Deregister())
	again, err := e.pd.Alloc(1<<20, everyRight)
	require.NoError(t, err)
	require.Empty(t, e.dev.arena.quarantine, "it has ended its Write")
	for _, b := range again.Bytes() {
		require.Zero(t, b)
	}
}

// A peer that is known to run is not lost, however long it says nothing.
func TestProcess_SilentPeerThatRunsIsNotLost(t *testing.T) {
	e, c, _ := spawn(t, "WriteSmall")
	e.attached(1)
	c.stopOutsideWrites(t, e) // and so it is silent
	running := true
	e.dev.opts.Running = func(uint32) bool { return running }
	now := time.Now()
	tick := func() {
		now = now.Add(e.dev.tickPeriod())
		e.cq.Tick(now)
	}
	for range 20 {
		tick()
		require.NotEqual(t, transport.StateError, e.qp.State())
	}
	running = false
	tick()
	require.ErrorIs(t, e.qp.Err(), transport.ErrPeerLost)
}

// A peer that is stopped is lost after its timeout; then it is killed, and its end frees what it held.
func TestProcess_StoppedPeerIsLost(t *testing.T) {
	e, c, _ := spawn(t, "WriteSmall")
	e.attached(1)
	c.stopOutsideWrites(t, e)
	now := time.Now()
	for i := 1; e.qp.State() != transport.StateError; i++ {
		require.Less(t, i, 10, "it is not lost")
		e.cq.Tick(now.Add(time.Duration(i) * e.dev.tickPeriod()))
	}
	require.ErrorIs(t, e.qp.Err(), transport.ErrPeerLost)
	require.NotZero(t, e.held(), "it may wake up")
	c.kill()
	require.Eventually(t, func() bool { return e.held() == 0 }, 2*2*time.Minute, time.Millisecond)
}
