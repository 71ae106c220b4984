package rendezvous

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// ReadsToView reports whether an announced message can be fetched with StartView.
func (r *Receiver) ReadsToView(s Source) bool { return r.views != nil && !r.grants && s.Key != 0 }

// StartView is Start for bytes that go to a view, from position at on: the first want bytes of those that
// were announced.
func (r *Receiver) StartView(c *channel.Channel, s Source, to transport.View, at, want int, token uint64) (
	done bool, err error) {
	l := r.queue(c)
	if want == 0 {
		r.queueFIN(l, ATS{ID: s.ID})
		return true, r.Progress(c)
	}
	mr, err := r.views.RegisterView(to, at+want, transport.LocalWrite)
	if err != nil {
		return false, fmt.Errorf("receive buffer of %d bytes, a view: %w", at+want, err)
	}
	t := r.start(s, token)
	t.want, t.into.list = want, append(t.into.list, segment{mr: mr, at: at, size: want})
	l.add(t, c)
	return false, r.Progress(c)
}
