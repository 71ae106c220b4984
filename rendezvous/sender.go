// Package rendezvous is the protocol of large messages. The sender registers its buffer and announces it
// (RTS, request to send) through the channel's ring, in order with all other messages. After a receive has
// matched, the receiver moves the bytes directly into the user's buffer: with RDMA Reads, several at a time,
// or with one copy if the sender's memory is mapped. FIN then tells the sender that its buffer is free. An
// element of a vector is announced in the same way, by a PIECE between the other fragments of its message.
//
// Without Reads, the receiver grants its buffer (CTS, clear to send), and the sender writes the bytes
// directly to it. The sender learns from its own completions when its buffer is free, and the immediate of
// the last Write notifies the receiver.
//
// FIN has three forms. Usually it is a Write with immediate of no bytes: a delivered completion that needs no
// slot and no credit (docs/internals/adr/0022). If queue pairs copy memory immediately and can map it, and
// SenderConfig.Share is set, up to finWords open announcements of a channel end with a word that the receiver
// writes into the sender's memory (finword.go). Beyond MaxFINs open announcements of the first form, FIN is a
// message in the ring, ATS, so that the number of announcements is not limited.
//
// A long message between ranks that share memory can be copied by both ends (package sharedcopy), which is
// called a cooperative copy. The sender first sends CLAIMS: the keys of a work-claim table, which the
// receiver maps, and of the words for FIN. The receiver publishes a part of the message in the table, and
// both ends claim its pages and copy them: the receiver from the sender's memory, and the sender, in its
// passes, into the receiver's.
//
// A sender that abandons a message recalls it (WITHDRAW). The receiver answers with ATS if no receive has
// matched the message; a message that was matched ends like any other.
package rendezvous

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/transport"
)

// MaxFINs is how many announcements of one channel keep a receive request without memory posted, for a FIN by
// immediate. A FIN word is tried before that (finword.go); announcements for which neither has room end with
// ATS.
const MaxFINs = 256

// Sender is the sending side of a rank, for all its channels.
type Sender struct {
	pd        transport.PD
	piece     uint64
	depth     int
	table     []pendingSend
	free      uint32 // index of the first free entry, plus one
	inUse     int    // entries in use, and unsent withdrawals
	channels  map[*channel.Channel]*channelSends
	lastOf    *channelSends    // of the last channel used
	emptyRecv transport.RecvWR // for a FIN: no bytes
	stages    stages
	readable  bool // peers can copy memory immediately, by its key
	shared    sharing
	gathering *channel.Channel        // see Gather
	scratch   []byte                  // for fillers; nil until there is one, and if ranks share cores
	views     transport.ViewRegistrar // nil if the device does not support views
}

// SenderConfig says how messages are written into granted buffers. A zero field selects its default.
type SenderConfig struct {
	Piece int // transfer size: bytes of one Write; 1 MiB
	Depth int // Writes of one channel in flight, 8; more if they are shorter than Piece
	// Share lets the sender copy a part of long messages while their receivers fetch them, if queue pairs
	// copy immediately and can map memory. It also lets it bypass the caches for bytes that receivers read
	// next. It is for ranks with a core each.
	Share bool
}

// channelSends has the announcements of one channel.
type channelSends struct {
	c        *channel.Channel
	fins     finRing
	open     int // announcements
	finRecvs int // of these, those with a posted receive request for FIN
	// receive requests of announcements that failed, or ended without FIN
	spareRecvs  int
	withdrawals []uint64 // ids of unsent WITHDRAWs
	channelClaims
	channelWrites
}

// pendingSend is an announced message, or an announced element of one, that has not ended.
type pendingSend struct {
	generation uint32 // reuse count, so that a FIN of an earlier use does not match
	next       uint32 // free entries: index plus one
	c          *channel.Channel
	channel    *channelSends
	mr         transport.MR // nil for a message of no bytes, and for one that is gathered
	length     uint64
	token      uint64 // the caller's cookie, returned unchanged, as a wr_id
	end        endKind
	written    written
	gathered   gathered
}

// endKind is how the receiver ends an announcement.
type endKind uint8

const (
	endATS  endKind = iota // by a message in the ring
	endFIN                 // by an immediate, for which a receive request is posted
	endWord                // by a word in the sender's memory
)

// NewSender makes the sending side of a rank whose channels use pd.
func NewSender(pd transport.PD, c SenderConfig) *Sender {
	piece, depth := orDefault(c.Piece, defaultPiece), orDefault(c.Depth, defaultDepth)
	a := &Sender{pd: pd, piece: uint64(piece), depth: depth, channels: map[*channel.Channel]*channelSends{},
		stages: stages{pd: pd}, readable: pd.DeviceAttr().DirectCopies}
	if a.readable {
		a.stages.rights = transport.RemoteRead
	}
	a.shared.enabled = a.readable && c.Share
	a.views = transport.ViewRegistrarOf(pd)
	return a
}

