package channel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/transport"
)

// testPair is a channel with both its ends, over a Pair that writes down what it carries.
type testPair struct {
	*channeltest.Pair
	channeltest.Transcript
	a, b *Channel
}

// newTestPair opens a channel. At the end of the test nothing of it may be left.
func newTestPair(t testing.TB, conf Config) *testPair { return newUnevenPair(t, conf, conf) }

// newUnevenPair opens a channel whose ends differ in what is not common to all ranks of a job.
func newUnevenPair(t testing.TB, confA, confB Config) *testPair {
	d := &testPair{Pair: channeltest.NewPair()}
	d.a, d.b = channeltest.Open(t, d.Pair, func(e *channeltest.End) (*Channel, error) {
		if e == d.A {
			return New(e.PD(), confA)
		}
		return New(e.PD(), confB)
	})
	for _, e := range []*channeltest.End{d.A, d.B} {
		for range 4 {
			require.NoError(t, e.PostRecv(&transport.RecvWR{}))
		}
	}
	t.Cleanup(func() { d.requireReleased(t) })
	return d
}

// requireReleased closes both ends and looks for what is left.
func (d *testPair) requireReleased(t testing.TB) {
	t.Helper()
	for _, c := range []*Channel{d.a, d.b} {
		require.NoError(t, c.Close())
		require.Zero(t, c.Stats().Registered)
		if c.conf.Budget != nil {
			require.Zero(t, c.conf.Budget.used.Load())
		}
	}
	require.Zero(t, d.A.Regions()+d.B.Regions()+d.A.Pages()+d.B.Pages())
}

// record starts the transcript.
func (d *testPair) record() { d.Record(d.Pair, d.a.Descriptor(), d.b.Descriptor()) }

func (d *testPair) drive(t testing.TB) {
	t.Helper()
	require.NoError(t, d.Drive())
}

// handleRetransmits gives both ends what is asked for again, and the answer to that.
func (d *testPair) handleRetransmits(t testing.TB) {
	t.Helper()
	for e, c := range map[*channeltest.End]*Channel{d.A: d.a, d.B: d.b} {
		var wc [4]transport.WC
		for _, w := range wc[:e.Poll(wc[:])] {
			require.Equal(t, transport.OpRecv, w.Op)
			require.NoError(t, e.PostRecv(&transport.RecvWR{}))
			if w.HasImm {
				require.EqualValues(t, ResentImm, w.Imm)
				require.NoError(t, c.ReplyResent())
				continue
			}
			require.NoError(t, c.RetransmitReply())
		}
	}
}

// transfer moves a vector as far as it goes now.
func (d *testPair) transfer(t testing.TB, c *Channel, v *Vector) (n int, o Outcome) {
	t.Helper()
	kind, head := More, []byte(nil)
	if v.next == 0 {
		total := 0
		for _, e := range v.Elems {
			total += len(e)
		}
		kind, head = First, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 7),
			uint64(total))
	}
	n, o, err := v.TrySend(c, kind, head, 0)
	require.NoError(t, err)
	return n, o
}

// receiveAll returns the bodies that have come, without the head of a FIRST.
func receiveAll(t testing.TB, c *Channel) []byte {
	t.Helper()
	var all []byte
	for {
		kind, body, ok, err := c.Next()
		require.NoError(t, err)
		if !ok {
			return all
		}
		if kind == First {
			body = body[16:]
		}
		all = append(all, body...)
		c.Release()
	}
}

// driveUntilIdle does what both do when nothing else is due: everything is carried out, looked at, and settled.
func (d *testPair) driveUntilIdle(t testing.TB) {
	t.Helper()
	for range 6 {
		d.drive(t)
		d.handleRetransmits(t)
		for _, c := range []*Channel{d.a, d.b} {
			require.Empty(t, receiveAll(t, c))
			_, err := c.Progress()
			require.NoError(t, err)
		}
	}
	d.drive(t)
}

// element is n bytes that depend on what number it is.
func element(number, n int) []byte {
	e := make([]byte, n)
	for i := range e {
		e[i] = byte((number*31 + i) * 0x9e3779b1 >> 16)
	}
	return e
}

// sendThrough sends a vector from one end to the other, whatever it takes, and checks what arrives.
func (d *testPair) sendThrough(t testing.TB, from, to *Channel, elems ...[]byte) {
	t.Helper()
	v := &Vector{Elems: elems}
	var got []byte
	for i := 0; ; i++ {
		require.Less(t, i, 100, "it does not get through")
		_, o := d.transfer(t, from, v)
		require.NotEqual(t, Oversized, o)
		d.drive(t)
		got = append(got, receiveAll(t, to)...)
		_, err := to.Progress()
		require.NoError(t, err)
		d.drive(t)
		d.handleRetransmits(t)
		require.Empty(t, receiveAll(t, from))
		if o == Done {
			break
		}
	}
	require.True(t, bytes.Equal(bytes.Join(elems, nil), got))
}

// sendMalformed posts a message of the channel itself with any body.
func sendMalformed(t testing.TB, c *Channel, k Kind, body []byte) {
	t.Helper()
	s := &c.send
	lines := linesOf(len(body))
	require.True(t, s.reserveLines(lines, 0))
	copy(s.ring[s.pos*lineSize+bodyAt:], body)
	require.NoError(t, c.post(k, len(body), lines, false))
}

// validRequest is the body of a request to which the reply lands after our ring.
func validRequest(c *Channel, phase int) resizeRequest {
	land := c.recv.buffer
	return resizeRequest{phase, land.Key(), uint64(land.replyOffset()), random()}
}

func (q resizeRequest) bytes() []byte {
	b := make([]byte, requestLen)
	q.put(b)
	return b
}

var errCut = errors.New("cut by the test")

// requireViolation looks for the error of a peer that broke a rule, and gives the channel up for it.
func requireViolation(t testing.TB, c *Channel, err error) {
	t.Helper()
	require.ErrorIs(t, err, transport.ErrProtocol)
	require.NoError(t, c.Fail(fmt.Errorf("the peer lied: %w", err)))
	require.Zero(t, c.Stats().Registered)
}

func sendFlags(more bool) SendFlags {
	if more {
		return FlagMore
	}
	return 0
}
