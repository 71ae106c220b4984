package shm

import (
	"slices"
	"sync"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
)

// MinPeerTimeout is the shortest Options.PeerTimeout.
const MinPeerTimeout = keepalive.MinTimeout

// liveness detects that a peer's process has ended: its wake socket is gone then. Nothing else shows it,
// because nothing stays connected after the handshake.
type liveness struct {
	once    sync.Once
	stopped chan struct{}
	watcher sync.WaitGroup
}

const (
	probePeriod = 200 * time.Millisecond // between two probes of a peer
	probeShare  = 2 * time.Millisecond   // minimum of the period for each peer; a probe takes a microsecond
)

// start starts the goroutine that watches the device's peers. Only the first call has an effect.
func (l *liveness) start(d *Device) {
	l.once.Do(func() { l.watcher.Go(d.watchPeers) })
}

func (l *liveness) stop() {
	close(l.stopped)
	l.watcher.Wait()
}

// watchPeers probes the peers of all connections periodically.
func (d *Device) watchPeers() {
	prober, err := sys.NewProber()
	if err != nil {
		d.opts.Log.Error("peers that end are detected only by their silence, copies of their memory are not "+
			"watched, and memory that they may write is not used again", "error", err)
		return
	}
	defer prober.Close()
	var links []*connection
	clock := keepalive.Clock{Last: time.Now()}
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		clock.Period = max(min(probePeriod, d.opts.PeerTimeout/8), time.Duration(len(links))*probeShare)
		next.Reset(clock.Period)
		select {
		case <-d.liveness.stopped:
			return
		case <-next.C:
		}
		since := clock.Last
		now := time.Now()
		if _, counts := clock.Tick(now); !counts {
			since = now
		}
		d.recycleRetired(prober)
		links = d.links(links[:0])
		for _, l := range links {
			there := !prober.Gone(l.wake)
			switch {
			case l.in.ended():
				d.leave(l, false)
			case !there:
				l.qp.peerGone()
			}
			d.watchCopy(l, there, now.Sub(since))
		}
	}
}

// recycleRetired frees the blocks of peers whose processes have ended.
func (d *Device) recycleRetired(prober *sys.Prober) {
	d.live.Lock()
	defer d.live.Unlock()
	d.live.retired = slices.DeleteFunc(d.live.retired, func(l *connection) bool {
		gone := prober.Gone(l.wake)
		if gone {
			d.recycle(l)
		}
		return gone
	})
}

// links appends all connections to a list.
func (d *Device) links(list []*connection) []*connection {
	d.live.Lock()
	defer d.live.Unlock()
	for l := range d.live.links {
		list = append(list, l)
	}
	return list
}

// peerGone notes that the peer's process has ended. It may be called from any goroutine.
func (q *qp) peerGone() {
	q.conn.in.gone.Store(true)
	q.dev.leave(q.conn, false)
	q.lose()
}

func (d *Device) tickPeriod() time.Duration { return d.opts.PeerTimeout / keepalive.MaxMissed }

// Tick sends signs of life to peers, and ends the connections of silent ones.
func (c *cq) Tick(now time.Time) {
	due, counts := c.clock.Tick(now)
	if !due {
		return
	}
	for i := 0; i < len(c.qps); {
		q := c.qps[i]
		if q.rcq == c {
			q.out.trim()
			q.heartbeat.tick(counts)
		}
		i += c.qps.Step(i, q)
	}
}
