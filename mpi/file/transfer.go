package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file/internal/regions"
)

// ReadAll reads the elements of v from where (MPI 4.1, 14.4.3, MPI_File_read_at_all). Each rank passes its
// own Place and View, of equal length, which may be empty. If the file ends before the last element of a
// rank, ReadAll reads what is there and returns io.ErrUnexpectedEOF at all ranks. n is how many elements of
// v, from the first on, this rank has read: all without an error, none with another error. ReadAll is
// collective.
func ReadAll[T any](f *File, where Place, v mpi.View[T]) (n int, err error) {
	r, err := IreadAll(f, where, v)
	if err != nil {
		return 0, err
	}
	return r.Wait()
}

// WriteAll writes the elements of v to where (MPI 4.1, 14.4.3, MPI_File_write_at_all). Each rank passes its
// own Place and View, of equal length, which may be empty. No two ranks may write to the same byte: the error
// is ErrOverlap, and names the lowest such byte and the two lowest ranks that write it. Bytes that are in no
// rank's Place are not touched. WriteAll is collective.
func WriteAll[T any](f *File, where Place, v mpi.View[T]) error {
	r, err := IwriteAll(f, where, v)
	if err != nil {
		return err
	}
	_, err = r.Wait()
	return err
}

// IreadAll begins a ReadAll. Until the Request is complete, the elements of v must not be accessed. Calls on
// a File are carried out in the order in which they begin.
func IreadAll[T any](f *File, where Place, v mpi.View[T]) (*Request, error) {
	return start(f, "ReadAll", where, v, (*transfer).read)
}

// IwriteAll begins a WriteAll. Until the Request is complete, the elements of v must not be changed. Calls on
// a File are carried out in the order in which they begin.
func IwriteAll[T any](f *File, where Place, v mpi.View[T]) (*Request, error) {
	return start(f, "WriteAll", where, v, (*transfer).write)
}

// A Request is a collective call under way.
type Request struct {
	done chan struct{}
	n    int
	err  error
}

// Wait returns when the call is complete: how many elements were read or written, and the call's error.
func (r *Request) Wait() (n int, err error) {
	<-r.done
	return r.n, r.err
}

// Test reports whether the call is complete. If so, n and err are those of Wait.
func (r *Request) Test() (n int, done bool, err error) {
	select {
	case <-r.done:
		return r.n, true, r.err
	default:
		return 0, false, nil
	}
}

// A transfer is a ReadAll or a WriteAll.
type transfer struct {
	f        *File
	size     int // of an element
	regions  regions.Regions
	elements *elements
	extents  []regions.Extent // of all ranks
	end      int64            // of the file, where it is read
	plan     regions.Plan
	own      *regions.Domain // of this rank; nil for none
	first    []int64         // by rank: the first window of own with bytes of that rank, or none

	mu     sync.Mutex
	failed error
}

// start begins a transfer.
func start[T any](f *File, op string, where Place, v mpi.View[T], move func(*transfer) error) (*Request,
	error) {
	t := &transfer{f: f}
	write := op != "ReadAll"
	t.failed = prepare(t, where, v, write)
	turn, err := f.begin(op)
	if err != nil {
		return nil, err
	}
	r := &Request{done: make(chan struct{})}
	go func() {
		defer close(turn.done)
		defer close(r.done)
		turn.wait()
		n := v.Len()
		err := t.exchange()
		if err == nil && t.extents != nil {
			err = move(t)
		}
		if r.err = f.finish(op, t.failed, err); r.err != nil {
			return
		}
		if write {
			for _, e := range t.extents {
				f.end = max(f.end, e.Hi)
			}
			r.n = n
			return
		}
		r.n, r.err = t.beforeEnd(op, n)
	}()
	return r, nil
}

// prepare checks the arguments.
func prepare[T any](t *transfer, where Place, v mpi.View[T], write bool) error {
	kind := reflect.TypeFor[T]()
	if err := checkElement(kind); err != nil {
		return err
	}
	if err := v.Err(); err != nil {
		return err
	}
	t.size = int(kind.Size())
	r, err := where.regions(t.size)
	if err != nil {
		return err
	}
	if n := r.Bytes(); n != int64(v.Len())*int64(t.size) {
		return fmt.Errorf("%w: the view has %d elements, and the place %d", mpi.ErrCount, v.Len(),
			n/int64(max(t.size, 1)))
	}
	if off, twice := r.Twice(); twice && write {
		return fmt.Errorf("%w: the place has byte %d of the file twice", ErrOverlap, off)
	}
	t.regions = r
	t.elements = &elements{size: t.size, mover: func() mover { return &viewMover[T]{view: v} }}
	if where.swaps() {
		if t.elements.numbers, err = numbers(nil, kind, 0); err != nil {
			return err
		}
	}
	if s, whole := v.Slice(); whole && len(t.elements.numbers) == 0 {
		t.elements.bytes = bytesOf(s)
	}
	return nil
}

// part is what a rank tells all others before a transfer.
type part struct {
	Extent regions.Extent
	Size   int64 // of the file, as rank 0 sees it
	Bad    int8  // the rank has failed already
}

