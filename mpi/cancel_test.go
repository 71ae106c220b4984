package mpi_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

// TestCancelMixture: messages of all modes and sizes among 4 ranks, of which many are cancelled, or given up
// by a context, at random moments, at both ends. Each send ends in one way, and its receiver sees the same;
// no buffer changes after its request has ended; nothing is left at the end. The environment variable
// CANCEL_MESSAGES asks for another number of messages, such as 100000.
func TestCancelMixture(t *testing.T) {
	messages := cmp.Or(os.Getenv("CANCEL_MESSAGES"), fmt.Sprint(testlength.Of(1000, 300)))
	onWires(t, func(t *testing.T, wire []string) {
		together(t, 4, cancelMixtureBody, append([]string{"CANCEL_MESSAGES=" + messages}, wire...)...)
	})
}

var cancelMixtureBody = body("cancel-mixture", func(_ context.Context, world *mpi.Comm) error {
	m := &cancelMixture{world: world, messages: number("CANCEL_MESSAGES") / world.Size()}
	m.sent, m.received = make([][]byte, world.Size()), make([][]byte, world.Size())
	for i := range m.sent {
		m.sent[i], m.received[i] = make([]byte, m.messages), make([]byte, m.messages)
	}
	control, err := world.Dup()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var sendErr error
	over := make(chan struct{})
	wg.Go(func() {
		defer close(over)
		if sendErr = m.send(); sendErr == nil {
			// all sends have ended, so all that is to be received is here, or announced
			sendErr = mpi.Barrier(control)
		}
	})
	err = m.receive(over)
	wg.Wait()
	if err = firstError(err, sendErr); err != nil {
		return err
	}
	return m.compare(control)
})

type cancelMixture struct {
	world          *mpi.Comm
	messages       int      // of each rank, to the others at random
	sent, received [][]byte // by the other rank and the number of the message: 1 if it was
	cancelled      int
}

const cancelTags = 4

func (m *cancelMixture) bytes(src, number, size int) []byte {
	b := make([]byte, size+4)
	fill(b, src, 0, number)
	binary.LittleEndian.PutUint32(b, uint32(number))
	return b
}

type cancellable struct {
	r           mpi.Request
	dst, number int
	cancel      context.CancelFunc // of its context; nil without one
}

func (m *cancelMixture) send() error {
	rng := rand.New(rand.NewPCG(uint64(m.world.Rank()), 1))
	var open []cancellable
	for number := 0; number < m.messages || len(open) > 0; {
		if number < m.messages && len(open) < 16 {
			c, err := m.sendOne(rng, number)
			if err != nil {
				return err
			}
			open = append(open, c)
			number++
			continue
		}
		i := rng.IntN(len(open))
		c := open[i]
		open = slices.Delete(open, i, i+1)
		if err := m.end(rng, c); err != nil {
			return err
		}
	}
	return nil
}

func (m *cancelMixture) sendOne(rng *rand.Rand, number int) (cancellable, error) {
	c := cancellable{number: number, dst: rng.IntN(m.world.Size())}
	b := m.bytes(m.world.Rank(), number, []int{0, 50, 600, 5000, 30_000, 120_000}[rng.IntN(6)])
	comm, tag := m.world, rng.IntN(cancelTags)
	if rng.IntN(3) == 0 {
		var ctx context.Context
		ctx, c.cancel = context.WithCancel(context.Background())
		comm = comm.WithContext(ctx)
	}
	var err error
	switch rng.IntN(4) {
	case 0:
		c.r, err = mpi.Isend(comm, b, c.dst, tag)
	case 1:
		c.r, err = mpi.IsendVec(comm, pieces(rng, b), c.dst, tag)
	case 2:
		var p *mpi.Persistent
		if p, err = mpi.SendInit(comm, b, c.dst, tag); err == nil {
			c.r, err = p.Start()
		}
	default:
		c.r, err = mpi.Issend(comm, b, c.dst, tag)
	}
	return c, err
}

