package coordinator

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"net"
	"sync"
	"time"
)

// sendWithin bounds the writing of a message. A receiver has at most a few messages in flight, so its
// connection has room for them.
const sendWithin = 10 * time.Second

// tagSize is the length of the tag at the end of each message.
const tagSize = 16

// A link is a connection after its handshake. Each message has a tag, from a key of this connection, the
// direction and the number of the message, so nobody in between can change, repeat or remove one.
type link struct {
	conn net.Conn
	in   *bufio.Reader
	from seal // of received messages; used by one goroutine

	mu sync.Mutex
	to seal
}

func newLink(conn net.Conn, key []byte, out, in byte) *link {
	return &link{conn: conn, in: bufio.NewReaderSize(conn, maxFrame), to: newSeal(key, out),
		from: newSeal(key, in)}
}

func (l *link) send(m message) error { return l.sendWithin(m, sendWithin) }

func (l *link) sendWithin(m message, within time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := m.format()
	l.conn.SetWriteDeadline(time.Now().Add(within))
	return writeFrame(l.conn, append(b, l.to.next(b)...))
}

func (l *link) receive() (message, error) {
	b, err := readFrame(l.in, maxFrame)
	if err != nil {
		return message{}, err
	}
	if len(b) < tagSize || !hmac.Equal(b[len(b)-tagSize:], l.from.next(b[:len(b)-tagSize])) {
		return message{}, errors.New("a message with a wrong tag")
	}
	return parse(b[:len(b)-tagSize])
}

// A seal makes the tags of one direction.
type seal struct {
	mac       hash.Hash
	direction byte
	number    uint64
}

func newSeal(key []byte, direction byte) seal {
	return seal{mac: hmac.New(sha256.New, key), direction: direction}
}

func (s *seal) next(b []byte) []byte {
	s.mac.Reset()
	s.mac.Write(binary.BigEndian.AppendUint64([]byte{s.direction}, s.number))
	s.mac.Write(b)
	s.number++
	return s.mac.Sum(nil)[:tagSize]
}
