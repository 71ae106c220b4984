package mpi_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// litmusVariable is how often each litmus test is run: at length as .ci/run simulation does.
const litmusVariable = "LITMUS_RUNS"

// litmusNameVariable names the only test to run; empty for all.
const litmusNameVariable = "LITMUS_NAME"

func TestWindowLitmus(t *testing.T) {
	names, runs := []string{""}, 0
	if text := os.Getenv(litmusVariable); text != "" { // each takes its time
		var err error
		runs, err = strconv.Atoi(text)
		require.NoError(t, err)
		names = nil
		for _, test := range (&litmus{win: &mpi.Win[int64]{}}).tests() {
			names = append(names, test.name)
		}
	}
	for fabric, n := range map[string]int{"shm": 1000, "tcp": 50} {
		for _, name := range names {
			t.Run(fabric+" "+name, func(t *testing.T) {
				for left := cmp.Or(runs, n); left > 0; left -= litmusJob {
					together(t, 2, windowLitmus, "WEFT_FABRIC="+fabric, "WEFT_PEER_TIMEOUT=60s",
						litmusVariable+"="+strconv.Itoa(min(left, litmusJob)), litmusNameVariable+"="+name)
				}
			})
		}
	}
}

// litmusJob is how many runs one job has: it may not take longer than a job of a test may.
const litmusJob = 20_000

// litmusBatch is how many runs, on elements of their own, come after one barrier: the two ranks go through
// them at the same time.
const litmusBatch = 500

// litmus is a window whose part at each rank has two variables, x and y, for each run of a batch.
type litmus struct {
	win   *mpi.Win[int64]
	group *mpi.Group // the other rank
	me    int
	one   [1]int64
	got   [1]int64
}

const x, y = 0, litmusBatch

// The two ranks run into one another in all that a synchronization allows, and see nothing that it forbids.
var windowLitmus = body("window litmus", func(_ context.Context, world *mpi.Comm) error {
	runs, err := strconv.Atoi(os.Getenv(litmusVariable))
	if err != nil {
		return err
	}
	win, err := mpi.WinAllocate[int64](world, 2*litmusBatch)
	if err != nil {
		return err
	}
	l := &litmus{win: win, me: world.Rank()}
	if l.group, err = world.Group().Incl(1 - l.me); err != nil {
		return err
	}
	for _, test := range l.tests() {
		if name := os.Getenv(litmusNameVariable); name != "" && name != test.name {
			continue
		}
		for done := 0; done < runs; done += litmusBatch {
			clear(win.Local())
			if err := mpi.Barrier(world); err != nil {
				return err
			}
			if err := l.batch(test.open, test.close, test.run, min(litmusBatch, runs-done)); err != nil {
				return fmt.Errorf("%s: %w", test.name, err)
			}
			if err := mpi.Barrier(world); err != nil {
				return err
			}
		}
	}
	return win.Free()
})

type litmusTest struct {
	name        string
	open, close func() error // of the epoch of a batch; nil for none
	run         func(i int) error
}

func (l *litmus) tests() []litmusTest {
	return []litmusTest{
		{"message passing, Flush", l.win.LockAll, l.win.UnlockAll, l.messageByFlush},
		{"message passing to Local, Flush", l.win.LockAll, l.win.UnlockAll, l.messageToLocal},
		{"message passing, Lock", nil, nil, l.messageByLock},
		{"message passing, Fence", l.win.Fence, l.win.Fence, l.messageByFence},
		{"message passing, Post and Start", nil, nil, l.messageByPost},
		{"store buffering, Flush", l.win.LockAll, l.win.UnlockAll, l.buffersByFlush},
		{"store buffering, Lock", nil, nil, l.buffersByLock},
		{"store buffering, Fence", l.win.Fence, l.win.Fence, l.buffersByFence},
		{"store buffering, Post and Start", nil, nil, l.buffersByPost},
		{"coherence, Flush", l.win.LockAll, l.win.UnlockAll, l.coherenceByFlush},
		{"coherence, Lock", nil, nil, l.coherenceByLock},
		{"coherence, Fence", l.win.Fence, l.win.Fence, l.coherenceByFence},
		{"coherence, Post and Start", nil, nil, l.coherenceByPost},
	}
}

func (l *litmus) batch(begin, end func() error, run func(i int) error, n int) error {
	if begin != nil {
		if err := begin(); err != nil {
			return err
		}
	}
	for i := range n {
		if err := run(i); err != nil {
			return fmt.Errorf("run %d: %w", i, err)
		}
	}
	if end != nil {
		return end()
	}
	return nil
}

// put and get do not synchronize.
func (l *litmus) put(rank, variable, i int, value int64) error {
	l.one[0] = value
	return firstError(l.win.Put(l.one[:], rank, variable+i), l.win.FlushLocal(rank))
}

func (l *litmus) get(rank, variable, i int) (int64, error) {
	err := firstError(l.win.Get(l.got[:], rank, variable+i), l.win.FlushLocal(rank))
	return l.got[0], err
}

// read is a get and a Flush.
func (l *litmus) read(rank, variable, i int) (int64, error) {
	v, err := l.get(rank, variable, i)
	return v, firstError(err, l.win.Flush(rank))
}

func passed(flag, data int64) error {
	if flag == 1 && data != 1 {
		return fmt.Errorf("the flag is %d, and the data %d", flag, data)
	}
	return nil
}

func (l *litmus) messageByFlush(i int) error {
	if l.me == 0 {
		return firstError(l.put(1, x, i, 1), l.win.Flush(1), l.put(1, y, i, 1), l.win.Flush(1))
	}
	flag, err := l.read(1, y, i)
	data, err2 := l.read(1, x, i)
	return firstError(err, err2, passed(flag, data))
}

