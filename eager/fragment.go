package eager

import (
	"encoding/binary"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/wordcopy"
)

// A message from one contiguous buffer can go in fragments too, so that its receiver copies one while the
// sender copies the next: a FIRST without payload, then MORE.

const fragmentAlign = 64 // but for its last, the fragments of a message are multiples of a cache line

// FragmentLen returns the length of the fragments of a message of n bytes, the last of which may be shorter:
// about equal ones, of at most most bytes, which is a multiple of a cache line.
func FragmentLen(n, most int) int {
	count := (n + most - 1) / most
	return ((n+count-1)/count + fragmentAlign - 1) &^ (fragmentAlign - 1)
}

// Fragments returns the fragments of a message, as the elements of a Message.
func Fragments(payload []byte, length int) (list [][]byte) {
	for ; len(payload) > length; payload = payload[length:] {
		list = append(list, payload[:length:length])
	}
	return append(list, payload)
}

// First is the memory of a FIRST without payload.
type First [firstLen - EnvelopeLen]byte

// TrySend sends a FIRST of a message of total bytes, as TrySend does.
func (f *First) TrySend(c *channel.Channel, env Envelope, total int) (bool, error) {
	binary.LittleEndian.PutUint64(f[:], uint64(total))
	return c.TrySend(channel.First, env.word(), f[:], 0)
}

// TrySendMore sends the next fragment of a message whose FIRST was sent, as TrySend does. It has at least 8
// bytes.
func TrySendMore(c *channel.Channel, fragment []byte) (bool, error) {
	return c.TrySend(channel.More, wordcopy.Get(fragment, 0), fragment[wordcopy.Size:], 0)
}
