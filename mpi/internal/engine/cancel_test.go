package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
)

// announcedSends begins sends that wait for their receives, one of each kind.
var announcedSends = map[string]func(e *Engine, buf []byte, tag int) (Request, error){
	"Empty": func(e *Engine, _ []byte, tag int) (Request, error) { return e.Sends.Issend(world0, nil, 1, tag) },
	"Small": func(e *Engine, buf []byte, tag int) (Request, error) {
		return e.Sends.Issend(world0, buf[:10], 1,
			tag)
	},
	"Large": func(e *Engine, buf []byte, tag int) (Request, error) { return e.Sends.Isend(world0, buf, 1, tag) },
	"Vector": func(e *Engine, buf []byte, tag int) (Request, error) {
		return e.Sends.IsendVec(world0, [][]byte{buf[:90_000], buf[90_000:90_010], buf[90_010:]}, 1, tag)
	},
}

// TestCancelOfAnnouncedSend: it ends although its receiver does nothing but make progress, and no receive or
// probe sees its message.
func TestCancelOfAnnouncedSend(t *testing.T) {
	for name, send := range announcedSends {
		t.Run(name, func(t *testing.T) {
			onEach(t, 2, func(t *testing.T, w []*Engine) {
				connected(t, w)
				r, err := send(w[0], make([]byte, 300_000), 1)
				require.NoError(t, err)
				drive(t, w, func() bool { return unexpected(w[1]) == 1 })
				require.NoError(t, w[0].Cancels.Cancel(r))
				require.NoError(t, w[0].Cancels.Cancel(r), "again")
				drive(t, w, func() bool { return w[0].isDone(r) })
				st, err := w[0].Requests.Wait(r)
				require.NoError(t, err)
				require.True(t, st.Cancelled)
				_, ok, err := w[1].Probes.Iprobe(world0, AnySource, AnyTag)
				require.NoError(t, err)
				require.False(t, ok)
				require.Zero(t, w[1].Stats().Kept)
				require.Zero(t, outstanding(w[0], 1))
			})
		})
	}
}

// TestCancelOfMatchedSend: a matched probe has taken its message, so it is not cancelled; it completes all
// the same, and the message can be received then.
func TestCancelOfMatchedSend(t *testing.T) {
	for name, send := range announcedSends {
		t.Run(name, func(t *testing.T) {
			onEach(t, 2, func(t *testing.T, w []*Engine) {
				connected(t, w)
				buf, in := make([]byte, 300_000), make([]byte, 300_000)
				pattern(buf, 0, 7)
				r, err := send(w[0], buf, 1)
				require.NoError(t, err)
				drive(t, w, func() bool { return unexpected(w[1]) == 1 })
				m, probed, ok, err := w[1].Probes.Improbe(world0, 0, 1)
				require.NoError(t, err)
				require.True(t, ok)
				require.NoError(t, w[0].Cancels.Cancel(r))
				drive(t, w, func() bool { return w[0].isDone(r) })
				st, err := w[0].Requests.Wait(r)
				require.NoError(t, err)
				require.False(t, st.Cancelled)
				got, err := w[1].Probes.Mrecv(m, in, 1)
				require.NoError(t, err)
				require.Equal(t, probed.Bytes, got.Bytes)
				if name == "Large" {
					require.Equal(t, buf, in)
				}
				require.Zero(t, w[1].Stats().Kept)
			})
		})
	}
}

// TestCancelWhileMessageIsFetched: the Message is received while its bytes are on their way because of the
// cancellation.
func TestCancelWhileMessageIsFetched(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		buf, in := make([]byte, 100_000), make([]byte, 100_000)
		pattern(buf, 0, 3)
		r, err := w[0].Sends.Issend(world0, buf, 1, 1)
		require.NoError(t, err)
		drive(t, w, func() bool { return unexpected(w[1]) == 1 })
		m, _, ok, err := w[1].Probes.Improbe(world0, 0, 1)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, w[0].Cancels.Cancel(r))
		drive(t, w, func() bool { return m.a.fetch != nil || w[0].isDone(r) })
		u, err := w[1].Probes.Imrecv(m, in, 1)
		require.NoError(t, err)
		drive(t, w, func() bool { return w[0].isDone(r) && w[1].isDone(u) })
		_, err = w[1].Requests.Wait(u)
		require.NoError(t, err)
		require.NoError(t, checkPattern(in, 0, 3))
		st, err := w[0].Requests.Wait(r)
		require.NoError(t, err)
		require.False(t, st.Cancelled)
	})
}

// TestCancelRaces: sends of every kind are cancelled while their receives are posted. Each is received, or
// cancelled, and both ends agree in which of them; nothing is left.
func TestCancelRaces(t *testing.T) {
	for name := range fabrics {
		t.Run(name, func(t *testing.T) {
			messages := 500
			if testlength.Whole() && name[:3] != "sim" {
				messages = 3000
			}
			w := world(t, fabrics[name](t, 3, 2))
			cancelRaces(t, w, messages)
		})
	}
}

