//go:build linux

package engine

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
)

func shmDevices(t testing.TB, n int, o shm.Options) []transport.Device {
	devices := make([]transport.Device, n)
	for i := range devices {
		d, err := shm.New(o)
		require.NoError(t, err)
		devices[i] = d
	}
	return devices
}

// TestSharedCopies: long messages of every length, both ways at once, one by one and in windows, with and
// without room for all of their bytes, come as they were sent; and a sender copies a part of them.
func TestSharedCopies(t *testing.T) {
	const window = 6
	w := worldOf(t, shmDevices(t, 2, shm.Options{}), Config{SpinTime: time.Second})
	rng := rand.New(rand.NewPCG(1, 2))
	lengths := make([][window]int, often(40))
	for i := range lengths {
		for k := range lengths[i] {
			lengths[i][k] = 60<<10 + rng.IntN(1<<(14+rng.IntN(9)))
		}
	}
	lengths[0] = [window]int{9<<20 + 1, 64 << 10, 64<<10 - 1, 4 << 20, 4<<20 + 1, 128 << 10}
	ranks(t, w, func(e *Engine) error {
		peer := 1 - e.Rank()
		for i, l := range lengths {
			in, out := make([][]byte, window), make([][]byte, window)
			var open []Request
			begin := func(k int) (err error) {
				var r Request
				if in[k] == nil {
					in[k] = make([]byte, max(l[k]-i%3*1000, 0)) // sometimes too short
					r, err = e.Recvs.IrecvVec(world0, [][]byte{in[k]}, peer, k, 1)
				} else {
					r, err = e.Sends.Isend(world0, out[k], peer, k)
				}
				open = append(open, r)
				return err
			}
			for k := range window {
				out[k] = make([]byte, l[k])
				pattern(out[k], e.Rank(), i*window+k)
				if err := errors.Join(begin(k), begin(k)); err != nil {
					return err
				}
			}
			for k, r := range open {
				_, err := e.Requests.Wait(r)
				if k%2 == 0 && i%3 > 0 && errors.Is(err, ErrTruncate) {
					err = nil
				}
				if err != nil {
					return err
				}
			}
			for k := range in {
				want := make([]byte, l[k])
				pattern(want, peer, i*window+k)
				if string(want[:len(in[k])]) != string(in[k]) {
					return errors.New("other bytes")
				}
			}
		}
		return nil
	})
	// Whether a sender comes to copy something is a matter of chance: it has many.
	ranks(t, w, func(e *Engine) error {
		b := make([]byte, 1<<20)
		for range 10_000 {
			if e.Rank() == 1 {
				if st, err := e.recv(world0, b, 0, 0, 1); err != nil || st.Bytes == 0 {
					return err
				}
				continue
			}
			if err := e.Sends.Send(world0, b, 1, 0); err != nil {
				return err
			}
			e.mu.Lock()
			shared := e.fabrics[0].sender.SharedBytes()
			e.mu.Unlock()
			if shared > 0 {
				return e.Sends.Send(world0, nil, 1, 0)
			}
		}
		return errors.New("the sender has copied nothing")
	})
}

// TestSharedCopies_OfMoreThanOnePass: a receiver that hardly polls does not sleep over what a pass has left.
// Nothing would wake it: the sender computes, and a heartbeat is due after minutes.
func TestSharedCopies_OfMoreThanOnePass(t *testing.T) {
	const n = 640 << 20 // more passes than there are before a rank looks at the clock twice
	w := worldOf(t, shmDevices(t, 2, shm.Options{PeerTimeout: time.Hour}), Config{SpinTime: time.Microsecond})
	received := make(chan bool)
	ranks(t, w, func(e *Engine) error {
		// memory of which the race detector keeps nothing
		b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			return err
		}
		defer syscall.Munmap(b)
		if e.Rank() == 0 {
			b[n-1] = 1
			r, err := e.Sends.Isend(world0, b, 1, 1)
			if err != nil {
				return err
			}
			<-received
			_, err = e.Requests.Wait(r)
			return err
		}
		defer close(received)
		if _, err := e.recv(world0, b, 0, 1, 1); err != nil {
			return err
		}
		require.Equal(t, byte(1), b[n-1])
		return nil
	})
}

// TestSharedCopies_NotWhereRanksShareCores: a rank that does not poll has nobody look for its pages.
func TestSharedCopies_NotWhereRanksShareCores(t *testing.T) {
	w := worldOf(t, shmDevices(t, 2, shm.Options{}), Config{})
	ranks(t, w, func(e *Engine) error {
		b := make([]byte, 1<<20)
		if e.Rank() == 0 {
			return e.Sends.Send(world0, b, 1, 1)
		}
		_, err := e.recv(world0, b, 0, 1, 1)
		return err
	})
	require.Zero(t, w[0].fabrics[0].sender.SharedBytes())
}

var errKept = errors.New("the region is kept")

// deregistersNot is a protection domain whose next region cannot be deregistered, once it is armed.
type deregistersNot struct {
	transport.PD
	armed bool
}

func (d *deregistersNot) Register(buf []byte, access transport.Access) (transport.MR, error) {
	mr, err := d.PD.Register(buf, access)
	if d.armed && err == nil {
		d.armed, mr = false, kept{mr}
	}
	return mr, err
}

type kept struct{ transport.MR }

func (m kept) Deregister() error { return errors.Join(errKept, m.MR.Deregister()) }

// If a copy fails in a way that ends the channel, the peer fails: the message is not fetched in another way.
func TestSharedCopies_AnErrorOfTheCopyFailsThePeer(t *testing.T) {
	w := worldOf(t, shmDevices(t, 2, shm.Options{}), Config{SpinTime: time.Second})
	f := w[0].fabrics[0]
	pd := &deregistersNot{PD: f.pd}
	f.receiver = rendezvous.NewReceiver(pd, rendezvous.ReceiverConfig{Share: true})
	connected(t, w)
	out, in := make([]byte, 200_000), make([]byte, 200_000)
	pd.armed = true
	var err error
	for i := 0; pd.armed; i++ { // both ends do not share every copy
		require.Less(t, i, 20, "nothing is shared: nothing is tested")
		_, err = w[1].Sends.Isend(world0, out, 0, 1)
		require.NoError(t, err)
		r, err2 := w[0].Recvs.IrecvVec(world0, [][]byte{in}, 1, 1, 1)
		require.NoError(t, err2)
		drive(t, w, func() bool { return w[0].isDone(r) })
		_, err = w[0].Requests.Wait(r)
	}
	require.ErrorIs(t, err, errKept)
	require.ErrorIs(t, err, ErrProcFailed)
}
