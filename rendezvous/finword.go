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

// Where queue pairs copy at once, a FIN is a word in memory of the sender: a Write with immediate takes both
// ends longer, and a receive request. The bytes are at the receiver when it writes the word, so nothing has
// to come before that.
//
// FINs come in a ring of words. Each announcement that ends with one (inWord) has room there, so the receiver
// need not look whether there is some. Word n, from 0 on, stands at n modulo finWords. It is the id of the
// announcement, and its highest bit is set in the first, third and every other odd wrap: so a word differs
// from what stood in its place before.
const (
	finWords   = 64
	finBytes   = finWords * wordSize
	wordSize   = 8
	finWrapBit = 1 << 63
)

// finWord is the FIN of an announcement as word n of its ring.
func finWord(id, n uint64) uint64 {
	if n/finWords&1 == 0 {
		return id | finWrapBit
	}
	return id
}

// finRing is where the FINs of one channel come to its sender.
type finRing struct {
	memory transport.MR
	words  *[finWords]uint64 // nil until the receiver knows of them
	next   uint64            // number of the next word
	open   int               // announcements that end with a word
}

// finWordsIn are the words of a ring in its memory, which is page-aligned.
func finWordsIn(mem []byte) *[finWords]uint64 {
	return (*[finWords]uint64)(unsafe.Pointer(unsafe.SliceData(mem[:finBytes])))
}

// hasRoom reports whether one more announcement may end with a word.
func (f *finRing) hasRoom() bool { return f.words != nil && f.open < finWords }

// came reports whether the next word is there, and gives the announcement that it ends.
func (f *finRing) came() (id uint64, ok bool) {
	w := wordcopy.LittleEndian(atomic.LoadUint64(&f.words[f.next%finWords]))
	id = w &^ finWrapBit
	return id, w == finWord(id, f.next) && w != 0
}

// TakeFIN takes the next FIN of a channel that has come as a word, and returns the token of the announcement
// that it ends: its buffer belongs to the sender again. A word that names no open announcement of that
// channel is an error of the peer.
func (s *Sender) TakeFIN(c *channel.Channel) (token uint64, came bool, err error) {
	of := s.sends(c)
	if of.fins.open == 0 {
		return 0, false, nil
	}
	id, came := of.fins.came()
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

// NextFIN gives a channel of which a FIN has come as a word, and its number among those that may have one,
// from number i on; nil if there is none.
func (s *Sender) NextFIN(i int) (c *channel.Channel, at int) {
	for ; i < len(s.shared.with); i++ {
		if of := s.shared.with[i]; of.fins.open > 0 {
			if _, came := of.fins.came(); came {
				return of.c, i
			}
		}
	}
	return nil, i
}

// finWriter writes the FINs of one channel into its sender's ring.
type finWriter struct {
	key    transport.Key // of the ring; 0 if the sender has told of none
	next   uint64        // number of the next word
	to     [1]transport.Segment
	source [1]transport.SGE // of a word that is posted
	post   transport.SendWR
}

// finWriterOf is for a ring with this key. What is posted to it goes out of a word of memory.
func finWriterOf(key transport.Key, source transport.MR) finWriter {
	w := finWriter{key: key, post: transport.SendWR{Op: transport.OpWrite, Flags: transport.FlagInline}}
	w.to[0] = transport.Segment{Key: key, Length: wordSize}
	w.source[0] = transport.SGE{MR: source, Length: wordSize}
	return w
}

// write ends an announcement; with full there was no room for that.
func (w *finWriter) write(qp transport.QP, id uint64) (full bool, err error) {
	if w.key == 0 {
		return false, fmt.Errorf("%w: an announcement with the id %#x, and no memory for its FIN",
			transport.ErrProtocol, id)
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
