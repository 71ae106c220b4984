package mpi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// randomView is a view without an element twice of a slice, or of a view of it, and the indices of its
// elements.
func randomView(random *rand.Rand, data []int) (mpi.View[int], []int, string) {
	v, order, text := randomSelection(random, data, nil)
	for random.IntN(3) == 0 && len(order) > 0 {
		inner, places, more := randomSelection(random, data, &v)
		next := make([]int, len(places))
		for i, place := range places {
			next[i] = order[place]
		}
		v, order, text = inner, next, text+" of it "+more
	}
	return v, order, text
}

// randomSelection selects from data, or from a view, and tells the places there.
func randomSelection(random *rand.Rand, data []int, of *mpi.View[int]) (mpi.View[int], []int, string) {
	n := len(data)
	if of != nil {
		n = of.Len()
	}
	var order []int
	switch random.IntN(3) {
	case 0:
		block := random.IntN(4)
		distance := block + random.IntN(5)
		count := random.IntN(8)
		for count > 0 && (count-1)*distance+block > n {
			count--
		}
		stride := distance
		if random.IntN(3) == 0 {
			stride = -distance
		}
		for i := range count {
			from := i * distance
			if stride < 0 {
				from = (count - 1 - i) * distance
			}
			for j := range block {
				order = append(order, from+j)
			}
		}
		text := fmt.Sprintf("Strided %d %d %d", count, block, stride)
		if of != nil {
			return of.Strided(count, block, stride), order, text
		}
		return mpi.Strided(data, count, block, stride), order, text
	case 1:
		dims := 1 + random.IntN(4)
		shape, start, size := make([]int, dims), make([]int, dims), make([]int, dims)
		total := 1
		for d := range shape {
			shape[d] = 1 + random.IntN(max(1, min(6, n/total)))
			total *= shape[d]
			start[d] = random.IntN(shape[d])
			if size[d] = random.IntN(shape[d] - start[d] + 1); random.IntN(4) > 0 {
				size[d] = max(1, size[d])
			}
		}
		for i := range total {
			rest, inside := i, true
			for d := dims - 1; d >= 0; d-- {
				at := rest % shape[d]
				rest /= shape[d]
				inside = inside && at >= start[d] && at < start[d]+size[d]
			}
			if inside {
				order = append(order, i)
			}
		}
		text := fmt.Sprint("Sub ", shape, start, size)
		if of != nil {
			return of.Sub(shape, start, size), order, text
		}
		return mpi.Sub(data, shape, start, size), order, text
	default:
		var at, length []int
		for from := 0; from < n; {
			l := random.IntN(3)
			at, length = append(at, from), append(length, min(l, n-from))
			from += l + random.IntN(9)
		}
		random.Shuffle(len(at), func(i, j int) {
			at[i], at[j] = at[j], at[i]
			length[i], length[j] = length[j], length[i]
		})
		if random.IntN(3) == 0 {
			length = nil
			at = slices.Compact(slices.Sorted(slices.Values(at)))
		}
		for i, from := range at {
			l := 1
			if length != nil {
				l = length[i]
			}
			for j := range l {
				order = append(order, from+j)
			}
		}
		text := fmt.Sprint("Indexed ", shown(at), shown(length))
		if of != nil {
			return of.Indexed(at, length), order, text
		}
		return mpi.Indexed(data, at, length), order, text
	}
}

// shown is what the text of a view has of its places: all of them would take longer than the test.
func shown(places []int) []int { return places[:min(len(places), 60)] }

// Pack and Unpack of random views do what a plain list of indices does.
func TestViews_PackAndUnpack(t *testing.T) {
	random := rand.New(rand.NewPCG(19, 4))
	for range 5000 {
		data := make([]int, 1+random.IntN(120))
		for i := range data {
			data[i] = i
		}
		v, order, text := randomView(random, data)
		require.Equal(t, len(order), v.Len(), text)
		room := random.IntN(v.Len() + 3)
		got := make([]int, room)
		require.Equal(t, min(room, len(order)), v.Pack(got), text)
		require.True(t, slices.Equal(order[:min(room, len(order))], got[:min(room, len(order))]), "%s: %v",
			text, got)
		src, expected := make([]int, room), slices.Clone(data)
		for i := range src {
			src[i] = 1000 + i
			if i < len(order) {
				expected[order[i]] = src[i]
			}
		}
		require.Equal(t, min(room, len(order)), v.Unpack(src), text)
		require.Equal(t, expected, data, text)
	}
	words := make([]string, 12) // elements that cannot be sent can be packed
	mpi.Strided(words, 3, 1, 4).Strided(3, 1, -1).Unpack([]string{"c", "b", "a"})
	require.Equal(t, []string{"a", "b", "c"}, []string{words[0], words[4], words[8]})
	v, data := mpi.Strided(make([]float64, 4096), 64, 1, 64), make([]float64, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() { v.Pack(data); v.Unpack(data) }))
	matrix := make([]float64, 4096)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		mpi.Strided(matrix, 16, 4, 64).Unpack(data)
		mpi.Strided(matrix, 64, 1, -64).Strided(16, 1, 2).Unpack(data[:16])
	}), "to make blocks at equal distances")
}

