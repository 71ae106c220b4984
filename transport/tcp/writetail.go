package tcp

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// A Write over lanes whose last frame arrives before others: its last bytes are held back until the rest is
// placed, so that a poller of them finds everything else (DeviceAttr.TailLast).

// heldTail is the last bytes of a Write whose other frames are missing.
type heldTail struct {
	r     *verbs.Region
	key   transport.Key
	at, n int
	bytes [tailSize]byte
}

// place places the bytes, unless the region was deregistered meanwhile.
func (t *heldTail) place() error {
	if t.r.Key() != t.key {
		return givenUp(uint64(t.key))
	}
	place.Bytes(t.r.Mem[t.at:t.at+t.n], t.bytes[:t.n])
	return nil
}

// placeOrHoldTail places the last bytes of a frame, or holds them until the rest of the Write has arrived.
func (r *laneReceiver) placeOrHoldTail(i *incoming) error {
	if i.held == 0 || i.Flags&frame.Last == 0 || r.in.Whole(i.Ref, i.Number) {
		return i.placeHeld()
	}
	r.in.Hold(i.Ref, i.Number, heldTail{r: i.r, key: transport.Key(i.A), at: i.at, n: i.held, bytes: i.last})
	i.held = 0
	return nil
}

// releaseTails places held tails whose Writes are complete.
func (r *laneReceiver) releaseTails() {
	for {
		t, n, ok := r.in.Release()
		if !ok {
			return
		}
		if err := t.place(); err != nil {
			r.deferError(n, err)
			continue
		}
		r.q.ReportPlaced()
	}
}