func (l *litmus) messageToLocal(i int) error {
	if l.me == 0 {
		return firstError(l.put(1, x, i, 1), l.win.Flush(1), l.put(1, y, i, 1), l.win.Flush(1))
	}
	flag := atomic.LoadInt64(&l.win.Local()[y+i])
	return passed(flag, atomic.LoadInt64(&l.win.Local()[x+i]))
}

func (l *litmus) messageByLock(i int) error {
	if err := l.win.Lock(1, exclusiveIf(l.me == 0)); err != nil {
		return err
	}
	if l.me == 0 {
		return firstError(l.put(1, x, i, 1), l.put(1, y, i, 1), l.win.Unlock(1))
	}
	flag, err := l.get(1, y, i)
	data, err2 := l.get(1, x, i)
	if flag != data {
		return fmt.Errorf("under the lock: %d and %d", flag, data)
	}
	return firstError(err, err2, l.win.Unlock(1))
}

func (l *litmus) messageByFence(i int) error {
	if l.me == 0 {
		if err := l.put(1, x, i, 1); err != nil {
			return err
		}
	}
	if err := l.win.Fence(); err != nil || l.me == 0 {
		return err
	}
	return passed(1, l.win.Local()[x+i])
}

func (l *litmus) messageByPost(i int) error {
	if l.me == 0 {
		return firstError(l.win.Start(l.group), l.put(1, x, i, 1), l.win.Complete())
	}
	return firstError(l.win.Post(l.group), l.win.Wait(), passed(1, l.win.Local()[x+i]))
}

// exchange refuses that each rank has missed what the other has put.
func (l *litmus) exchange(saw int64) error {
	theirs := make([]int64, 1)
	_, err := mpi.Sendrecv(l.win.Comm(), []int64{saw}, 1-l.me, 5, theirs, 1-l.me, 5)
	if err == nil && saw == 0 && theirs[0] == 0 {
		return fmt.Errorf("neither has seen the other's Put")
	}
	return err
}

// variables are the one that this rank puts to, and the one that the other does.
func (l *litmus) variables() (own, other int) {
	if l.me == 0 {
		return x, y
	}
	return y, x
}

func (l *litmus) buffersByFlush(i int) error {
	own, other := l.variables()
	if err := firstError(l.put(1, own, i, 1), l.win.Flush(1)); err != nil {
		return err
	}
	saw, err := l.read(1, other, i)
	return firstError(err, l.exchange(saw))
}

func (l *litmus) buffersByLock(i int) error {
	own, other := l.variables()
	if err := firstError(l.win.Lock(1, mpi.Exclusive), l.put(1, own, i, 1)); err != nil {
		return err
	}
	saw, err := l.get(1, other, i)
	return firstError(err, l.win.Unlock(1), l.exchange(saw))
}

func (l *litmus) buffersByFence(i int) error {
	own, other := l.variables()
	if err := firstError(l.put(1, own, i, 1), l.win.Fence()); err != nil {
		return err
	}
	saw, err := l.get(1, other, i)
	if saw != 1 {
		return fmt.Errorf("what came before the Fence is not seen")
	}
	return err
}

// buffersByPost has each rank open its part to the other, and put there.
func (l *litmus) buffersByPost(i int) error {
	if err := firstError(l.win.Post(l.group), l.win.Start(l.group), l.put(1-l.me, x, i, 1), l.win.Complete(),
		l.win.Wait()); err != nil {
		return err
	}
	return passed(1, l.win.Local()[x+i])
}

// grows refuses that a variable goes back.
func grows(first, second int64) error {
	if second < first {
		return fmt.Errorf("%d, and then %d", first, second)
	}
	return nil
}

func (l *litmus) coherenceByFlush(i int) error {
	if l.me == 0 {
		return firstError(l.put(1, x, i, 1), l.win.Flush(1), l.put(1, x, i, 2), l.win.Flush(1))
	}
	first, err := l.read(1, x, i)
	second, err2 := l.read(1, x, i)
	return firstError(err, err2, grows(first, second))
}

func (l *litmus) coherenceByLock(i int) error {
	values := [2]int64{}
	for k := range values {
		err := l.win.Lock(1, exclusiveIf(l.me == 0))
		if l.me == 0 {
			err = firstError(err, l.put(1, x, i, int64(k+1)))
		} else if err == nil {
			values[k], err = l.get(1, x, i)
		}
		if err := firstError(err, l.win.Unlock(1)); err != nil {
			return err
		}
	}
	return grows(values[0], values[1])
}

func (l *litmus) coherenceByFence(i int) error {
	for k := range int64(2) {
		if l.me == 0 {
			if err := l.put(1, x, i, k+1); err != nil {
				return err
			}
		}
		if err := l.win.Fence(); err != nil {
			return err
		}
		if l.me == 1 && l.win.Local()[x+i] != k+1 {
			return fmt.Errorf("%d after Fence %d", l.win.Local()[x+i], k+1)
		}
		if err := l.win.Fence(); err != nil {
			return err
		}
	}
	return nil
}

func (l *litmus) coherenceByPost(i int) error {
	for k := range int64(2) {
		if l.me == 0 {
			if err := firstError(l.win.Start(l.group), l.put(1, x, i, k+1), l.win.Complete()); err != nil {
				return err
			}
		} else if err := firstError(l.win.Post(l.group), l.win.Wait()); err != nil {
			return err
		} else if l.win.Local()[x+i] != k+1 {
			return fmt.Errorf("%d after Wait %d", l.win.Local()[x+i], k+1)
		}
	}
	return nil
}

func exclusiveIf(yes bool) mpi.LockMode {
	if yes {
		return mpi.Exclusive
	}
	return mpi.Shared
}
