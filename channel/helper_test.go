package channel_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/transport"
)

func ignoreFull(err error) error {
	if errors.Is(err, transport.ErrQueueFull) {
		return nil
	}
	return err
}

// link is a channel with both its ends, over a Pair that writes down what it carries.
type link struct {
	*channeltest.Pair
	channeltest.Transcript
	a, b *channel.Channel
}

// open opens a channel both of whose rings have the same shape. At the end of the test nothing of it may be
// left.
func open(t testing.TB, cfg channel.Config) *link {
	l := &link{Pair: channeltest.NewPair()}
	l.a, l.b = channeltest.Open(t, l.Pair, func(e *channeltest.End) (*channel.Channel,
		error) {
		return channel.New(e.PD(), cfg)
	})
	return l
}

// record starts the transcript.
func (l *link) record() { l.Record(l.Pair, l.a.Descriptor(), l.b.Descriptor()) }

// put sends a message if there is room, and tells so.
func put(t testing.TB, c *channel.Channel, k channel.Kind, body []byte, more bool) bool {
	t.Helper()
	reserve := c.Reserve
	if k == channel.RTS {
		reserve = c.ReserveControl
	}
	to := reserve(len(body))
	if to == nil {
		return false
	}
	require.Len(t, to, len(body))
	copy(to, body)
	require.NoError(t, c.Commit(k, more))
	return true
}

// take takes what is there, and gives the bodies.
func take(t testing.TB, c *channel.Channel) [][]byte {
	t.Helper()
	var bodies [][]byte
	for {
		_, body, ok, err := c.Next()
		require.NoError(t, err)
		if !ok {
			return bodies
		}
		bodies = append(bodies, append([]byte{}, body...))
		c.Release()
	}
}

// drive carries out what is posted.
func (l *link) drive(t testing.TB) {
	t.Helper()
	require.NoError(t, l.Drive())
}

// progress sends the CREDIT that is unadvertised, which there must be room for.
func progress(t testing.TB, c *channel.Channel) {
	t.Helper()
	owing, err := c.Progress()
	require.NoError(t, err)
	require.False(t, owing, "a CREDIT finds no room")
}
