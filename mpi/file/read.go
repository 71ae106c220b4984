package file

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file/internal/regions"
)

// read moves bytes of the file to the elements: each rank asks the owner of a window for its bytes there, and
// the owner reads the window when all ranks have asked.
func (t *transfer) read() error {
	extents := make([]regions.Extent, len(t.extents)) // of what the file has
	for rank, e := range t.extents {
		if e.Lo < t.end {
			e.Hi = min(e.Hi, t.end)
			extents[rank] = e
		}
	}
	if err := t.agree(extents, t.f.window); err != nil {
		return err
	}
	if t.own == nil {
		return t.fetch()
	}
	free, full := make(chan *wanted, 2), make(chan *wanted, 2)
	for range cap(free) {
		w := wantedWindows.Get().(*wanted)
		defer wantedWindows.Put(w)
		free <- w
	}
	return t.all(t.fetch, func() error { return t.replyAll(full, free) }, func() error {
		defer close(full)
		return t.readAll(free, full)
	})
}

// An arrival is the bytes of a window that this rank has asked for.
type arrival struct {
	asked, reply mpi.Request
	lo, hi       int64
	header       []byte
	buf          []byte
	data         []byte // buf, or the elements' memory
}

// fetch asks the owners of this rank's windows for its bytes. An owner replies when all ranks have asked, so
// this rank asks all owners about the windows of one number before it waits for a reply about them.
func (t *transfer) fetch() error {
	var before, now []*arrival // about the previous number, and the present one
	var spare []*arrival
	number := int64(regions.None)
	copier := newCopier(t.elements)
	take := func(list []*arrival) error {
		for _, a := range list {
			if err := t.take(a, copier); err != nil {
				return err
			}
		}
		spare = append(spare, list...)
		return nil
	}
	err := t.eachWindow(func(d regions.Domain, window, next int64) error {
		if window != number {
			if err := take(before); err != nil {
				return err
			}
			before, now, number = now, before[:0], window
		}
		a := &arrival{}
		if n := len(spare); n > 0 {
			a, spare = spare[n-1], spare[:n-1]
		}
		now = append(now, a)
		return t.ask(a, copier, d, window, next)
	})
	if err == nil {
		err = take(before)
		before = nil
	}
	if err == nil {
		err = take(now)
		now = nil
	}
	if err != nil {
		t.f.comm.Revoke() // or the waits may have no end
		for _, a := range append(before, now...) {
			a.asked.Wait()
			a.reply.Wait()
		}
	}
	return err
}

// ask asks for the bytes of a window.
func (t *transfer) ask(a *arrival, c *copier, d regions.Domain, window, next int64) (err error) {
	a.asked, a.reply = mpi.Request{}, mpi.Request{}
	a.lo, a.hi = d.Bounds(window, t.plan.Window)
	var n int64
	a.header, n = request(&t.regions, a.lo, a.hi, appendHeader(a.header[:0], next))
	setRanges(a.header)
	if a.data = c.contiguous(&t.regions, a.lo, a.hi, n); a.data == nil {
		if int(n) > cap(a.buf) {
			a.buf = make([]byte, n)
		}
		a.data = a.buf[:n]
	}
	if a.reply, err = mpi.Irecv(t.f.comm, a.data, d.Owner, tag(tagReply, window)); err != nil {
		return err
	}
	atStep("asking")
	a.asked, err = mpi.Isend(t.f.comm, a.header, d.Owner, tag(tagRequest, window))
	return err
}

// contiguous returns the memory of the n bytes of the regions from lo up to hi, if they are contiguous and in
// the file's byte order.
func (c *copier) contiguous(r *regions.Regions, lo, hi, n int64) (memory []byte) {
	if c.bytes == nil {
		return nil
	}
	r.Strips(lo, hi, func(s regions.Strip) bool {
		if s.Len == n {
			memory = c.bytes[s.At:][:n]
		}
		return false
	})
	return memory
}

// take copies the bytes of a reply to the elements.
func (t *transfer) take(a *arrival, c *copier) error {
	if _, err := a.asked.Wait(); err != nil {
		return err
	}
	st, err := a.reply.Wait()
	if err == nil && st.Count != len(a.data) {
		err = fmt.Errorf("rank %d replies with %d bytes to a request for %d: %w", st.Source, st.Count,
			len(a.data), errMessage)
	}
	if err != nil {
		return err
	}
	atStep("taking")
	if c.contiguous(&t.regions, a.lo, a.hi, int64(len(a.data))) == nil {
		c.scatter(&t.regions, a.lo, a.hi, a.data, true)
	}
	return nil
}

// wantedWindows keep their memory from call to call.
var wantedWindows = sync.Pool{New: func() any { return new(wanted) }}

// A wanted window is one of which bytes are read for ranks.
type wanted struct {
	lo, hi   int64
	buf      []byte
	coverage regions.Coverage
	own      bool // elements of the owner are in buf
	claims   []claim
	ranges   []byte
}

