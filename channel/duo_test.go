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

// duo is a channel with both its ends, over a Pair that writes down what it carries.
type duo struct {
	*channeltest.Pair
	channeltest.Transcript
	a, b *Channel
}

// pairUp opens a channel. At the end of the test nothing of it may be left.
func pairUp(t testing.TB, conf Config) *duo { return pairUpUneven(t, conf, conf) }

// pairUpUneven opens a channel whose ends differ in what is not common to all ranks of a job.
func pairUpUneven(t testing.TB, confA, confB Config) *duo {
	d := &duo{Pair: channeltest.NewPair()}
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
	t.Cleanup(func() { d.givenBack(t) })
	return d
}

// givenBack closes both ends and looks for what is left.
func (d *duo) givenBack(t testing.TB) {
	t.Helper()
	for _, c := range []*Channel{d.a, d.b} {
		require.NoError(t, c.Close())
		require.Zero(t, c.Stats().Registered)
		if c.conf.Budget != nil {
			require.Zero(t, c.conf.Budget.used)
		}
	}
	require.Zero(t, d.A.Regions()+d.B.Regions()+d.A.Pages()+d.B.Pages())
}

// record starts the transcript.
func (d *duo) record() { d.Record(d.Pair, d.a.Descriptor(), d.b.Descriptor()) }

func (d *duo) drive(t testing.TB) {
	t.Helper()
	require.NoError(t, d.Drive())
}

// hear gives both ends what is asked for again.
func (d *duo) hear(t testing.TB) {
	t.Helper()
	for e, c := range map[*channeltest.End]*Channel{d.A: d.a, d.B: d.b} {
		var wc [4]transport.WC
		for _, w := range wc[:e.Poll(wc[:])] {
			require.Equal(t, transport.OpRecv, w.Op)
			require.NoError(t, e.PostRecv(&transport.RecvWR{}))
			require.NoError(t, c.AskedAgain())
		}
	}
}

// transfer moves a vector as far as it goes now.
func (d *duo) transfer(t testing.TB, c *Channel, v *Vector) (n int, o Outcome) {
	t.Helper()
	kind, head := More, []byte(nil)
	if v.next == 0 {
		total := 0
		for _, e := range v.Elems {
			total += len(e)
		}
		kind, head = First, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 7), uint64(total))
	}
	n, o, err := c.Transfer(v, kind, head, false)
	require.NoError(t, err)
	return n, o
}

// taken are the bodies that have come, without the head of a FIRST.
func taken(t testing.TB, c *Channel) []byte {
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

// settle is what both do when nothing else is due: everything is carried out, looked at, and settled.
func (d *duo) settle(t testing.TB) {
	t.Helper()
	for range 6 {
		d.drive(t)
		d.hear(t)
		for _, c := range []*Channel{d.a, d.b} {
			require.Empty(t, taken(t, c))
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

// through sends a vector from one end to the other, whatever it takes, and checks what arrives.
func (d *duo) through(t testing.TB, from, to *Channel, elems ...[]byte) {
	t.Helper()
	v := &Vector{Elems: elems}
	var got []byte
	for i := 0; ; i++ {
		require.Less(t, i, 100, "it does not get through")
		_, o := d.transfer(t, from, v)
		require.NotEqual(t, Oversized, o)
		d.drive(t)
		got = append(got, taken(t, to)...)
		_, err := to.Progress()
		require.NoError(t, err)
		d.drive(t)
		d.hear(t)
		require.Empty(t, taken(t, from))
		if o == Done {
			break
		}
	}
	require.True(t, bytes.Equal(bytes.Join(elems, nil), got))
}

// lie posts a message of the channel itself with any body.
func lie(t testing.TB, c *Channel, k Kind, body []byte) {
	t.Helper()
	s := &c.send
	lines := linesOf(len(body))
	require.True(t, s.seat(lines, 0))
	copy(s.ring[s.pos*lineSize+bodyAt:], body)
	require.NoError(t, c.post(k, len(body), lines, false))
}

// asking is the body of a question to which the answer lands behind our ring.
func honest(c *Channel, phase int) question {
	land := c.recv.buffer
	return question{phase, land.Key(), uint64(land.landing()), random()}
}

func (q question) bytes() []byte {
	b := make([]byte, questionLen)
	q.put(b)
	return b
}

var errCut = errors.New("cut by the test")

// violated looks for the error of a peer that broke a rule, and gives the channel up for it.
func violated(t testing.TB, c *Channel, err error) {
	t.Helper()
	require.ErrorIs(t, err, transport.ErrProtocol)
	require.NoError(t, c.Fail(fmt.Errorf("the peer lied: %w", err)))
	require.Zero(t, c.Stats().Registered)
}