// end cancels a send, or gives it up by its context, and notes how it ended.
func (m *cancelMixture) end(rng *rand.Rand, c cancellable) error {
	switch {
	case c.cancel != nil:
		c.cancel()
	default:
		if _, done, err := c.r.Test(); done || err != nil {
			m.sent[c.dst][c.number] = 1
			return err
		}
		if err := c.r.Cancel(); err != nil {
			return err
		}
	}
	st, err := c.r.Wait()
	switch {
	case errors.Is(err, context.Canceled), err == nil && st.Cancelled():
		m.cancelled++
		return nil
	case err == nil:
		m.sent[c.dst][c.number] = 1
	}
	return err
}

// receive takes messages until over is closed, and then what is left.
func (m *cancelMixture) receive(over chan struct{}) error {
	rng := rand.New(rand.NewPCG(uint64(m.world.Rank()), 2))
	buf := make([]byte, 200_000)
	for last := false; ; {
		select {
		case <-over:
			last = true
		default:
		}
		if !last && rng.IntN(4) == 0 {
			if err := m.cancelReceive(rng, buf); err != nil {
				return err
			}
			continue
		}
		tag := mpi.AnyTag
		if !last {
			tag = rng.IntN(cancelTags)
		}
		msg, st, ok, err := mpi.Improbe(m.world, mpi.AnySource, tag)
		if err != nil {
			return err
		}
		if !ok {
			if last {
				return nil
			}
			continue
		}
		if rng.IntN(4) == 0 {
			time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond) // its sender may ask for it meanwhile
		}
		got, err := mpi.Mrecv(&msg, buf)
		if err == nil && (got.Source != st.Source || got.Bytes() != st.Bytes()) {
			err = fmt.Errorf("probed %+v, received %+v", st, got)
		}
		if err == nil {
			err = m.take(got, buf)
		}
		if err != nil {
			return err
		}
	}
}

// cancelReceive posts a receive, and cancels it after some passes.
func (m *cancelMixture) cancelReceive(rng *rand.Rand, buf []byte) error {
	r, err := mpi.Irecv(m.world, buf, mpi.AnySource, rng.IntN(cancelTags))
	if err != nil {
		return err
	}
	for range rng.IntN(5) {
		if _, _, err := mpi.Iprobe(m.world, mpi.AnySource, cancelTags); err != nil {
			return err
		}
	}
	if err := r.Cancel(); err != nil {
		return err
	}
	st, err := r.Wait()
	if err != nil || st.Cancelled() {
		return err
	}
	return m.take(st, buf)
}

// take checks a message that was received.
func (m *cancelMixture) take(st mpi.Status, buf []byte) error {
	n := int(binary.LittleEndian.Uint32(buf))
	if n >= m.messages || m.received[st.Source][n] != 0 {
		return fmt.Errorf("message %d of rank %d came twice, or was never sent", n, st.Source)
	}
	m.received[st.Source][n] = 1
	if !bytes.Equal(buf[:st.Bytes()], m.bytes(st.Source, n, st.Bytes()-4)) {
		return fmt.Errorf("message %d of rank %d, %d bytes, has other bytes", n, st.Source, st.Bytes())
	}
	return nil
}

// compare looks whether the two ends of each message have seen the same.
func (m *cancelMixture) compare(c *mpi.Comm) error {
	for other := range c.Size() {
		theirs := make([]byte, m.messages)
		if _, err := mpi.Sendrecv(c, m.sent[other], other, 0, theirs, other, 0); err != nil {
			return err
		}
		for i := range theirs {
			if theirs[i] != m.received[other][i] {
				return fmt.Errorf("message %d of rank %d: sent %d, received %d", i, other, theirs[i],
					m.received[other][i])
			}
		}
	}
	all := []int{m.cancelled}
	if err := mpi.Allreduce(c, mpi.InPlace[int](), all, mpi.Sum[int]()); err != nil {
		return err
	}
	if all[0] < m.messages/20 || all[0] > 4*m.messages*19/20 {
		return fmt.Errorf("%d of %d messages were cancelled", all[0], 4*m.messages)
	}
	return want("kept", m.world.Stats().Kept, 0)
}