// readAll receives the requests about the windows of this rank's domain, and reads these.
func (t *transfer) readAll(free <-chan *wanted, full chan<- *wanted) error {
	next, me := t.first, t.f.comm.Rank()
	own := regions.NewWindows(&t.regions, *t.own, t.plan.Window)
	var message []byte
	for {
		window := following(next)
		if window == regions.None {
			return nil
		}
		w := <-free
		w.lo, w.hi = t.own.Bounds(window, t.plan.Window)
		w.coverage.Reset(int(w.hi - w.lo))
		w.claims, w.ranges, w.own = w.claims[:0], w.ranges[:0], false
		others := count(next, window)
		if next[me] == window {
			others--
			own.Advance()
			next[me] = own.Next()
			t.wantOwn(w, others == 0)
		}
		for range others {
			var from int
			var err error
			limit := headerSize + regions.MaxList(w.hi-w.lo)
			if message, from, err = t.receive(tagRequest, window, limit, message); err != nil {
				return err
			}
			following, list, rest, err := parse(message)
			if err == nil && len(rest) > 0 {
				err = errMessage
			}
			if err == nil {
				err = set(next, from, window, following)
			}
			if err == nil {
				err = regions.Ranges(list, w.lo, w.hi, func(s regions.Series) bool {
					w.coverage.AddSeries(w.lo, s)
					return true
				})
			}
			if err != nil {
				return err
			}
			w.claims = append(w.claims, claim{from, len(w.ranges), len(w.ranges) + len(list)})
			w.ranges = append(w.ranges, list...)
		}
		atStep("reading")
		if !t.hasFailed() {
			t.fail(t.readWindow(w))
		}
		full <- w
	}
}

// wantOwn reads the owner's long pieces into its memory, if it has the window alone, and asks for the others.
func (t *transfer) wantOwn(w *wanted, alone bool) {
	t.regions.Strips(w.lo, w.hi, func(s regions.Strip) bool {
		if !alone || s.Len < direct || t.elements.bytes == nil {
			w.own = true
			w.coverage.AddSeries(w.lo, s.Series())
			return true
		}
		for range s.Count {
			if !t.hasFailed() {
				t.fail(t.readAt(t.elements.bytes[s.At:][:s.Len], s.Off))
			}
			s.Off, s.At = s.Off+s.Stride, s.At+s.Step
		}
		return true
	})
}

// sieve is the most unwanted bytes that are read rather than skipped.
const sieve = 16 << 10

func (t *transfer) readWindow(w *wanted) (err error) {
	if t.f.wantData {
		w.coverage.Ranges(1, func(lo, hi int) bool {
			err = t.noHole(w.lo+int64(lo), w.lo+int64(hi))
			return err == nil
		})
	}
	w.coverage.Ranges(sieve, func(lo, hi int) bool {
		w.room()
		if err == nil {
			err = t.pread(w.buf[lo:hi], w.lo+int64(lo))
		}
		return err == nil
	})
	return err
}

func (w *wanted) room() {
	if n := int(w.hi - w.lo); n > len(w.buf) {
		w.buf = make([]byte, n)
	}
}

// readAt reads what has to be there.
func (t *transfer) readAt(b []byte, off int64) error {
	if t.f.wantData {
		if err := t.noHole(off, off+int64(len(b))); err != nil {
			return err
		}
	}
	return t.pread(b, off)
}

func (t *transfer) noHole(lo, hi int64) error {
	if at, is := holeIn(t.f.file, lo, min(hi, t.end)); is {
		return fmt.Errorf("byte %d is in a hole: %w", at, ErrHole)
	}
	return nil
}

func (t *transfer) pread(b []byte, off int64) error {
	n, err := t.f.file.ReadAt(b, off)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it had %d bytes and has no more than %d now", ErrShrunk, t.end, off+int64(n))
	}
	return err
}

// replyAll sends the bytes of windows to the ranks that have asked for them. It takes all windows from full,
// also after an error.
func (t *transfer) replyAll(full <-chan *wanted, free chan<- *wanted) error {
	mine := newCopier(t.elements)
	packed := make([][]byte, inFlight)
	var failed error
	for w := range full {
		if failed == nil {
			if failed = t.reply(w, mine, packed); failed != nil {
				t.f.comm.Revoke()
			}
		}
		free <- w
	}
	return failed
}

func (t *transfer) reply(w *wanted, mine *copier, packed [][]byte) error {
	if w.own || len(w.claims) > 0 {
		w.room() // after an error nothing was read, and the replies have any content
	}
	if w.own {
		mine.scatter(&t.regions, w.lo, w.hi, w.buf, false)
	}
	requests := make([]mpi.Request, 0, len(w.claims))
	var err error
	for i, c := range w.claims {
		slot := &packed[i%len(packed)]
		if i >= len(packed) {
			if _, err = requests[i-len(packed)].Wait(); err != nil {
				break
			}
			requests[i-len(packed)] = mpi.Request{}
		}
		b := w.pack(c, slot)
		atStep("replying")
		var r mpi.Request
		if r, err = mpi.Isend(t.f.comm, b, c.rank, tag(tagReply, (w.lo-t.own.Lo)/t.plan.Window)); err != nil {
			break
		}
		requests = append(requests, r)
	}
	if err != nil {
		t.f.comm.Revoke() // or the wait may have no end
	}
	return errors.Join(err, mpi.Waitall(requests))
}

// pack returns the bytes of a claim: a part of the window, or put together in a buffer.
func (w *wanted) pack(c claim, buf *[]byte) []byte {
	list := w.ranges[c.from:c.to]
	if off, n, is := regions.Contiguous(list, w.lo, w.hi); is {
		return w.buf[off-w.lo:][:n]
	}
	b := (*buf)[:0]
	regions.Ranges(list, w.lo, w.hi, func(s regions.Series) bool {
		at, n := len(b), int(s.N)
		b = slices.Grow(b, n*s.Count)[:at+n*s.Count]
		copyBlocks(b, at, n, w.buf, int(s.Off-w.lo), int(s.Stride), n, s.Count)
		return true
	})
	*buf = b
	return b
}