// TrySendRTS announces buf, which may be empty, as a whole message. If it returns true, buf must not change
// until OnFIN, TakeFIN, OnATS, OnCompletion or Fail returns token, a cookie of the caller that is returned
// unchanged, as a wr_id. False means that there is no room now: no credits, or a full send queue. The id
// identifies the announcement for Withdraw.
func (s *Sender) TrySendRTS(c *channel.Channel, env eager.Envelope, buf []byte, token uint64, more bool) (
	id uint64, ok bool, err error) {
	return s.trySend(c, channel.RTS, rtsLen, buf, nil, len(buf), token, more, putRTS(env))
}

func putRTS(env eager.Envelope) func(body []byte, s Source) {
	return func(body []byte, s Source) {
		RTS{Context: env.Context, Tag: env.Tag, Source: s}.Append(body[:0])
	}
}

// TrySendGathered is TrySendRTS of n bytes (n > 0) that from provides until the token is returned.
func (s *Sender) TrySendGathered(c *channel.Channel, env eager.Envelope, from transport.View, n int,
	token uint64, more bool) (id uint64, ok bool, err error) {
	return s.trySend(c, channel.RTS, rtsLen, nil, from, n, token, more, putRTS(env))
}

// TrySendPiece is TrySendRTS for the next element of a message that has begun: it sends a PIECE.
func (s *Sender) TrySendPiece(c *channel.Channel, buf []byte, token uint64, more bool) (id uint64, ok bool,
	err error) {
	return s.trySend(c, channel.Piece, sourceLen, buf, nil, len(buf), token, more,
		func(body []byte, source Source) { source.Append(body[:0]) })
}

// trySend announces buf, or length bytes from a view, with a message of kind k, whose body of n bytes put
// writes.
func (s *Sender) trySend(c *channel.Channel, k channel.Kind, n int, buf []byte, from transport.View,
	length int, token uint64, more bool, put func(body []byte, source Source)) (uint64, bool, error) {
	of := s.sends(c)
	if s.shared.enabled && of.fins.words == nil && !of.unshared {
		if err := s.offerClaims(c, of); err != nil {
			return 0, false, err
		}
	}
	i := s.alloc()
	end := endATS
	switch {
	case of.fins.hasRoom():
		end = endWord
	case of.finRecvs < MaxFINs && i <= maxFINIndex:
		end = endFIN
	}
	if end == endFIN && of.spareRecvs == 0 {
		if err := c.QP().PostRecv(&s.emptyRecv); err != nil {
			s.release(i)
			return 0, false, fmt.Errorf("receive request for FIN: %w", err)
		}
		of.spareRecvs++
	}
	var mr, stage transport.MR
	e := &s.table[i]
	e.end = end
	id := e.id(i)
	sent, err := c.TrySendControl(k, n, more, func(body []byte) (err error) {
		source := Source{ID: id, Length: uint64(length)}
		if len(buf) > 0 {
			if mr, err = s.pd.Register(buf, transport.RemoteRead|transport.Unchanging); err != nil {
				return fmt.Errorf("send buffer of %d bytes: %w", len(buf), err)
			}
			source.Key = mr.Key()
		}
		if from != nil && s.views != nil {
			if mr, err = s.views.RegisterView(from, length,
				transport.RemoteRead|transport.Unchanging); err != nil {
				return fmt.Errorf("send buffer of %d bytes, a view: %w", length, err)
			}
			source.Key, from = mr.Key(), nil
		}
		if from != nil && s.readable && length <= stagePieces*StagePiece {
			if stage, err = s.stages.spare(); err != nil {
				return fmt.Errorf("memory to gather a message in: %w", err)
			}
			if stage != nil {
				from.Gather(0, stage.Bytes()[:length])
				source.Key = stage.Key()
			}
		}
		put(body, source)
		return nil
	})
	if !sent {
		s.release(i)
		if mr != nil {
			err = errors.Join(err, mr.Deregister())
		}
		return 0, false, errors.Join(err, s.stages.give(stage))
	}
	e.c, e.channel, e.mr, e.token, e.length = c, of, mr, token, uint64(length)
	e.gathered.from, e.gathered.stage = from, stage
	of.open++
	switch end {
	case endFIN:
		of.finRecvs++
		of.spareRecvs--
	case endWord:
		of.fins.open++
	}
	return id, true, nil
}

// sends returns the announcements of a channel.
func (s *Sender) sends(c *channel.Channel) *channelSends {
	if s.lastOf != nil && s.lastOf.c == c {
		return s.lastOf
	}
	of := s.channels[c]
	if of == nil {
		of = &channelSends{c: c}
		of.write.Flags = transport.FlagSignaled | transport.FlagMore
		s.channels[c] = of
	}
	s.lastOf = of
	return of
}

// The id of an announcement, from its lowest bits on: 20 bits of its index, 29 of its generation, and the
// other 12 bits of the index. FIN has 31 bits for it, so an announcement that ends with FIN has a low index,
// and FIN names it by that index and the last bits of its generation.
const (
	lowIndexBits   = 20
	maxFINIndex    = 1<<lowIndexBits - 1
	generationBits = 29
	maxGeneration  = 1<<generationBits - 1
)

