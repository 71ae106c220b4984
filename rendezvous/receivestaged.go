package rendezvous

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// staged is a message that is received through staging memory, two chunks at a time.
type staged struct {
	in   transport.MR
	base int // position of the message's first byte, for Place
}

// StartStaged is Start for bytes that go to ReceiverConfig.Place, from position at on: the first want bytes
// of those that were announced. With atOnce, this call may copy all of them, if the peer's memory can be
// copied.
func (r *Receiver) StartStaged(c *channel.Channel, s Source, at, want int, token uint64, atOnce bool) (
	done bool, err error) {
	l := r.queue(c)
	if want == 0 {
		r.queueFIN(l, ATS{ID: s.ID})
		return true, r.Progress(c)
	}
	t := r.start(s, token)
	t.staged.base, t.want, t.method = at, want, stagedReads{}
	if r.grants || s.Key == 0 {
		t.method, t.depth = stagedGrants{}, r.maxGrants
	}
	if t.staged.in, err = r.stages.take(); err != nil {
		r.inUse--
		t.next, r.free = r.free, t
		return false, fmt.Errorf("staging memory for a message: %w", err)
	}
	if atOnce && r.copies && s.Key != 0 && l.first == nil && l.inFlight == 0 && r.copyStaged(l, t) {
		r.queueFIN(l, ATS{ID: s.ID})
		if err := r.release(t); err != nil {
			return true, err
		}
		return true, r.Progress(c)
	}
	l.add(t, c)
	return false, r.Progress(c)
}

// copyStaged copies a message chunk by chunk; false, with a part of it or nothing placed, if the memory
// cannot be copied.
func (r *Receiver) copyStaged(l *channelQueue, t *fetch) bool {
	for t.arrived < t.want {
		b := t.staged.in.Bytes()[:min(StagePiece, t.want-t.arrived)]
		l.remote[0] = transport.Segment{Key: t.source.Key, Offset: t.source.Offset + uint64(t.arrived),
			Length: uint64(len(b))}
		if l.c.QP().Get(b, &l.remote[0]) != nil {
			return false
		}
		r.place(t.token, t.staged.base+t.arrived, b)
		t.arrived += len(b)
		t.asked = t.arrived
	}
	return true
}

// nextPiece returns the staging memory for the next chunk of a message; false until an earlier one is placed.
func (t *fetch) nextPiece() (to transport.SGE, ok bool) {
	to = transport.SGE{MR: t.staged.in, Offset: stageOffset(t.asked), Length: min(StagePiece, t.want-t.asked)}
	return to, t.asked-t.arrived < stagePieces*StagePiece
}

// stagedReads and stagedGrants are the transfer methods of staged messages: the receiver reads the chunks, or
// the sender writes them.
type (
	stagedReads  struct{ fromStage }
	stagedGrants struct{ fromStage }
)

func (stagedReads) ask(_ *Receiver, l *channelQueue, t *fetch) (bool, error) {
	to, ok := t.nextPiece()
	if !ok {
		return false, nil
	}
	return l.postRead(t, to)
}

func (stagedGrants) ask(r *Receiver, l *channelQueue, t *fetch) (bool, error) {
	to, ok := t.nextPiece()
	if !ok {
		return false, nil
	}
	return r.grant(l, t, CTS{Key: to.MR.Key(), Offset: uint64(to.Offset), Length: uint64(to.Length),
		Last: t.asked+to.Length == t.want})
}

// fromStage places the chunks, which arrive in order.
type fromStage struct{}

func (fromStage) arrive(r *Receiver, t *fetch, _ int) {
	n := min(StagePiece, t.want-t.arrived)
	r.place(t.token, t.staged.base+t.arrived, t.staged.in.Bytes()[stageOffset(t.arrived):][:n])
	t.arrived += n
}
