package engine

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
	"github.com/weft-mpi/weft/transport/tcp"
)

// withHandlers makes engines with completion handlers, on the fabric of that name.
func withHandlers(t *testing.T, fabric string, seed uint64, n int, conf Config) []*Engine {
	t.Helper()
	conf.HandlerCores = []int{0}
	if fabric == "tcp" {
		cores, err := sys.Affinity()
		require.NoError(t, err)
		conf.HandlerCores = cores
	}
	return worldOf(t, fabrics[fabric](t, seed, n), conf)
}

// The random mixture again, where handlers make progress and who waits only watches.
func TestHandler_C1_RandomMixture(t *testing.T) {
	for seed := range uint64(3) {
		w := withHandlers(t, "sim", seed, 3, Config{})
		ranks(t, w, func(e *Engine) error { return mixture(e, 60, 5_000, seed) })
		require.False(t, t.Failed(), "seed %d", seed)
	}
	w := withHandlers(t, "tcp", 0, 3, Config{EagerLimit: 4000})
	ranks(t, w, func(e *Engine) error { return mixture(e, often(400), 300_000, 3) })
}

// A rank whose owner calls nothing takes what it has been told of all the same.
func TestHandler_C1_AReceiveCompletesWithoutACall(t *testing.T) {
	for _, fabric := range []string{"sim", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			w := withHandlers(t, fabric, 1, 2, Config{})
			buf := make([]byte, 200_000)
			h, err := w[1].Recvs.Irecv(0, buf, 0, 5, 1)
			require.NoError(t, err)
			passes := w[1].Stats().Passes
			require.NoError(t, w[0].Sends.Ssend(0, make([]byte, len(buf)), 1, 5))
			// A sender that writes into a granted buffer is done before all has arrived.
			require.Eventually(t, func() bool { return w[1].isDone(h) }, time.Minute, time.Millisecond)
			require.Greater(t, w[1].Stats().Passes, passes)
			_, done, err := w[1].Requests.Test(h)
			require.NoError(t, err)
			require.True(t, done)
		})
	}
}

// A rank whose handler has no processor takes what has come before it says what it waits for: a message that
// nobody has seen would pass for none.
func TestHandler_DescribeSeesWhatHasCome(t *testing.T) {
	devices := make([]transport.Device, 2)
	for i := range devices {
		var err error
		devices[i], err = tcp.New(tcp.Options{Host: "127.0.0.1", PeerTimeout: time.Hour}) // no tick comes
		require.NoError(t, err)
	}
	cores, err := sys.Affinity()
	require.NoError(t, err)
	w := worldOf(t, devices, Config{HandlerCores: cores})
	connected(t, w)
	f := w[1].fabrics[0]
	require.NoError(t, f.Device.ModifyCQ(f.cq, 0)) // the handler hears of nothing
	h, err := w[1].Recvs.Irecv(0, make([]byte, 1), 0, 5, 1)
	require.NoError(t, err)
	require.NoError(t, w[0].Sends.Send(0, make([]byte, 1), 1, 5))
	require.False(t, w[1].isDone(h), "somebody else has made a pass: the test shows nothing")
	require.Eventually(t, func() bool {
		w[1].hub.Describe()
		return w[1].isDone(h)
	}, time.Minute, time.Millisecond)
	require.NoError(t, f.Device.ModifyCQ(f.cq, f.handler))
	require.NoError(t, w[1].completionHandler.stop())
	_, done, err := w[1].Requests.Test(h)
	require.NoError(t, err)
	require.True(t, done)
}

// The handler is the one driver: the queue cannot be waited on while it has it, and goes back to the callers
// at the end.
func TestHandler_C1_OneDriver(t *testing.T) {
	w := withHandlers(t, "tcp", 1, 2, Config{})
	require.ErrorIs(t, w[0].fabrics[0].cq.Wait(0), transport.ErrInvalid)
	require.NoError(t, w[0].completionHandler.stop())
	require.NoError(t, w[0].fabrics[0].cq.Wait(0))
}

