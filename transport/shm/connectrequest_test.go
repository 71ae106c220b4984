package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// begin begins a connection to a rank at an address; what it returns tells how it ended otherwise.
func (d *door) begin(t *testing.T, rank uint32, addr string) (failed chan struct{}) {
	t.Helper()
	failed = make(chan struct{})
	require.True(t, d.ep.(*endpoint).Begin(rank, addr, func() { close(failed) }))
	d.ep.(*endpoint).Ask()
	return failed
}

// Two ranks of a host connect without sockets, and nothing of the request remains.
func TestBegin_NeedsNoSocket(t *testing.T) {
	a, b := openDoor(t, Options{}), openRank(t, 1)
	for _, d := range []*door{a, b} {
		require.NoError(t, d.ep.(*endpoint).listener.Close())
	}
	failed := b.begin(t, 0, a.ep.Addr())
	<-a.made
	select {
	case <-b.made:
	case <-failed:
		t.Fatal("it has failed")
	}
	require.True(t, b.ep.(*endpoint).Begin(0, a.ep.Addr(), nil), "it is connected already")
	table := a.ep.(*endpoint).requests.table
	for i := range table.entries {
		require.Zero(t, table.entries[i].state)
	}
}

// All ranks connect to all others at once: each two have one connection.
func TestBegin_AllAtOnce(t *testing.T) {
	const ranks = 8
	var doors [ranks]*door
	for i := range doors {
		doors[i] = openEnd(t, Options{}, transport.Identity{Job: "door", Rank: uint32(i), Size: ranks})
	}
	var calls sync.WaitGroup
	for i, d := range doors {
		calls.Go(func() {
			for k := 1; k < ranks; k++ {
				peer := uint32((i + k) % ranks)
				addr := doors[peer].ep.Addr()
				wait := func() {
					if err := d.ep.Connect(context.Background(), peer, addr); err != nil {
						t.Error(err)
					}
				}
				if !d.ep.(*endpoint).Begin(peer, addr, wait) {
					wait()
				}
				d.ep.(*endpoint).Ask()
			}
		})
	}
	calls.Wait()
	for i, d := range doors {
		seen := map[uint32]bool{uint32(i): true}
		for range ranks - 1 {
			peer := (<-d.made).(*qp).Attr.Peer
			require.False(t, seen[peer], "ranks %d and %d are connected twice", i, peer)
			seen[peer] = true
		}
		require.Empty(t, d.made)
	}
}

// Ask wakes nobody for a request that is answered: by an offer, or because the peer's own request stays.
func TestAsk_AfterTheAnswer(t *testing.T) {
	a, b := openDoor(t, Options{}), openRank(t, 1)
	owner, asker := a.ep.(*endpoint), b.ep.(*endpoint)
	func() {
		owner.requests.mu.Lock() // its goroutine cannot answer
		defer owner.requests.mu.Unlock()
		require.True(t, asker.Begin(0, a.ep.Addr(), nil))
		asker.requests.mu.Lock()
		defer asker.requests.mu.Unlock()
		own := asker.requests.pending[0]
		require.EqualValues(t, entryAsked, own.entry.state)
		atomic.StoreUint64(&own.entry.state, entryStays)
		require.False(t, asker.takeAnswer(own), "it waits for the peer's own request")
	}()
	asker.Ask()
	require.True(t, owner.Begin(1, b.ep.Addr(), nil))
	owner.Ask()
	<-a.made
	<-b.made
}

