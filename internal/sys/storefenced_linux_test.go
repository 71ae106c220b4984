package sys

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Of two that each store a word and then load the other's, one sees the other's store, in memory that is not
// Go's.
func TestStoreFenced_OneOfTwoSeesTheOther(t *testing.T) {
	const (
		pairs   = 2048
		rounds  = 100
		between = 16 // words, so that each has cache lines of its own
	)
	mem, err := unix.Mmap(-1, 0, 2*pairs*between*8, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	defer unix.Munmap(mem)
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&mem[0])), len(mem)/8)

	var seen [2][pairs]uint64
	lost := 0 // neither saw the other's
	var met atomic.Uint64
	meet := func(times uint64) {
		for met.Add(1); met.Load() < 2*times; {
			runtime.Gosched()
		}
	}
	side := func(i int) {
		for round := uint64(1); round <= rounds; round++ {
			meet(2*round - 1)
			for k := range pairs {
				mine, others := &words[(2*k+i)*between], &words[(2*k+1-i)*between]
				StoreFenced(mine, round)
				seen[i][k] = atomic.LoadUint64(others)
				for n := 0; n < 100 && atomic.LoadUint64(others) != round; n++ { // side by side, if possible
				}
			}
			meet(2 * round)
			if i == 1 {
				continue // it writes nothing before the next meeting
			}
			for k := range pairs {
				if seen[0][k] != round && seen[1][k] != round {
					lost++
				}
			}
		}
	}
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() { side(i) })
	}
	both.Wait()
	require.Zero(t, lost, "of %d", rounds*pairs)
}