// meanwhile is a completion queue of which the next request for events calls a function first.
type meanwhile struct {
	transport.CQ
	f func()
}

func (q *meanwhile) RequestNotify(n transport.Notify) error {
	if f := q.f; f != nil {
		q.f = nil
		f()
	}
	return q.CQ.RequestNotify(n)
}

// sendsWithFINWords makes a sender that has a completion handler, and n sends to the receiver that are announced
// and end with FIN words. receive receives the send with a tag, from 0 on.
func sendsWithFINWords(t *testing.T, n int) (sender, receiver *Engine, sends []Request,
	receive func(tag int) error) {
	cores, err := sys.Affinity()
	require.NoError(t, err)
	w := worldOf(t, shmDevices(t, 2, shm.Options{}), Config{HandlerCores: cores[:1], SpinTime: time.Millisecond})
	sender, receiver = w[0], w[1]
	sender.hub.heartbeat.timer.Stop() // which makes a pass as well
	large := make([]byte, 1<<20)
	for tag := range n {
		s, err := sender.Sends.Isend(world0, large, 1, tag)
		require.NoError(t, err)
		sends = append(sends, s)
	}
	_, err = receiver.Probes.Probe(world0, 0, n-1, nil) // all are announced
	require.NoError(t, err)
	sender.mu.Lock()
	defer sender.mu.Unlock()
	for _, s := range sends {
		require.True(t, rendezvous.EndsInWord(sender.Requests.find(s).announcement-1))
	}
	return sender, receiver, sends, func(tag int) error {
		var st Status
		return receiver.Recvs.Recv(world0, make([]byte, len(large)), 0, tag, 1, &st)
	}
}

// A send succeeds if its receiver has received it, even if a pass finds the FIN together with the receiver's
// end.
func TestHandler_FINBeforeTheEnd(t *testing.T) {
	sender, receiver, sends, receive := sendsWithFINWords(t, 1)
	var received, ended error
	sender.mu.Lock()
	f := sender.fabrics[0]
	cq := f.cq
	f.cq = &meanwhile{cq, func() { received, ended = receive(0), receiver.hub.Destroy(ErrAborted) }}
	sender.progress.pass()
	f.cq = cq
	failed := sender.peers[1].state == peerFailed
	sender.mu.Unlock()
	require.NoError(t, errors.Join(received, ended))
	require.True(t, failed)
	_, err := sender.Requests.Wait(sends[0])
	require.NoError(t, err)
}

// A FIN that comes while the handler takes another one raises no event. The handler finds it, and is told of the
// next.
func TestHandler_N5_FINsWhileItTakesOthers(t *testing.T) {
	sender, _, sends, receive := sendsWithFINWords(t, 3)
	sender.mu.Lock()
	f := sender.fabrics[0]
	cq := f.cq
	var second error
	f.cq = &meanwhile{cq, func() { second = receive(1) }}
	sender.mu.Unlock()
	require.NoError(t, receive(0))
	for _, s := range sends[:2] {
		_, err := sender.Requests.Wait(s)
		require.NoError(t, err)
	}
	sender.mu.Lock()
	f.cq = cq
	require.NoError(t, second)
	sender.mu.Unlock()
	require.NoError(t, receive(2))
	done := make(chan error, 1)
	go func() {
		_, err := sender.Requests.Wait(sends[2])
		done <- err
	}()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		sender.hub.Fail(ErrAborted)
		t.Fatal("nobody has told the handler of the third FIN")
	}
}

// A goroutine that waits at several endpoints asks for the handler without the lock, also while the rank ends.
func TestHandler_ActiveNeedsNoLock(t *testing.T) {
	e := withHandlers(t, "sim", 1, 1, Config{})[0]
	require.True(t, e.completionHandler.active())
	asked := make(chan bool)
	go func() { asked <- e.completionHandler.active() }()
	require.NoError(t, e.completionHandler.stop()) // the race detector looks on
	<-asked
	require.False(t, e.completionHandler.active())
}

