package shm

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/weft-mpi/weft/internal/sys"
)

// wakeNameSize is the number of random bytes in the name of a wake socket.
const wakeNameSize = 16

// wakeName identifies the socket at which peers wake a sleeping completion queue. Its name is random but
// visible to everybody on the host; the token is known only to peers.
type wakeName struct {
	id    [wakeNameSize]byte
	token [sys.TokenSize]byte
}

// newWakeName makes a name that nobody else has.
func newWakeName() (w wakeName) {
	rand.Read(w.id[:])
	rand.Read(w.token[:])
	return w
}

// newPoller makes a poller that peers can wake.
func newPoller() (*sys.Poller, wakeName, error) {
	w := newWakeName()
	p, err := sys.NewPoller()
	if err != nil {
		return nil, w, err
	}
	if err := p.Open(w.address()); err != nil {
		p.Close()
		return nil, w, err
	}
	return p, w, nil
}

// address returns the socket's address. Its name is never too long.
func (w *wakeName) address() *sys.WakeAddress {
	name := hex.AppendEncode(append(make([]byte, 0, 64), socketPrefix...), w.id[:])
	a, err := sys.NewWakeAddress(string(name), w.token)
	if err != nil {
		panic(err)
	}
	return a
}
