package file

import (
	"fmt"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file/internal/regions"
)

// write moves the elements to the file: each rank sends its bytes of a window to the owner, who writes the
// window when it has those of all ranks.
func (t *transfer) write() error {
	if err := t.agree(t.extents, roundUp(t.f.window/writeWindows, t.f.block)); err != nil {
		return err
	}
	if t.own == nil {
		return t.send()
	}
	return t.all(t.send, t.collect)
}

// inFlight is how many messages of this rank are under way at most.
const inFlight = 4

// A departure is a message under way, with its buffers.
type departure struct {
	request mpi.Request
	copier  *copier
	header  []byte
}

// send sends this rank's bytes to the owners of their windows.
func (t *transfer) send() error {
	queue := make([]departure, inFlight)
	at := 0
	err := t.eachWindow(func(d regions.Domain, window, next int64) error {
		q := &queue[at%inFlight]
		at++
		if _, err := q.request.Wait(); err != nil {
			return err
		}
		q.request = mpi.Request{}
		if q.copier == nil {
			q.copier = newCopier(t.elements)
		}
		lo, hi := d.Bounds(window, t.plan.Window)
		var data []byte
		q.header, data = q.copier.gather(&t.regions, lo, hi, appendHeader(q.header[:0], next))
		setRanges(q.header)
		atStep("sending")
		var err error
		q.request, err = mpi.IsendVec(t.f.comm, [][]byte{q.header, data}, d.Owner, tag(tagWrite, window))
		return err
	})
	if err != nil {
		t.f.comm.Revoke() // or the waits may have no end
	}
	for i := range queue {
		if _, waited := queue[i].request.Wait(); waited != nil && err == nil {
			err = waited
		}
	}
	return err
}

// eachWindow calls f for each window that has bytes of this rank, in the domains of others: in the order of
// the windows' numbers, so that all owners are busy. next is the following window in the same domain.
func (t *transfer) eachWindow(f func(d regions.Domain, window, next int64) error) error {
	var ways []regions.Windows
	var domains []regions.Domain
	for _, d := range t.plan.Domains {
		if d.Owner == t.f.comm.Rank() {
			continue
		}
		if w := regions.NewWindows(&t.regions, d, t.plan.Window); w.Next() != regions.None {
			ways, domains = append(ways, w), append(domains, d)
		}
	}
	next := make([]int64, len(ways))
	for i := range ways {
		next[i] = ways[i].Next()
	}
	for {
		window := following(next)
		if window == regions.None {
			return nil
		}
		for i := range ways {
			k := (i + t.f.comm.Rank()) % len(ways) // not all ranks to the same owner first
			if next[k] != window {
				continue
			}
			ways[k].Advance()
			next[k] = ways[k].Next()
			if err := f(domains[k], window, next[k]); err != nil {
				return err
			}
		}
	}
}

// direct is how many contiguous bytes of the owner are written from its memory, without a copy.
const direct = 64 << 10

// filledWindows keep their memory from call to call.
var filledWindows = sync.Pool{New: func() any { return new(filled) }}

// A filled window has bytes to be written.
type filled struct {
	lo       int64
	buf      []byte
	coverage regions.Coverage
	twice    int64   // the lowest offset that is covered twice, or -1
	pieces   []piece // written from the rank's memory
}

type piece struct {
	off   int64
	bytes []byte
}

// A claim is the ranges that a rank writes of a window.
type claim struct {
	rank     int
	from, to int // in a list of ranges of several ranks; equal for the owner's own
}

// collect receives the bytes of all ranks in the windows of this rank's domain, and has them written: of one
// window while it receives those of the next.
func (t *transfer) collect() error {
	free, full := make(chan *filled, 2), make(chan *filled, 2)
	for range cap(free) {
		w := filledWindows.Get().(*filled)
		defer filledWindows.Put(w)
		free <- w
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for w := range full {
			if !t.hasFailed() { // of a failed call nothing more is written
				t.fail(t.writeWindow(w))
			}
			free <- w
		}
	}()
	err := t.fill(free, full)
	close(full)
	<-written
	return err
}

