package coordinator

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzMessage(f *testing.F) {
	f.Add((&message{kindPut, 1, 2, "key", "value"}).format())
	f.Add((&message{kindStart, 0, 4, "", "id"}).format())
	f.Add([]byte{byte(kindGet), 0, 0, 0, 0, 0, 0, 0, 0, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parse(b); err == nil {
			require.Equal(t, b, m.format())
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add((&hello{1, 2, 3, "kernel", "host"}).format())
	f.Add(greeting())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			return
		}
		again := h.format()
		require.Equal(t, b[greetSize:], again[greetSize:])
		_ = h.who()
	})
}

// pair runs both sides of a handshake.
func pair(t *testing.T, ours, theirs [secretSize]byte, between func(net.Conn) net.Conn) (rank0, rank *link,
	refused, failed error) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		rank0, _, refused = admit(a, ours)
		if refused != nil {
			a.Close()
		}
	}()
	rank, failed = call(between(b), theirs, hello{rank: 1, size: 2, host: "h", kernel: "k"})
	if failed != nil {
		b.Close()
	}
	<-done
	return rank0, rank, refused, failed
}

func direct(c net.Conn) net.Conn { return c }

func TestHandshake(t *testing.T) {
	secret := [secretSize]byte{1}
	rank0, rank, err1, err2 := pair(t, secret, secret, direct)
	require.NoError(t, err1)
	require.NoError(t, err2)
	for _, m := range []message{{kindPut, 1, 2, "k", "v"}, {kind: kindBarrier}} {
		go rank.send(m)
		got, err := rank0.receive()
		require.NoError(t, err)
		require.Equal(t, m, got)
	}

	_, _, err1, err2 = pair(t, secret, [secretSize]byte{2}, direct)
	require.Error(t, err1)
	require.ErrorIs(t, err2, errSecret)
}

// changing is a connection whose reader sees the first frame with one byte changed.
type changing struct {
	net.Conn
	at, read int
}

func (c *changing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if i := c.at - c.read; i >= 0 && i < n {
		b[i] ^= 1
	}
	c.read += n
	return n, err
}

func TestHandshake_AnotherVersion(t *testing.T) {
	secret := [secretSize]byte{1}
	_, _, _, err := pair(t, secret, secret, func(c net.Conn) net.Conn {
		return &changing{Conn: c, at: 4 + len(magic) + 1}
	})
	var other *versionError
	require.ErrorAs(t, err, &other)
	require.Equal(t, uint16(version^1), other.theirs)
	_, _, _, err = pair(t, secret, secret, func(c net.Conn) net.Conn { return &changing{Conn: c, at: 4} })
	require.ErrorIs(t, err, errNoCoordinator)
}

// A rank does not believe who answers for rank 0 and does not know the secret.
func TestHandshake_FalseCoordinator(t *testing.T) {
	secret := [secretSize]byte{1}
	_, _, _, err := pair(t, secret, secret, func(c net.Conn) net.Conn {
		return &changing{Conn: c, at: 4 + greetSize + 4 + answerSize - 1}
	})
	require.ErrorIs(t, err, errSecret)
}

// Nobody on the way can change a message, nor send it twice.
func TestLink_Tags(t *testing.T) {
	var key [32]byte
	write := func(m message) []byte {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		go newLink(a, key[:], 'r', 'c').send(m)
		frame, err := readFrame(b, maxFrame)
		require.NoError(t, err)
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
	}
	read := func(b []byte) (*link, error) {
		a, c := net.Pipe()
		t.Cleanup(func() { a.Close() })
		go func() {
			c.Write(b)
			c.Close()
		}()
		l := newLink(a, key[:], 'c', 'r')
		_, err := l.receive()
		return l, err
	}
	frame := write(message{kind: kindAbort, number: 1})
	_, err := read(frame)
	require.NoError(t, err)
	for i := 4; i < len(frame); i++ {
		changed := bytes.Clone(frame)
		changed[i] ^= 1
		_, err := read(changed)
		require.ErrorContains(t, err, "wrong tag")
	}
	l, err := read(append(bytes.Clone(frame), frame...))
	require.NoError(t, err)
	_, err = l.receive()
	require.ErrorContains(t, err, "wrong tag")
}
