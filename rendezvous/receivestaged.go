package rendezvous

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// StartStaged is Start for bytes that go to ReceiverConfig.Place, from position at on: the first want bytes
// of those that were announced. With atOnce, they may all be copied in this call, if the peer's memory allows
// it.
func (r *Receiver) StartStaged(c *channel.Channel, s Source, at, want int, token uint64, atOnce bool) (
	done bool, err error) {
	l := r.queue(c)
	if want == 0 {
		r.queueFIN(l, ATS{ID: s.ID})
		return true, r.Progress(c)
	}
	t := r.start(s, token)
	t.base, t.want = at, want
	if t.stage, err = r.stages.take(); err != nil {
		r.inUse--
		t.next, r.free = r.free, t
		return false, fmt.Errorf("memory to receive a message through: %w", err)
	}
	if atOnce && r.copies && s.Key != 0 && l.first == nil && l.inFlight == 0 && r.copyStaged(c, l, t) {
		r.queueFIN(l, ATS{ID: s.ID})
		if err := r.release(t); err != nil {
			return true, err
		}
		return true, r.Progress(c)
	}
	l.add(t, c)
	return false, r.Progress(c)
}

// copyStaged copies a message piece by piece; false, with a part of it placed or nothing, where the memory
// cannot be reached.
func (r *Receiver) copyStaged(c *channel.Channel, l *channelQueue, t *fetch) bool {
	for t.arrived < t.want {
		b := t.stage.Bytes()[:min(StagePiece, t.want-t.arrived)]
		l.remote[0] = transport.Segment{Key: t.source.Key, Offset: t.source.Offset + uint64(t.arrived),
			Length: uint64(len(b))}
		if c.QP().Get(b, &l.remote[0]) != nil {
			return false
		}
		r.place(t.token, t.base+t.arrived, b)
		t.arrived += len(b)
		t.posted = t.arrived
	}
	return true
}

// nextPiece is the length of the next piece of a message that is asked for.
func (t *fetch) nextPiece() int { return min(StagePiece, t.want-t.posted) }

// postStageRead posts the Read of the next piece of a message; false when there is no room for it.
func (r *Receiver) postStageRead(c *channel.Channel, l *channelQueue, t *fetch) (bool, error) {
	posted, err := r.postReadOf(c, l, t, transport.SGE{MR: t.stage, Offset: stageOffset(t.posted),
		Length: t.nextPiece()})
	if posted {
		t.underWay++
	}
	return posted, err
}

// sendStageCTS grants room for the next piece of a message; false when there is no room for the CTS.
func (r *Receiver) sendStageCTS(c *channel.Channel, l *channelQueue, t *fetch) (bool, error) {
	if err := r.postEndRecv(c, l); err != nil {
		return false, err
	}
	n := t.nextPiece()
	sent, err := r.grant(c, l, t, CTS{Key: t.stage.Key(), Offset: uint64(stageOffset(t.posted)),
		Length: uint64(n), Last: t.posted+n == t.want})
	if sent {
		t.underWay++
	}
	return sent, err
}

// placeStaged places the oldest piece under way, which has come: pieces come in order.
func (r *Receiver) placeStaged(t *fetch) {
	n := min(StagePiece, t.want-t.arrived)
	r.place(t.token, t.base+t.arrived, t.stage.Bytes()[stageOffset(t.arrived):][:n])
	t.arrived += n
	t.underWay--
}
