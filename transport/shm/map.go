package shm

import (
	"os"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

var _ transport.Mapper = (*qp)(nil)

// MapRegion maps a region in the peer's arena, in a mapping of its own.
func (q *qp) MapRegion(key transport.Key) (mem []byte, unmap func() error, ok bool) {
	const all = transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic
	if !q.connected() {
		return nil, nil, false
	}
	t, err := q.peer.find(key, all, 0, 0)
	if err != nil || !t.shared || t.length == 0 {
		return nil, nil, false
	}
	pages, err := sys.MapAgain(q.peer.mem[t.where:][:t.length])
	if err != nil {
		return nil, nil, false
	}
	within := t.where % uint64(os.Getpagesize())
	return pages[within:][:t.length:t.length], func() error { return sys.UnmapShared(pages) }, true
}