func (t *transfer) fill(free <-chan *filled, full chan<- *filled) error {
	next, me := t.first, t.f.comm.Rank()
	own := regions.NewWindows(&t.regions, *t.own, t.plan.Window)
	mine := newCopier(t.elements)
	var message, ranges []byte
	var claims []claim
	for {
		window := following(next)
		if window == regions.None {
			return nil
		}
		w := <-free
		lo, hi := t.own.Bounds(window, t.plan.Window)
		w.lo, w.pieces = lo, w.pieces[:0]
		w.coverage.Reset(int(hi - lo))
		claims, ranges = claims[:0], ranges[:0]
		w.twice = -1
		others := count(next, window)
		if next[me] == window {
			others--
			own.Advance()
			next[me] = own.Next()
			t.fillOwn(w, mine, hi, others == 0)
			claims = append(claims, claim{rank: me})
		}
		for range others {
			var from int
			var err error
			limit := headerSize + regions.MaxList(hi-lo) + hi - lo
			if message, from, err = t.receive(tagWrite, window, limit, message); err != nil {
				return err
			}
			atStep("receiving")
			following, list, data, err := parse(message)
			if err != nil {
				return err
			}
			if err := set(next, from, window, following); err != nil {
				return err
			}
			if err := w.fillFrom(hi, list, data); err != nil {
				return fmt.Errorf("rank %d: %w", from, err)
			}
			claims = append(claims, claim{from, len(ranges), len(ranges) + len(list)})
			ranges = append(ranges, list...)
		}
		if w.twice >= 0 {
			t.failOverlap(w.overlap(claims, ranges, &t.regions, hi))
		}
		full <- w
	}
}

// count is how many ranks have bytes of a window.
func count(next []int64, window int64) int {
	n := 0
	for _, w := range next {
		if w == window {
			n++
		}
	}
	return n
}

func (w *filled) room(hi int64) {
	if n := int(hi - w.lo); n > len(w.buf) {
		w.buf = make([]byte, n)
	}
}

// fillOwn puts the owner's own bytes into its window, which it may have alone.
func (t *transfer) fillOwn(w *filled, mine *copier, hi int64, alone bool) {
	if mine.bytes == nil {
		w.room(hi)
		ranges, data := mine.gather(&t.regions, w.lo, hi, nil)
		regions.Ranges(ranges, w.lo, hi, func(s regions.Series) bool {
			data = w.put(s, data)
			return true
		})
		return
	}
	t.regions.Strips(w.lo, hi, func(s regions.Strip) bool {
		if !alone || s.Len < direct {
			w.room(hi)
			w.cover(s.Series())
			copyBlocks(w.buf, int(s.Off-w.lo), int(s.Stride), mine.bytes, int(s.At), int(s.Step), int(s.Len),
				int(s.Count))
			return true
		}
		for range s.Count {
			w.pieces = append(w.pieces, piece{s.Off, mine.bytes[s.At:][:s.Len]})
			s.Off, s.At = s.Off+s.Stride, s.At+s.Step
		}
		return true
	})
}

// fillFrom puts the bytes of another rank into a window.
func (w *filled) fillFrom(hi int64, list, data []byte) error {
	w.room(hi)
	short := false
	err := regions.Ranges(list, w.lo, hi, func(s regions.Series) bool {
		if short = s.N*int64(s.Count) > int64(len(data)); short {
			return false
		}
		data = w.put(s, data)
		return true
	})
	if err != nil || short || len(data) > 0 {
		return errMessage
	}
	return nil
}

// put copies data to ranges of the window, and returns what is left.
func (w *filled) put(s regions.Series, data []byte) []byte {
	w.cover(s)
	n := int(s.N)
	copyBlocks(w.buf, int(s.Off-w.lo), int(s.Stride), data, 0, n, n, s.Count)
	return data[n*s.Count:]
}

// cover notes which bytes have a value.
func (w *filled) cover(s regions.Series) {
	if twice := w.coverage.AddSeries(w.lo, s); twice >= 0 && (w.twice < 0 || twice < w.twice) {
		w.twice = twice
	}
}

// overlap says which ranks, the lowest two, write the lowest byte of a window that several write.
func (w *filled) overlap(claims []claim, ranges []byte, own *regions.Regions, hi int64) error {
	var ranks []int
	for _, c := range claims {
		has := false
		if c.from == c.to {
			next, ok := own.Next(w.twice)
			has = ok && next == w.twice
		}
		regions.Ranges(ranges[c.from:c.to], w.lo, hi, func(s regions.Series) bool {
			at := w.twice - s.Off
			has = at >= 0 && at < s.Stride*int64(s.Count) && at%s.Stride < s.N
			return !has
		})
		if has {
			ranks = append(ranks, c.rank)
		}
	}
	slices.Sort(ranks)
	return fmt.Errorf("%w: ranks %d and %d both write byte %d", ErrOverlap, ranks[0], ranks[1], w.twice)
}

func (t *transfer) writeWindow(w *filled) error {
	atStep("writing")
	for _, p := range w.pieces {
		if _, err := t.f.file.WriteAt(p.bytes, p.off); err != nil {
			return err
		}
	}
	var err error
	w.coverage.Ranges(1, func(lo, hi int) bool {
		_, err = t.f.file.WriteAt(w.buf[lo:hi], w.lo+int64(lo))
		return err == nil
	})
	return err
}