// exchange has all ranks know of each other's regions. If one has failed, extents is nil after it.
func (t *transfer) exchange() error {
	f := t.f
	mine := part{}
	if f.comm.Rank() == 0 && t.failed == nil {
		mine.Size, t.failed = f.Size()
		mine.Size = max(mine.Size, f.end) // of which a network's file system may not tell yet
	}
	if t.failed != nil {
		mine.Bad = 1
	}
	lo, hi := t.regions.Hull()
	mine.Extent = regions.Extent{Lo: lo, Hi: hi, Bytes: t.regions.Bytes()}
	parts := make([]part, f.comm.Size())
	if err := mpi.Allgather(f.comm, []part{mine}, parts); err != nil {
		return err
	}
	atStep("exchanged")
	extents := make([]regions.Extent, len(parts))
	for rank, p := range parts {
		if p.Bad != 0 {
			return nil
		}
		extents[rank] = p.Extent
	}
	t.extents, t.end = extents, parts[0].Size
	return nil
}

// agree plans the transfer with windows of a length, and has each owner of a domain know the first window of
// each rank there.
func (t *transfer) agree(extents []regions.Extent, window int64) error {
	f := t.f
	t.plan = regions.NewPlan(extents, f.aggregators, f.block, window, ownWindows*f.window)
	first, mine := make([]int64, len(extents)), make([]int64, len(extents))
	for rank := range mine {
		mine[rank] = regions.None
	}
	for i, d := range t.plan.Domains {
		w := regions.NewWindows(&t.regions, d, t.plan.Window)
		mine[d.Owner] = w.Next()
		if d.Owner == f.comm.Rank() {
			t.own = &t.plan.Domains[i]
		}
	}
	if err := mpi.Alltoall(f.comm, mine, first); err != nil {
		return err
	}
	t.first = first
	atStep("planned")
	return nil
}

// atStep is called at the steps of a transfer. A test has a rank end there.
var atStep = func(string) {}

// fail keeps the first error of this rank that does not keep it from its part in the communication.
func (t *transfer) fail(err error) {
	if err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = err
	}
}

// failOverlap keeps the first overlap in place of any other error. Owners report overlaps by ascending
// offset, and domains ascend with their owners' ranks, of which the lowest is heard: so all ranks name the
// lowest byte, whichever message came first.
func (t *transfer) failOverlap(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !errors.Is(t.failed, ErrOverlap) {
		t.failed = err
	}
}

func (t *transfer) hasFailed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed != nil
}

// beforeEnd says how many of n elements were read, and the error if the file ends before an element of any
// rank.
func (t *transfer) beforeEnd(op string, n int) (int, error) {
	for rank, e := range t.extents {
		if e.Hi > t.end {
			if t.size > 0 {
				n = int(t.regions.Before(t.end) / int64(t.size))
			}
			return n, fmt.Errorf("file: %s %s: the file has %d bytes, and rank %d reads up to byte %d: %w",
				op, t.f.name, t.end, rank, e.Hi, io.ErrUnexpectedEOF)
		}
	}
	return n, nil
}

// all runs functions at the same time and returns the errors of all. The first error revokes the
// communicator, so that none of them waits for what does not come.
func (t *transfer) all(parts ...func() error) error {
	errs := make([]error, len(parts))
	var group sync.WaitGroup
	for i, run := range parts {
		body := func() {
			if errs[i] = run(); errs[i] != nil {
				t.f.comm.Revoke()
			}
		}
		if i == len(parts)-1 {
			body()
		} else {
			group.Go(body)
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// Tags of messages about a window: the window's number, modulo windowTags, is added.
const (
	windowTags = 1 << 20
	tagWrite   = 0 * windowTags // a header, ranges, and their bytes
	tagRequest = 1 * windowTags // a header, and ranges
	tagReply   = 2 * windowTags // their bytes
)

func tag(kind int, window int64) int { return kind + int(window%windowTags) }

// A header is what a message about a window begins with: the next window in the domain that the sender has
// bytes of, and the length of the ranges that follow it.
const headerSize = 16

func appendHeader(b []byte, next int64) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(next)), 0, 0, 0, 0, 0, 0, 0, 0)
}

func setRanges(header []byte) {
	binary.LittleEndian.PutUint64(header[8:], uint64(len(header)-headerSize))
}

var errMessage = errors.New("a message about a window that is not one")

// receive receives a message about a window from any rank, into buf or a longer buffer.
func (t *transfer) receive(kind int, window int64, limit int64, buf []byte) (b []byte, from int, err error) {
	m, st, err := mpi.Mprobe(t.f.comm, mpi.AnySource, tag(kind, window))
	if err != nil {
		return buf, 0, err
	}
	n := st.Bytes()
	if int64(n) > limit || n < headerSize {
		return buf, 0, fmt.Errorf("rank %d sends %d bytes: %w", st.Source, n, errMessage)
	}
	if n > cap(buf) {
		buf = make([]byte, n)
	}
	_, err = mpi.Mrecv(&m, buf[:n])
	return buf[:n], st.Source, err
}

// parse cuts a message into its parts.
func parse(b []byte) (next int64, ranges, data []byte, err error) {
	n := binary.LittleEndian.Uint64(b[8:])
	if n > uint64(len(b)-headerSize) {
		return 0, nil, nil, errMessage
	}
	b, next = b[headerSize:], int64(binary.LittleEndian.Uint64(b))
	return next, b[:n], b[n:], nil
}

// following returns the first window of own that any rank has bytes of, or none.
func following(next []int64) int64 {
	first := int64(regions.None)
	for _, w := range next {
		if w != regions.None && (first == regions.None || w < first) {
			first = w
		}
	}
	return first
}

// set notes a rank's next window, which has to be after this one.
func set(next []int64, rank int, window, following int64) error {
	if next[rank] != window || following != regions.None && following <= window {
		return fmt.Errorf("rank %d: window %d after %d: %w", rank, following, window, errMessage)
	}
	next[rank] = following
	return nil
}