// Distances that do not fit the words of a View.
func TestViews_LongDistances(t *testing.T) {
	if raceDetector { // which has memory of its own for each byte
		t.Skip()
	}
	const far = 1 << 31
	// of the heap, it might have to be cleared first
	data, err := syscall.Mmap(-1, 0, far+2, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	require.NoError(t, err)
	defer syscall.Munmap(data)
	copy(data, "ab")
	copy(data[far:], "cd")
	blocks := mpi.Strided(data, 2, 2, far)
	for text, v := range map[string]mpi.View[byte]{"abcd": blocks, "cdab": mpi.Strided(data, 2, 2, -far),
		"ac": blocks.Strided(2, 1, 2), "db": blocks.Indexed([]int{3, 1}, nil)} {
		got := make([]byte, 4)
		require.Equal(t, text, string(got[:v.Pack(got)]))
	}
}

func TestViews(t *testing.T) { atSizes(t, views) }

// Random views go from rank to rank, by every call.
var views = body("views", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	next, previous := (me+1)%size, (me+size-1)%size
	const most = 60_000
	numbers := make([]int, most)
	for i := range numbers {
		numbers[i] = me*1_000_000 + i
	}
	for round := range 40 {
		shared := rand.New(rand.NewPCG(uint64(round), 1)) // the same views at every rank
		n := 100
		if round%4 == 3 {
			n = most
		}
		out, in := numbers[:n], slices.Repeat([]int{-1}, n)
		var from, to mpi.View[int]
		var fromOrder, toOrder []int
		var text string
		for {
			var a, b string
			from, fromOrder, a = randomView(shared, out)
			to, toOrder, b = randomView(shared, in)
			if text = a + " to " + b; len(toOrder) >= len(fromOrder) {
				break
			}
		}
		var st mpi.Status
		var err error
		switch round % 3 {
		case 0:
			var r mpi.Request
			if r, err = mpi.IsendView(world, from, next, 1); err != nil {
				return err
			}
			st, err = mpi.RecvView(world, to, previous, 1)
			_, serr := r.Wait()
			err = firstError(err, serr)
		case 1:
			var r mpi.Request
			if r, err = mpi.IrecvView(world, to, previous, 1); err != nil {
				return err
			}
			err = mpi.SendView(world, from, next, 1)
			if err == nil {
				st, err = r.Wait()
			}
		case 2:
			st, err = mpi.SendrecvView(world, from, next, 1, to, previous, 1)
		}
		if err := firstError(err, want("count", st.Count, len(fromOrder)),
			want("source", st.Source, previous)); err != nil {
			return fmt.Errorf("round %d, %.200s: %w", round, text, err)
		}
		expected := slices.Repeat([]int{-1}, n)
		for i, at := range fromOrder {
			expected[toOrder[i]] = previous*1_000_000 + at
		}
		if !sameMemory(in, expected) {
			return fmt.Errorf("round %d, %.200s: got %.200v", round, text, fmt.Sprint(in))
		}
	}
	// A transpose: columns to rows.
	matrix, got := make([]float64, size*size), make([]float64, size*size)
	for i := range matrix {
		matrix[i] = float64(100*me + i)
	}
	var sends, recvs []mpi.View[float64]
	for r := range size {
		sends, recvs = append(sends, mpi.Strided(matrix[r:], size, 1, size)),
			append(recvs, mpi.Strided(got[r*size:], 1, size, size))
	}
	if err := mpi.AlltoallView(world, sends, recvs); err != nil {
		return err
	}
	for r := range size {
		for i := range size {
			if err := want("element", got[r*size+i], float64(100*r+i*size+me)); err != nil {
				return err
			}
		}
	}
	return refusedViews(world)
})

// What does not fit is refused by every call, before anything is sent.
func refusedViews(world *mpi.Comm) error {
	data := make([]int, 10)
	for _, v := range []mpi.View[int]{
		mpi.Strided(data, 3, 1, 5), mpi.Strided(data, -1, 1, 1), mpi.Strided(data, 2, 11, 1),
		mpi.Strided(data, 2, 1, -1<<63),
		mpi.Sub(data, []int{2, 6}, []int{0, 0}, []int{1, 1}),
		mpi.Sub(data, []int{2, 5}, []int{0, 4}, []int{1, 2}), mpi.Sub(data, []int{2}, nil, nil),
		mpi.Indexed(data, []int{10}, nil), mpi.Indexed(data, []int{3}, []int{8}),
		mpi.Indexed(data, []int{-1}, nil), mpi.Indexed(data, []int{1}, []int{1, 2}),
	} {
		_, irecv := mpi.IrecvView(world, v, 0, 0)
		_, recv := mpi.RecvView(world, v, 0, 0)
		_, isend := mpi.IsendView(world, v, 0, 0)
		for op, err := range map[string]error{"SendView": mpi.SendView(world, v, 0, 0), "IrecvView": irecv,
			"RecvView": recv, "IsendView": isend} {
			if err := wantMisuse(op, err, mpi.ErrCount); err != nil {
				return err
			}
		}
	}
	backwards := mpi.Strided(data, 5, 1, -2)
	for _, twice := range []mpi.View[int]{mpi.Strided(data, 2, 3, 2), mpi.Strided(data, 2, 1, 0),
		mpi.Indexed(data, []int{4, 2}, []int{1, 3}), backwards.Indexed([]int{3, 1, 3}, nil),
		backwards.Strided(2, 3, 2)} {
		_, err := mpi.IrecvView(world, twice, 0, 0)
		if err := wantMisuse("IrecvView", err, mpi.ErrBuffer); err != nil {
			return err
		}
		_, err = mpi.RecvView(world, twice, 0, 0)
		if err := wantMisuse("RecvView", err, mpi.ErrBuffer); err != nil {
			return err
		}
	}
	return nil
}
