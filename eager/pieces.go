package eager

import (
	"encoding/binary"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/words"
)

// PieceLen is how much of a message goes at a time where one is cut though it would fit a slot: as much as keeps both sides of a stream at work, in lines
// that stay in their nearest caches (docs/adr/0024).
const PieceLen = 2048

// Pieces cuts messages. It is used for one at a time.
type Pieces struct {
	first [PieceLen]byte // where the body of FIRST is made up
}

// Begin sends the beginning of a message, which must be longer than PieceLen, and tells how many bytes of it went. None, without an error, means that there is no
// room now.
func (p *Pieces) Begin(c *channel.Channel, env Envelope, payload []byte) (n int, err error) {
	binary.LittleEndian.PutUint64(p.first[:], uint64(len(payload)))
	n = copy(p.first[words.Size:], payload)
	if sent, err := put(c, channel.First, env.word(), p.first[:], true); !sent {
		return 0, err
	}
	return n, nil
}

// More sends the next piece of what is left of a message, all that Begin and More have not sent, and tells how many bytes that was; none as for Begin.
// With more, another message follows the last one, and may travel with it.
func (p *Pieces) More(c *channel.Channel, rest []byte, more bool) (n int, err error) {
	n = min(len(rest), PieceLen)
	if left := len(rest) - n; left > 0 && left < words.Size { // a piece has a word at least
		n -= words.Size
	}
	if sent, err := put(c, channel.More, words.Get(rest, 0), rest[words.Size:n], more || n < len(rest)); !sent {
		return 0, err
	}
	return n, nil
}

// put sends a message whose body is a word and a payload.
func put(c *channel.Channel, k channel.Kind, first uint64, payload []byte, more bool) (sent bool, err error) {
	if c.Place(k, first, payload, more) {
		return true, nil
	}
	return c.Put(k, first, payload, more)
}
