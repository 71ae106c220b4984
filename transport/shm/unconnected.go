package shm

import (
	"sync"

	"github.com/weft-mpi/weft/internal/firstmessage"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// unconnected are the messages without a connection, to this endpoint and from it. Its memory is nil if there
// are none.
type unconnected struct {
	memory   *firstmessage.Memory
	receiver transport.UnconnectedReceiver
	arrival  sync.Mutex // held while messages are taken

	mu     sync.Mutex
	asleep []uint32 // ranks that have got messages, and may sleep
}

// open begins to take messages. The goroutine for requests takes them, and has this name.
func (u *unconnected) open(e *endpoint, wake wakeName) {
	receiver, ok := e.acceptor.(transport.UnconnectedReceiver)
	if m := e.dev.opts.FirstMessages; ok &&
		m.Open(e.id.Rank, [firstmessage.WakeSize]byte(append(wake.id[:], wake.token[:]...))) {
		u.memory, u.receiver = m, receiver
	}
}

var _ transport.UnconnectedSender = (*endpoint)(nil)

var _ [firstmessage.MaxMessage - transport.MaxUnconnected]struct{}

// SendUnconnected leaves a message in the memory of the host's ranks.
func (e *endpoint) SendUnconnected(peer uint32, message []byte) bool {
	u := &e.requests.unconnected
	if transport.PortOf(peer) != 0 || !u.memory.Send(transport.RankOf(peer), message) {
		return false
	}
	u.mu.Lock()
	u.asleep = append(u.asleep, transport.RankOf(peer))
	u.mu.Unlock()
	return true
}

// ask wakes the goroutines of the ranks that have got messages.
func (u *unconnected) ask(from *sys.WakeSocket) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, rank := range u.asleep {
		if wake, must := u.memory.MustWake(rank); must {
			n := wakeName{[wakeNameSize]byte(wake[:wakeNameSize]), [sys.TokenSize]byte(wake[wakeNameSize:])}
			from.Signal(n.address())
		}
	}
	u.asleep = u.asleep[:0]
}

// take gives the acceptor the messages that have come, and reports whether there were any.
func (u *unconnected) take() (found bool) {
	if u.memory == nil {
		return false
	}
	u.arrival.Lock()
	defer u.arrival.Unlock()
	return u.memory.Take(u.receiver.Unconnected)
}
