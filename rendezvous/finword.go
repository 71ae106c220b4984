package rendezvous

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/transport"
)

// If queue pairs copy memory immediately and can map it (transport.Mapper), and SenderConfig.Share is set, a
// FIN is a word in the sender's memory, because a Write with immediate takes both ends longer, and needs a
// receive request. The receiver has all bytes when it writes the word, so nothing must precede it.
//
// The FINs of a channel arrive in a ring of words. Each announcement that ends with a word (endsWithWord) has
// room there, so the receiver need not check. Word n, from 0 on, has index n modulo finWords. It is the id of
// the announcement, with its highest bit set in the first, third and every other odd wrap, so that a word
// differs from the previous one at its index.
const (
	finWords   = 64
	finBytes   = finWords * wordSize
	wordSize   = 8
	finWrapBit = 1 << 63
)

// finWord returns the FIN of an announcement as word n of its ring.
func finWord(id, n uint64) uint64 {
	if n/finWords&1 == 0 {
		return id | finWrapBit
	}
	return id
}

// finRing is the ring in which the FINs of one channel arrive at the sender.
type finRing struct {
	memory transport.MR
	words  *[finWords]uint64 // nil until CLAIMS was sent
	next   uint64            // number of the next word
	open   int               // open announcements that end with a word
}

// finWordsIn returns the words of a ring in its memory, which is page-aligned.
func finWordsIn(mem []byte) *[finWords]uint64 {
	return (*[finWords]uint64)(unsafe.Pointer(unsafe.SliceData(mem[:finBytes])))
}

// hasRoom reports whether one more announcement may end with a word.
func (f *finRing) hasRoom() bool { return f.words != nil && f.open < finWords }

// arrived reports whether the next word has arrived, and returns the id of the announcement that it ends.
func (f *finRing) arrived() (id uint64, ok bool) {
	w := wordcopy.LittleEndian(atomic.LoadUint64(&f.words[f.next%finWords]))
	id = w &^ finWrapBit
	return id, w == finWord(id, f.next) && w != 0
}

// TakeFIN returns the token of the announcement that the next FIN word of a channel ends, if one has arrived:
// its buffer belongs to the sender again. A word that names no open announcement of that channel is an error
// of the peer.
func (s *Sender) TakeFIN(c *channel.Channel) (token uint64, came bool, err error) {
	of := s.sends(c)
	if of.fins.open == 0 {
		return 0, false, nil
	}
	id, came := of.fins.arrived()
	if !came {
		return 0, false, nil
	}
	i, ok := s.find(c, id)
	if !ok || s.table[i].written.granted > 0 || s.table[i].end != endWord {
		return 0, true, fmt.Errorf("%w: FIN %#x, in a word, names no open announcement",
			transport.ErrProtocol, id)
	}
	of.fins.next++
	token, err = s.finish(i)
	return token, true, err
}

// NextFIN returns the next channel, from index i on, for which a FIN word has arrived, and its index; nil if
// there is none.
func (s *Sender) NextFIN(i int) (c *channel.Channel, at int) {
	for ; i < len(s.shared.with); i++ {
		if of := s.shared.with[i]; of.fins.open > 0 {
			if _, came := of.fins.arrived(); came {
				return of.c, i
			}
		}
	}
	return nil, i
}

// finWriter writes the FINs of one channel into its sender's ring.
type finWriter struct {
	key    transport.Key // of the ring; 0 if the sender has none
	next   uint64        // number of the next word
	to     [1]transport.Segment
	source [1]transport.SGE // of a posted word
	post   transport.SendWR
}

// finWriterOf returns the writer for a ring with this key. Posted words are sent from source.
func finWriterOf(key transport.Key, source transport.MR) finWriter {
	w := finWriter{key: key, post: transport.SendWR{Op: transport.OpWrite, Flags: transport.FlagInline}}
	w.to[0] = transport.Segment{Key: key, Length: wordSize}
	w.source[0] = transport.SGE{MR: source, Length: wordSize}
	return w
}

// write ends an announcement; full means that the send queue had no room.
func (w *finWriter) write(qp transport.QP, id uint64) (full bool, err error) {
	if w.key == 0 {
		return false, fmt.Errorf("%w: announcement %#x has no memory for its FIN", transport.ErrProtocol, id)
	}
	w.to[0].Offset = w.next % finWords * wordSize
	word := finWord(id, w.next)
	if !qp.WriteInline(&w.to[0], nil, nil, word) {
		binary.LittleEndian.PutUint64(w.source[0].MR.Bytes(), word)
		w.post.Local, w.post.Remote = w.source[:], w.to[:]
		if full, err = post(qp, &w.post); full || err != nil {
			return full, err
		}
	}
	w.next++
	return false, nil
}