// An arena that is not of the rank that is meant is not used, and only the socket remains.
func TestBegin_OtherMemory(t *testing.T) {
	a, b := openDoor(t, Options{}), openRank(t, 1)
	stranger := openEnd(t, Options{}, transport.Identity{Job: "another", Rank: 0, Size: 3})
	second := openRank(t, 2)
	host, name, _ := split(a.ep.Addr())
	start := addressPrefix + host + ":" + name
	here := a.ep.(*endpoint).requests.here
	place := func(change func(l *location)) string {
		l := here
		change(&l)
		return start + ":" + l.String()
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	pipe, _, err := sys.SharedID(int(r.Fd()))
	require.NoError(t, err)
	traitor := openEnd(t, Options{}, transport.Identity{Job: "door", Rank: 0, Size: 3, Secret: [32]byte{1}})
	_, mapped := left(t)
	for text, addr := range map[string]string{
		"no place":               start,
		"of words":               start + ":a.b.c.d",
		"another inode":          place(func(l *location) { l.memory++ }),
		"another descriptor":     place(func(l *location) { l.fd = 1 << 20 }),
		"no process":             place(func(l *location) { l.pid = 1 << 30 }),
		"other processes":        place(func(l *location) { l.space = "1" }),
		"a pipe":                 place(func(l *location) { l.fd, l.memory = uint32(r.Fd()), pipe }),
		"another rank's":         start + ":" + second.ep.(*endpoint).requests.here.String(),
		"that of another job":    start + ":" + stranger.ep.(*endpoint).requests.here.String(),
		"that of another secret": start + ":" + traitor.ep.(*endpoint).requests.here.String(),
	} {
		require.False(t, b.ep.(*endpoint).Begin(0, addr, nil), text)
		_, now := left(t)
		require.Equal(t, mapped, now, text)
		require.Zero(t, b.held(), text)
	}
	require.NoError(t, b.ep.Connect(context.Background(), 0, a.ep.Addr()))
}

// picky is a rank that refuses everybody.
type picky struct{ *door }

func (picky) Prepare(uint32) (transport.QPConfig, []byte, error) {
	return transport.QPConfig{}, nil, errors.New("not today")
}

// A rank that is refused asks the socket, which gives the reason.
func TestBegin_RefusedBySocketWithTheReason(t *testing.T) {
	a, b := openDoor(t, Options{}), openRank(t, 1)
	a.ep.(*endpoint).acceptor = picky{a}
	<-b.begin(t, 0, a.ep.Addr())
	require.ErrorContains(t, <-a.refused, "not today")
	require.Zero(t, b.held())
	err := b.ep.Connect(context.Background(), 0, a.ep.Addr())
	require.ErrorContains(t, err, "not today")
}

// What a rank asks for as it closes is withdrawn; the peer frees the entry and keeps nothing.
func TestBegin_WithdrawnByClose(t *testing.T) {
	a, b := openDoor(t, Options{}), openRank(t, 1)
	table := a.ep.(*endpoint).requests.table
	busy := &a.ep.(*endpoint).requests.mu
	busy.Lock() // it answers nobody
	b.begin(t, 0, a.ep.Addr())
	require.NoError(t, b.ep.Close())
	require.Zero(t, b.held())
	busy.Unlock()
	for i := range table.entries {
		for atomic.LoadUint64(&table.entries[i].state) != entryFree {
			runtime.Gosched()
		}
	}
	require.Zero(t, a.held())
	require.Empty(t, a.made)
}

// A rank that closes frees the entry of a request whose answer it has not taken.
func TestBegin_AnsweredAsItCloses(t *testing.T) {
	a, b := openDoor(t, Options{}), openRank(t, 1)
	table, own := a.ep.(*endpoint).requests.table, &b.ep.(*endpoint).requests
	busy := &a.ep.(*endpoint).requests.mu
	busy.Lock() // it answers nobody
	b.begin(t, 0, a.ep.Addr())
	own.mu.Lock() // b's goroutine must not take the answer
	pending := own.pending
	own.pending = nil
	own.mu.Unlock()
	for i := range table.entries {
		atomic.CompareAndSwapUint64(&table.entries[i].state, entryAsked, entryRefused)
	}
	busy.Unlock()
	own.mu.Lock()
	own.pending = pending
	own.mu.Unlock()
	require.NoError(t, b.ep.Close())
	for i := range table.entries {
		require.EqualValues(t, entryFree, atomic.LoadUint64(&table.entries[i].state))
	}
}

// Whatever stands in a request, it is refused, and the next genuine one is answered.
func TestMaliciousRank_AsksForOtherThings(t *testing.T) {
	a, b := openDoor(t, Options{}), openRank(t, 1)
	owner, peer := a.ep.(*endpoint), b.ep.(*endpoint)
	mem, err := peer.mapArena(owner.requests.here, 0)
	require.NoError(t, err)
	defer sys.UnmapShared(mem)
	block, err := b.dev.arena.block()
	require.NoError(t, err)
	ring := &controlBlockAt(b.dev.arena.mem, uint64(block)).ring
	for text, change := range map[string]func(x *connectEntry){
		"no such rank":           func(x *connectEntry) { x.initiator = 7 },
		"itself":                 func(x *connectEntry) { x.initiator = 0 },
		"for another":            func(x *connectEntry) { x.responder = 2 },
		"another rank's arena":   func(x *connectEntry) { x.initiator = 2 },
		"other memory":           func(x *connectEntry) { x.memory++ },
		"a block in the tables":  func(x *connectEntry) { x.block = keysAt },
		"a block outside":        func(x *connectEntry) { x.block = 1 << 62 },
		"half a block":           func(x *connectEntry) { x.block += 64 },
		"an offer of nothing":    func(*connectEntry) {},
		"an offer that is long":  func(*connectEntry) { binary.LittleEndian.PutUint32(ring[:], 1<<31) },
		"an offer without sense": func(*connectEntry) { binary.LittleEndian.PutUint32(ring[:], minConnectInfo) },
	} {
		t.Run(text, func(t *testing.T) {
			x := connectTableOf(mem).take(5)
			here := peer.requests.here
			x.initiator, x.responder, x.pid, x.fd = 1, 0, here.pid, here.fd
			x.memory, x.block = here.memory, uint64(block)
			change(x)
			atomic.StoreUint64(&x.state, entryAsked)
			if connectTableOf(mem).mustWake() {
				peer.requests.socket.Signal(owner.requests.address)
			}
			for atomic.LoadUint64(&x.state) == entryAsked {
				runtime.Gosched()
			}
			require.EqualValues(t, entryRefused, x.state)
			atomic.StoreUint64(&x.state, entryFree)
			require.Zero(t, a.held())
		})
	}
	b.begin(t, 0, a.ep.Addr())
	<-a.made
	<-b.made
}

// The request of a process that has ended meanwhile is that of a lost peer.
func TestBegin_OfAProcessThatHasEnded(t *testing.T) {
	a, b := openDoor(t, Options{}), openRank(t, 1)
	owner, peer := a.ep.(*endpoint), b.ep.(*endpoint)
	mem, err := peer.mapArena(owner.requests.here, 0)
	require.NoError(t, err)
	defer sys.UnmapShared(mem)
	program := exec.Command("true")
	require.NoError(t, program.Run())
	x := connectTableOf(mem).take(5)
	here := peer.requests.here
	x.initiator, x.responder, x.pid, x.fd, x.memory = 1, 0, uint32(program.Process.Pid), here.fd, here.memory
	atomic.StoreUint64(&x.state, entryAsked)
	if connectTableOf(mem).mustWake() {
		peer.requests.socket.Signal(owner.requests.address)
	}
	require.ErrorIs(t, <-a.refused, transport.ErrPeerLost)
}

// The answer is checked too: an offer that makes no sense is no connection.
func TestMaliciousRank_AnswersOtherThings(t *testing.T) {
	a, b := openDoor(t, Options{}), openRank(t, 1)
	busy := &a.ep.(*endpoint).requests.mu
	table := a.ep.(*endpoint).requests.table
	for _, answer := range []uint64{keysAt, 1 << 63, uint64(blocksAt) + 64, 77} {
		busy.Lock()
		failed := b.begin(t, 0, a.ep.Addr())
		for i := range table.entries {
			x := &table.entries[i]
			atomic.CompareAndSwapUint64(&x.state, entryAsked, answer)
		}
		busy.Unlock()
		a.ep.(*endpoint).requests.socket.Signal(b.ep.(*endpoint).requests.address)
		<-failed
	}
	require.Empty(t, b.made)
	require.NoError(t, b.ep.Connect(context.Background(), 0, a.ep.Addr()))
}

func FuzzLocation(f *testing.F) {
	for _, text := range []string{"1.2.3.4", "1.2.3", "1.2.3.", "-1.2.3.x", "4294967295.1.1.1", "..."} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, ok := parseLocation(text)
		if !ok {
			return
		}
		again, ok := parseLocation(l.String())
		require.True(t, ok)
		require.Equal(t, l, again)
		require.Equal(t, 3, strings.Count(fmt.Sprint(&l), "."))
	})
}

// The doorbell of a completion queue that was closed before it had a queue pair is not used for a connection:
// it lies where no peer accepts a block.
func TestConnect_AfterAnUnusedQueueWasClosed(t *testing.T) {
	d, friend := openDoor(t, Options{}), openRank(t, 1)
	second := openRank(t, 2)
	for range 3 * firstDoorbells {
		c, err := d.dev.CreateCQ(8, 0)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	c, err := d.dev.CreateCQ(8, 1) // there is no handler 1
	require.ErrorIs(t, err, transport.ErrInvalid)
	require.Nil(t, c)
	require.NoError(t, friend.ep.Connect(context.Background(), 0, d.ep.Addr()))
	require.NoError(t, d.ep.Connect(context.Background(), 2, second.ep.Addr()))
}