// id returns the id of an announcement on the wire.
func (e *pendingSend) id(i uint32) uint64 {
	id := uint64(i>>lowIndexBits)<<(lowIndexBits+generationBits) | uint64(e.generation)<<lowIndexBits |
		uint64(i&maxFINIndex)
	switch e.end {
	case endATS:
		id |= endsWithATS
	case endWord:
		id |= endsWithWord
	}
	return id
}

// indexOf returns the index in an id.
func indexOf(id uint64) uint32 {
	id &^= endsWithATS | endsWithWord
	return uint32(id>>(lowIndexBits+generationBits)<<lowIndexBits | id&maxFINIndex)
}

// Outstanding returns the number of announcements of a channel that are not finished.
func (s *Sender) Outstanding(c *channel.Channel) int {
	if of := s.channels[c]; of != nil {
		return of.open
	}
	return 0
}

// OnFIN handles a delivered FIN of a channel: the buffer whose token it returns belongs to the sender again.
// An immediate that names no open announcement of that channel is an error of the peer.
func (s *Sender) OnFIN(c *channel.Channel, imm uint32) (token uint64, err error) {
	f := parseFIN(imm)
	i := f.id & maxFINIndex
	if uint64(i) >= uint64(len(s.table)) || s.table[i].c != c || finOf(s.table[i].id(i)) != f ||
		s.table[i].written.granted > 0 || s.table[i].end != endFIN {
		return 0, fmt.Errorf("%w: FIN %#x names no open announcement", transport.ErrProtocol, imm)
	}
	return s.finish(i)
}

// OnATS handles an ATS of a channel: either it ends an announcement, as OnFIN does, or it says that the
// receiver has discarded a message that no receive had matched.
func (s *Sender) OnATS(c *channel.Channel, d ATS) (token uint64, err error) {
	i, ok := s.find(c, d.ID)
	if !ok || s.table[i].written.granted > 0 || s.table[i].end != endATS && !d.Withdrawn {
		return 0, fmt.Errorf("%w: ATS for %#x names no open announcement", transport.ErrProtocol, d.ID)
	}
	if s.table[i].end == endFIN {
		s.table[i].channel.spareRecvs++ // no FIN will take it
	}
	return s.finish(i)
}

// Written returns how many bytes of the open announcements with a token have been posted to be written where
// their receivers have granted it.
func (s *Sender) Written(token uint64) (n int) {
	for i := range s.table {
		if e := &s.table[i]; e.c != nil && e.token == token {
			n += int(e.written.asked)
		}
	}
	return n
}

// SetToken changes the token of an open announcement.
func (s *Sender) SetToken(id, token uint64) { s.table[indexOf(id)].token = token }

// EndsInWord reports whether an announcement ends with a FIN word, for TakeFIN.
func EndsInWord(id uint64) bool { return id&(endsWithWord|endsWithATS) == endsWithWord }

// find returns the index of an open announcement of a channel.
func (s *Sender) find(c *channel.Channel, id uint64) (i uint32, ok bool) {
	i = indexOf(id)
	return i, uint64(i) < uint64(len(s.table)) && s.table[i].c == c && s.table[i].id(i) == id
}

func (s *Sender) finish(i uint32) (uint64, error) {
	e := &s.table[i]
	token, mr, stage := e.token, e.mr, e.gathered.stage
	e.channel.open--
	switch e.end {
	case endFIN:
		e.channel.finRecvs--
	case endWord:
		e.channel.fins.open--
	}
	s.release(i)
	if mr == nil {
		return token, s.stages.give(stage)
	}
	return token, mr.Deregister()
}

// Fail ends all announcements of a channel whose queue pair is cut, and passes their tokens to each.
func (s *Sender) Fail(c *channel.Channel, each func(token uint64)) error {
	var first error
	for i := range s.table {
		if e := &s.table[i]; e.c == c {
			if stage := e.gathered.stage; stage != nil {
				s.stages.made--
				e.mr, e.gathered.stage = stage, nil // memory that is still read is not reused
			}
			token, err := s.finish(uint32(i))
			if err != nil && first == nil {
				first = err
			}
			each(token)
		}
	}
	if of := s.channels[c]; of != nil {
		s.inUse -= len(of.withdrawals)
		if err := s.dropClaims(of); err != nil && first == nil {
			first = err
		}
	}
	delete(s.channels, c)
	s.lastOf = nil
	return first
}

func (s *Sender) alloc() uint32 {
	s.inUse++
	if s.free == 0 {
		s.table = append(s.table, pendingSend{})
		return uint32(len(s.table) - 1)
	}
	i := s.free - 1
	s.free = s.table[i].next
	return i
}

func (s *Sender) release(i uint32) {
	s.inUse--
	e := &s.table[i]
	*e = pendingSend{generation: (e.generation + 1) & maxGeneration, next: s.free}
	s.free = i + 1
}