// placed is a device that knows the class of its handlers, and may refuse those of class Bulk.
type placed struct {
	transport.Device
	refusesBulk bool
	class       map[transport.HandlerID]transport.Class
}

var errBulk = errors.New("no bulk handlers")

func (d *placed) SetCompletionHandler(c transport.HandlerConfig) (transport.HandlerID, error) {
	if d.refusesBulk && c.Class == transport.Bulk {
		return 0, errBulk
	}
	id, err := d.Device.SetCompletionHandler(c)
	d.class[id] = c.Class
	return id, err
}

// If one of several queues cannot be moved, all are where they were.
func TestHandler_MovesAllQueuesOrNone(t *testing.T) {
	cores, err := sys.Affinity()
	require.NoError(t, err)
	conf := Config{Identity: transport.Identity{Job: "test", Size: 1}, HandlerCores: cores[:1],
		Log: slog.New(slog.DiscardHandler)}
	var devices []*placed
	for i, d := range tcpDevices(t, 2) {
		devices = append(devices, &placed{d, i == 1, map[transport.HandlerID]transport.Class{}})
		conf.Fabrics = append(conf.Fabrics, Fabric{Device: devices[i]})
	}
	e, err := newEngine(conf)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.hub.Destroy(ErrFinalized)) }()
	before, _ := e.Handler()
	require.ErrorIs(t, e.MoveHandler(HandlerPlace{Core: cores[0], Bulk: true}), errBulk)
	at, active := e.Handler()
	require.True(t, active)
	require.Equal(t, before, at)
	for i, f := range e.fabrics {
		require.Equal(t, transport.LowLatency, devices[i].class[f.handler], "fabric %d", i)
	}
}

// What a goroutine does for the handler before it sleeps may end its wait, as when a send finds that its peer
// has failed. Then it does not sleep: nobody would wake it.
func TestHandler_WaitThatEndsBeforeItsSleep(t *testing.T) {
	request, shared, condition := "request", "request of several goroutines", "condition"
	for _, awaited := range []string{request, shared, condition} {
		t.Run(awaited, func(t *testing.T) {
			w := world(t, simDevices(1, 2))
			connected(t, w)
			e, p := w[0], peerOf(w[0], 1)
			e.mu.Lock()
			e.coalescer.armed = true // its timer does not send the delayed message
			e.mu.Unlock()
			h, err := e.Recvs.Irecv(world0, make([]byte, 1), 1, 0, 1)
			require.NoError(t, err)
			for range 2 {
				send, err := e.Sends.Isend(world0, make([]byte, 1), 1, 0)
				require.NoError(t, err)
				_, err = e.Requests.Wait(send)
				require.NoError(t, err)
			}
			n, at, cond := 1, func(int) Request { return h }, func() bool { return p.state == peerFailed }
			e.mu.Lock()
			e.Requests.find(h).observed, e.Requests.find(h).manySleepers = true, awaited == shared
			e.completionHandler.running.Store(true) // no handler makes passes, and none wakes anybody
			require.NotZero(t, p.batch.Count(), "no message is delayed")
			require.False(t, cond())
			p.ch.QP().Abort(transport.ErrPeerLost)
			e.mu.Unlock()
			if awaited == condition {
				n = 0
			}
			awake := make(chan struct{})
			go func() {
				defer close(awake)
				e.waiting.sleep(n, at, cond, nil)
			}()
			select {
			case <-awake:
			case <-time.After(time.Minute):
				t.Error("it sleeps for ever")
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			e.completionHandler.running.Store(false)
			require.True(t, cond())
			require.True(t, e.Requests.find(h).completed())
		})
	}
}
