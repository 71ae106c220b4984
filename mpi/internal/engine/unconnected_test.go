package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/firstmessage"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
)

// hostWorld has ranks that share memory for first messages.
func hostWorld(t *testing.T) []*Engine {
	t.Helper()
	var ranks []int
	for rank := range firstmessage.MinRanks {
		ranks = append(ranks, rank)
	}
	fd, err := firstmessage.New(ranks)
	require.NoError(t, err)
	defer sys.CloseShared(fd)
	var devices []transport.Device
	for range ranks {
		m, err := firstmessage.Attach(fd)
		require.NoError(t, err)
		d, err := shm.New(shm.Options{FirstMessages: m})
		require.NoError(t, err)
		devices = append(devices, d)
	}
	return worldOf(t, devices, Config{})
}

// connected returns the number of a rank's peers that have a channel, or are about to.
func (e *Engine) connected() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.peers {
		if p != nil && (p.state != peerIdle || p.ch != nil) {
			n++
		}
	}
	return n
}

// All ranks send all others one short message: it needs no connection, is counted at both ends, and is received
// like any other.
func TestUnconnected_OneMessageNeedsNoConnection(t *testing.T) {
	w := hostWorld(t)
	ranks(t, w, func(e *Engine) error {
		for peer := range w {
			if peer == e.rank {
				continue
			}
			if _, err := e.Sends.Isend(1, []byte{byte(e.rank)}, peer, 7); err != nil {
				return err
			}
		}
		for i := range len(w) - 1 {
			peer, buf := AnySource, []byte{99}
			if e.rank%2 == 0 {
				peer = (e.rank + 1 + i) % len(w)
			}
			var st Status
			if err := e.Recvs.Recv(1, buf, peer, 7, 1, &st); err != nil {
				return err
			}
			if int(buf[0]) != st.Source || st.Tag != 7 || st.Bytes != 1 {
				return fmt.Errorf("rank %d got %d with %+v", e.rank, buf[0], st)
			}
		}
		return nil
	})
	for _, e := range w {
		require.Zero(t, e.connected(), "rank %d", e.rank)
		traffic, leaving := e.hub.Traffic()
		require.False(t, leaving)
		require.Len(t, traffic, len(w)-1)
		for _, c := range traffic {
			require.Equal(t, Traffic{c.Peer, 1, 1}, c)
		}
		require.EqualValues(t, 2*(len(w)-1), e.hub.Activity()-e.stats.Unexpected)
	}
}

// What follows the first message overtakes nothing, whichever end begins the connection, however long the
// messages are.
func TestUnconnected_MessagesStayInOrder(t *testing.T) {
	w := hostWorld(t)
	lengths := []int{8, 0, 40 << 10, 8, 300}
	ranks(t, w, func(e *Engine) error {
		var all []Request
		for i, n := range lengths {
			for d := range len(w) - 1 {
				buf := make([]byte, n)
				for at := range buf {
					buf[at] = byte(i)
				}
				r, err := e.Sends.Isend(1, buf, (e.rank+1+d)%len(w), 7)
				if err != nil {
					return err
				}
				all = append(all, r)
			}
		}
		for d := range len(w) - 1 {
			peer := (e.rank + 1 + d) % len(w)
			for i, n := range lengths {
				buf := make([]byte, 40<<10)
				var st Status
				if err := e.Recvs.Recv(1, buf, peer, 7, 1, &st); err != nil {
					return err
				}
				if st.Bytes != n || n > 0 && (buf[0] != byte(i) || buf[n-1] != byte(i)) {
					return fmt.Errorf("rank %d got %d bytes of %d as message %d of rank %d", e.rank, st.Bytes, buf[0],
						i, peer)
				}
			}
		}
		var errs []error
		for _, r := range all {
			_, err := e.Requests.Wait(r)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	require.Positive(t, w[0].connected())
}

// A first message that is long, synchronous, or for a rank that is connected goes through a connection.
func TestUnconnected_OnlyAShortMessage(t *testing.T) {
	w := hostWorld(t)
	longest := transport.MaxUnconnected - eager.EnvelopeLen
	send := map[int]func(e *Engine) error{
		1: func(e *Engine) error { return e.Sends.Send(1, make([]byte, longest), 1, 7) },
		2: func(e *Engine) error { return e.Sends.Send(1, make([]byte, longest+1), 2, 7) },
		3: func(e *Engine) error { return e.Sends.Ssend(1, nil, 3, 7) },
		4: func(e *Engine) error {
			return errors.Join(e.Sends.Send(1, nil, 4, 7), e.Sends.Send(1, make([]byte, 1), 4, 7))
		},
	}
	ranks(t, w, func(e *Engine) (err error) {
		if e.rank == 0 {
			for _, f := range send {
				err = errors.Join(err, f(e))
			}
			return err
		}
		buf := make([]byte, 64)
		for range map[int]int{1: 1, 2: 1, 3: 1, 4: 2}[e.rank] {
			err = errors.Join(err, e.Recvs.Recv(1, buf, 0, 7, 1, &Status{}))
		}
		return err
	})
	for rank, unconnected := range map[int]uint64{1: 1, 2: 0, 3: 0, 4: 1} {
		require.Equal(t, unconnected, w[0].peers[rank].unconnected.sent, "to rank %d", rank)
		require.Equal(t, unconnected, w[rank].peers[0].unconnected.received, "at rank %d", rank)
	}
	require.Equal(t, 3, w[0].connected())
}

// Ranks that make mailboxes connect, although a message each would do without.
func TestUnconnected_MailboxesConnect(t *testing.T) {
	w := hostWorld(t)
	ranks(t, w, func(e *Engine) error {
		m := e.MailboxCalls.New(100, CollectiveTag(false, 0, OperationMailboxes, 0), nil, e.rank, len(w),
			MailboxBytes(len(w)))
		if ready, err := m.Prepare(nil); err != nil || !ready {
			return fmt.Errorf("rank %d has no mailboxes: %v", e.rank, err)
		}
		e.mu.Lock()
		for rank, p := range e.peers {
			if rank != e.rank && p.unconnected.sent > 0 {
				t.Errorf("rank %d is not connected to rank %d when it looks whether it can read its memory", e.rank, rank)
			}
		}
		e.mu.Unlock()
		e.MailboxCalls.Release(m)
		return nil
	})
}
