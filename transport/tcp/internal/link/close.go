package link

import (
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// CloseWhenSent closes a socket after the peer's system has acknowledged everything that was sent, or when
// the time is over. If anything arrives at a closed socket, such as the Alive of a peer that has not seen the
// end, the system resets the connection and drops what has not been acknowledged. Acknowledged bytes can
// still be read. If the socket cannot be closed at once, later is called with the function that does it.
func CloseWhenSent(fd int, within time.Duration, later func(func())) {
	sys.ShutdownWrite(fd)
	if sent(fd) {
		sys.CloseFD(fd)
		return
	}
	later(func() {
		defer sys.CloseFD(fd)
		end := time.Now().Add(within)
		for pause := minPause; !sent(fd) && time.Now().Before(end); pause = min(2*pause, maxPause) {
			time.Sleep(pause)
		}
	})
}

// Pauses between two checks of a socket that is being closed.
const (
	minPause = time.Millisecond
	maxPause = 50 * time.Millisecond
)

// sent reports whether nothing is in flight to the peer. It drops received data.
func sent(fd int) bool { return Drain(fd) || sys.Unacknowledged(fd) == 0 }

// drainSize is the buffer of Drain, and maxDrain is more than a socket usually holds.
const (
	drainSize = 64 << 10
	maxDrain  = 16 << 20
)

// Drain reads and drops received data: closing a socket with unread bytes resets the connection, and the peer
// might never receive the last bytes written. It reports whether the stream has ended.
func Drain(fd int) (ended bool) {
	sink := make([]byte, drainSize)
	for range maxDrain / drainSize {
		if n, err := sys.Read(fd, sink); n <= 0 || err != nil {
			return n == 0 || err != nil
		}
	}
	return false
}