// race is what the two ends of cancelRaces have seen.
type race struct {
	messages  int
	cancelled int
	completed map[int]bool // by the number of the message
	received  map[int]bool
	over      chan struct{} // the sender is done
}

const raceTags = 8

// message is the bytes of a message, which tell its number.
func (*race) message(seq, size int) []byte {
	b := make([]byte, size+4)
	pattern(b, 0, seq)
	binary.LittleEndian.PutUint32(b, uint32(seq))
	return b
}

func cancelRaces(t *testing.T, w []*Engine, messages int) {
	c := race{messages: messages, completed: map[int]bool{}, received: map[int]bool{},
		over: make(chan struct{})}
	ranks(t, w, func(e *Engine) error {
		if e.Rank() == 0 {
			defer close(c.over)
			return c.send(e)
		}
		return c.receive(e)
	})
	require.Equal(t, c.completed, c.received)
	require.Positive(t, c.cancelled)
	require.Positive(t, len(c.received))
	require.Equal(t, messages, c.cancelled+len(c.received))
	require.Zero(t, outstanding(w[0], 1))
	require.Zero(t, w[1].Stats().Kept)
	require.Zero(t, unexpected(w[1]))
	require.Empty(t, w[1].peers[0].announcedUnexpected)
}

func (c *race) send(e *Engine) error {
	rng := rand.New(rand.NewPCG(5, 6))
	open, seqs, tags := []Request{}, []int{}, []int{}
	for seq := 0; seq < c.messages || len(open) > 0; {
		if seq < c.messages && len(open) < 20 {
			tag := rng.IntN(raceTags)
			r, err := c.sendOne(e, rng, seq, tag)
			if err != nil {
				return err
			}
			open, seqs, tags = append(open, r), append(seqs, seq), append(tags, tag)
			seq++
			continue
		}
		i := rng.IntN(len(open))
		var st Status
		done := false
		var err error
		switch rng.IntN(4) {
		case 0:
			st, done, err = e.Requests.Test(open[i])
		case 1:
			if done = tags[i] < raceTags-1; done {
				st, err = e.Requests.Wait(open[i])
			}
		}
		if err == nil && !done {
			if err = e.Cancels.Cancel(open[i]); err == nil {
				st, err = e.Requests.Wait(open[i])
			}
		}
		if err != nil {
			return err
		}
		if st.Cancelled {
			c.cancelled++
		} else {
			c.completed[seqs[i]] = true
		}
		open, seqs, tags = slices.Delete(open, i, i+1), slices.Delete(seqs, i, i+1),
			slices.Delete(tags, i, i+1)
	}
	return nil
}

func (c *race) sendOne(e *Engine, rng *rand.Rand, seq, tag int) (Request, error) {
	b := c.message(seq, []int{0, 9, 700, 5000, 70_000}[rng.IntN(5)])
	switch rng.IntN(4) {
	case 0:
		return e.Sends.Isend(world0, b, 1, tag)
	case 1:
		return e.Sends.IsendVec(world0, [][]byte{b[:len(b)/2], b[len(b)/2:]}, 1, tag)
	}
	return e.Sends.Issend(world0, b, 1, tag)
}

// receive takes messages of tags at random, and holds some for a while. Those that are left when the sender
// is done are all that were not cancelled.
func (c *race) receive(e *Engine) error {
	rng := rand.New(rand.NewPCG(7, 8))
	buf := make([]byte, 80_000)
	for over := false; ; {
		tag := rng.IntN(raceTags - 1) // messages with the last tag are cancelled, or left
		select {
		case <-c.over:
			over, tag = true, AnyTag
		default:
		}
		m, probed, ok, err := e.Probes.Improbe(world0, 0, tag)
		if err == nil && ok && rng.IntN(2) == 0 {
			_, _, err = e.Probes.Iprobe(world0, 0, raceTags) // its sender may cancel it meanwhile
		}
		if err != nil {
			return err
		}
		if !ok {
			if over && tag == AnyTag && len(c.completed) == len(c.received) {
				return nil
			}
			continue
		}
		st, err := e.Probes.Mrecv(m, buf, 1)
		if err != nil {
			return err
		}
		seq := int(binary.LittleEndian.Uint32(buf))
		switch {
		case st.Bytes != probed.Bytes:
			return fmt.Errorf("probed %d bytes, received %d", probed.Bytes, st.Bytes)
		case c.received[seq]:
			return fmt.Errorf("message %d came twice", seq)
		case !bytes.Equal(buf[:st.Bytes], c.message(seq, st.Bytes-4)):
			return fmt.Errorf("message %d has other bytes", seq)
		}
		c.received[seq] = true
	}
}
