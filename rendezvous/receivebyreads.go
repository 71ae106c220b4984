package rendezvous

import "github.com/weft-mpi/weft/transport"

// byReads is the transfer method in which the receiver reads directly into the user's buffer.
type byReads struct{}

func (byReads) ask(r *Receiver, l *channelQueue, t *fetch) (bool, error) {
	p := &t.into.list[t.into.first]
	n := min(r.piece, p.size-p.asked)
	posted, err := l.postRead(t, transport.SGE{MR: p.mr, Offset: p.at + p.asked, Length: n})
	if !posted {
		return false, err
	}
	if p.asked += n; p.asked == p.size {
		t.into.first++
	}
	return true, nil
}

func (byReads) arrive(_ *Receiver, t *fetch, n int) { t.arrived += n }

// postRead posts a Read of the next bytes of a message; false if there is no room.
func (l *channelQueue) postRead(t *fetch, to transport.SGE) (posted bool, err error) {
	l.read.ID = t.wrID()
	l.local[0] = to
	l.remote[0] = transport.Segment{Key: t.source.Key, Offset: t.source.Offset + uint64(t.asked),
		Length: uint64(to.Length)}
	if l.queueFull, err = post(l.c.QP(), &l.read); l.queueFull || err != nil {
		return false, err
	}
	t.asked += to.Length
	return true, nil
}
