package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// sameError fails the job unless all ranks have the same error, which is of a kind and has some words.
func sameError(c *mpi.Comm, what string, err, kind error, words ...string) error {
	if !errors.Is(err, kind) {
		return fmt.Errorf("%s: rank %d: %v, which is not %q", what, c.Rank(), err, kind)
	}
	texts, failed := mpi.AllgatherValues(c, err.Error())
	if failed != nil {
		return failed
	}
	for rank, text := range texts {
		if text != err.Error() {
			return fmt.Errorf("%s: rank %d: %q, and rank %d: %q", what, c.Rank(), err, rank, text)
		}
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			return fmt.Errorf("%s: %q does not say %q", what, err, word)
		}
	}
	return nil
}

func numbersFrom(first, n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(first + i)
	}
	return list
}

// badInput makes what is wrong be the same error at all ranks, after which the file works.
var badInput = body("bad input", func(c *mpi.Comm, dir string) error {
	name, me, n := filepath.Join(dir, "f"), c.Rank(), c.Size()
	f, err := open(c, name)
	if err != nil {
		return err
	}
	works := func() error {
		if err := WriteAll(f, Strided(me, 5, 1, n), mpi.Whole(numbersFrom(me, 5))); err != nil {
			return err
		}
		got := make([]int32, 5)
		if read, err := ReadAll(f, Strided(me, 5, 1, n), mpi.Whole(got)); err != nil || read != 5 {
			return fmt.Errorf("%d elements, %w", read, err)
		}
		return mpi.Barrier(c)
	}
	at := func(rank int, yes, no Place) Place {
		if me == rank {
			return yes
		}
		return no
	}
	last := n - 1
	one := mpi.Whole([]int32{int32(me)})
	for _, try := range []struct {
		what  string
		err   error
		kind  error
		words []string
	}{
		{"twice", WriteAll(f, at(last, Indexed([]int{7, 9, 7}, nil), Range(100+3*me, 3)),
			mpi.Whole(make([]int32, 3))), ErrOverlap, []string{fmt.Sprint("rank ", last), "has byte 28 of the file twice"}},
		{"count", WriteAll(f, at(last, Range(0, 2), Range(me, 1)), one), mpi.ErrCount,
			[]string{fmt.Sprint("rank ", last), "the view has 1 elements, and the place 2"}},
		{"place", WriteAll(f, at(last, Range(-1, 1), Range(me, 1)), one), mpi.ErrArg, []string{"from element -1"}},
		{"offset", WriteAll(f, at(last, Range(0, 1).At(-8), Range(me, 1)), one), mpi.ErrArg, []string{"-8 bytes"}},
		{"view", WriteAll(f, Range(me, 1), mpi.Strided([]int32{1}, 2, 1, 1)), mpi.ErrCount, []string{"Strided takes 2"}},
		{"type", WriteAll(f, Range(me, 1), mpi.Whole([]*int32{nil})), mpi.ErrType, []string{"*int32"}},
		{"string", WriteAll(f, Range(me, 1), mpi.Whole([]struct{ A string }{{}})), mpi.ErrType, []string{"string"}},
		{"size", f.SetSize(int64(8 + me)), mpi.ErrArg, []string{"ranks pass sizes from 8 to"}},
		{"size", f.SetSize(-1), mpi.ErrArg, []string{"-1"}},
	} {
		if err := sameError(c, try.what, try.err, try.kind, append(try.words, name)...); err != nil {
			return err
		}
		if err := works(); err != nil {
			return fmt.Errorf("after %s: %w", try.what, err)
		}
	}

	// Of several overlaps, in windows of two owners, the lowest byte is named, whichever message comes first.
	lowest := "ranks 0 and 1 both write byte 200"
	if n > 3 {
		lowest = "ranks 2 and 3 both write byte 192"
	}
	for range 8 {
		where := Indexed([]int{50 - me/2*2, 60, 200 + me%2, 20_000}, nil)
		err := WriteAll(f, where, mpi.Whole(make([]int32, 4)))
		if err := sameError(c, "overlap", err, ErrOverlap, lowest); err != nil {
			return err
		}
	}
	if err := works(); err != nil {
		return fmt.Errorf("after overlaps: %w", err)
	}

	// The end of the file: each rank gets what is there.
	if err := errors.Join(f.SetSize(0), WriteAll(f, Range(2*me, 2), mpi.Whole(numbersFrom(2*me, 2)))); err != nil {
		return err
	}
	if err := f.SetSize(int64(8*n - 5)); err != nil { // one element, and a part of another, are gone
		return err
	}
	got := make([]int32, 3)
	read, err := ReadAll(f, Range(2*me, 3), mpi.Whole(got))
	if err := sameError(c, "end", err, io.ErrUnexpectedEOF, fmt.Sprint("has ", 8*n-5, " bytes, and rank ",
		max(n-2, 0), " reads up")); err != nil {
		return err
	}
	want := min(3, 2*n-2-2*me)
	for i, v := range got[:want] {
		if int(v) != 2*me+i {
			return fmt.Errorf("element %d before the end is %d", 2*me+i, v)
		}
	}
	if read != want {
		return fmt.Errorf("%d elements before the end, not %d", read, want)
	}
	if read, err := ReadAll(f, Range(1000, 3), mpi.Whole(got)); read != 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%d elements, %w", read, err)
	}
	// In another order, those count that come before the first that is missing.
	if read, err := ReadAll(f, Indexed([]int{0, 1000, 1}, nil), mpi.Whole(got)); read != 1 || err == nil {
		return fmt.Errorf("%d elements, %w", read, err)
	}

	// A file that shrinks without SetSize.
	if err := works(); err != nil {
		return err
	}
	if me == last {
		if err := os.Truncate(name, 3); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(c); err != nil {
		return err
	}
	_, err = ReadAll(f, Range(me, 1), one)
	if err := sameError(c, "shrunk", err, ErrShrunk, "and has no more than 3 now"); err != nil {
		return err
	}
	if err := works(); err != nil {
		return err
	}

	// A hole.
	big := int64(1 << 20)
	if err := errors.Join(f.SetSize(0), f.SetSize(big*4), WriteAll(f, Range(me, 1), one)); err != nil {
		return err
	}
	if read, err := ReadAll(f, Range(int(big/4)+me, 1), one); read != 1 || err != nil {
		return fmt.Errorf("a hole is not read: %w", err)
	}
	f.RefuseHoles(true)
	if _, err := ReadAll(f, Range(me, 1), one); err != nil {
		return err
	}
	_, err = ReadAll(f, Range(int(big/4)+me, 1), one)
	if err := sameError(c, "hole", err, ErrHole, fmt.Sprintf("byte %d is in a hole", big)); err != nil {
		return err
	}
	f.RefuseHoles(false)

	if err := f.Close(); err != nil {
		return err
	}
	if err := WriteAll(f, Range(me, 1), one); !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("after Close: %w", err)
	}
	return nil
})

func TestBadInputIsTheSameErrorAtAllRanks(t *testing.T) {
	for _, n := range []int{2, 5} {
		ranks(t, n, badInput, t.TempDir(), "FILE_HOSTS=2")
	}
}

var opens = body("opens", func(c *mpi.Comm, dir string) error {
	try := func(what, name string, flag int, kind error, words ...string) error {
		f, err := Open(c, name, flag, 0o666)
		if f != nil {
			return fmt.Errorf("%s: open", what)
		}
		return sameError(c, what, err, kind, append(words, name)...)
	}
	there := filepath.Join(dir, "there")
	if c.Rank() == 0 {
		if err := os.WriteFile(there, nil, 0o666); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(c); err != nil {
		return err
	}
	err := errors.Join(
		try("missing", filepath.Join(dir, "missing"), os.O_RDONLY, os.ErrNotExist, "rank 0"),
		try("exclusive", there, os.O_RDWR|os.O_CREATE|os.O_EXCL, os.ErrExist, "rank 0"),
		try("folder", dir, os.O_RDONLY, os.ErrInvalid, "rank 0", "not a regular file"),
		try("append", there, os.O_RDWR|os.O_APPEND, mpi.ErrArg, "WriteOrdered"),
	)
	if err != nil {
		return err
	}
	// A name of which one rank has another file system.
	own := there
	if c.Rank() == c.Size()-1 {
		own = filepath.Join(dir, "elsewhere")
	}
	if f, err := Open(c, own, os.O_RDWR|os.O_CREATE, 0o666); f != nil || !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("one rank without the file: %w", err)
	} else if err := sameError(c, "one rank", err, os.ErrNotExist, fmt.Sprint("rank ", c.Size()-1), "same file system"); err != nil {
		return err
	}
	// O_EXCL and O_TRUNC mean rank 0 alone.
	f, err := Open(c, filepath.Join(dir, "new"), os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(dir, "new"))
	if err != nil || info.Mode().Perm() != 0o600 {
		return fmt.Errorf("%v, %w", info, err)
	}
	return f.Close()
})

func TestOpenFailsAtAllRanksOrAtNone(t *testing.T) { ranks(t, 3, opens, t.TempDir()) }

var ordered = body("ordered", func(c *mpi.Comm, dir string) error {
	f, err := open(c, filepath.Join(dir, "text"))
	if err != nil {
		return err
	}
	// Three calls at the same time, and a header of rank 0 alone before them.
	if c.Rank() == 0 {
		if _, err := f.WriteAt([]byte("head\n"), 0); err != nil {
			return err
		}
	}
	var calls []*Request
	for turn := range 3 {
		r, err := IwriteOrdered(f, []byte(strings.Repeat(fmt.Sprintf("%d of %d\n", c.Rank(), turn), (c.Rank()+turn)%4)))
		if err != nil {
			return err
		}
		calls = append(calls, r)
	}
	for _, r := range calls {
		if _, err := r.Wait(); err != nil {
			return err
		}
		if _, done, err := r.Test(); !done || err != nil {
			return fmt.Errorf("complete: %v, %w", done, err)
		}
	}
	return errors.Join(f.Sync(), f.Close())
})

func TestWriteOrdered(t *testing.T) {
	for n := 1; n <= 5; n += 2 {
		dir := t.TempDir()
		ranks(t, n, ordered, dir)
		want := "head\n"
		for turn := range 3 {
			for rank := range n {
				want += strings.Repeat(fmt.Sprintf("%d of %d\n", rank, turn), (rank+turn)%4)
			}
		}
		got, err := os.ReadFile(filepath.Join(dir, "text"))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}

var fills = body("fills", func(c *mpi.Comm, dir string) error {
	f, err := Open(c, filepath.Join(dir, "f"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	err = WriteAll(f, Strided(c.Rank(), 1<<18, 1, c.Size()), mpi.Whole(make([]int64, 1<<18)))
	if err := sameError(c, "interleaved", err, syscall.ENOSPC, "no space left"); err != nil {
		return err
	}
	err = WriteAll(f, Range(c.Rank()<<18, 1<<18), mpi.Whole(make([]int64, 1<<18)))
	if err := sameError(c, "contiguous", err, syscall.ENOSPC, "no space left"); err != nil {
		return err
	}
	if err := sameError(c, "preallocated", f.Preallocate(1<<22), syscall.ENOSPC, "no space left"); err != nil {
		return err
	}
	if err := f.SetSize(0); err != nil {
		return err
	}
	if err := f.Preallocate(1 << 16); err != nil {
		return err
	}
	if size, err := f.Size(); size != 1<<16 || err != nil {
		return fmt.Errorf("preallocated %d, %w", size, err)
	}
	return f.Close()
})

func TestAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("a file system of 1 MiB cannot be mounted, which needs root: ", err)
	}
	defer syscall.Unmount(dir, 0)
	ranks(t, 2, fills, dir)
}

// stepsOfATransfer are where a rank is killed.
var stepsOfATransfer = []string{"exchanged", "planned", "sending", "receiving", "writing", "asking", "reading",
	"replying", "taking"}

// dies has a rank be killed at a step, and the others go on without it.
var dies = body("dies", func(c *mpi.Comm, dir string) error {
	step := os.Getenv("FILE_STEP")
	who, err := strconv.Atoi(os.Getenv("FILE_RANK"))
	if err != nil {
		return err
	}
	if c.Rank() == who {
		atStep = func(name string) {
			if name == step {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
	transfer := func(c *mpi.Comm, name string) error {
		f, err := open(c, filepath.Join(dir, name))
		if err != nil {
			return err
		}
		v := mpi.Whole(numbersFrom(100*c.Rank(), 100))
		err = WriteAll(f, Strided(c.Rank(), 100, 1, c.Size()), v)
		if err == nil {
			_, err = ReadAll(f, Strided(c.Rank(), 100, 1, c.Size()), v)
		}
		if err != nil {
			again := WriteAll(f, Range(0, 0), mpi.Whole[int32](nil))
			if !errors.Is(again, mpi.ErrProcFailed) && !errors.Is(again, mpi.ErrRevoked) {
				return fmt.Errorf("after an error: %v", again)
			}
			f.Close()
			return err
		}
		return f.Close()
	}
	err = transfer(c, "before")
	if !errors.Is(err, mpi.ErrProcFailed) {
		return fmt.Errorf("rank %d: %w", c.Rank(), err)
	}
	left, failed := c.Shrink()
	if failed != nil {
		return failed
	}
	if err := sameError(left, step, err, mpi.ErrProcFailed, fmt.Sprintf("ranks [%d] have failed", who)); err != nil {
		return err
	}
	if err := transfer(left, "after"); err != nil {
		return err
	}
	fmt.Println("all is well")
	return nil
})

// Wherever a rank is killed, owner or not, the call fails at all others, and they open a file without it.
func TestARankIsKilledAtEachStep(t *testing.T) {
	for _, step := range stepsOfATransfer {
		for _, who := range []int{0, 1} {
			if who == 1 && (step == "receiving" || step == "writing" || step == "reading" || step == "replying") ||
				who == 0 && (step == "sending" || step == "asking" || step == "taking") {
				continue // rank 0 is the aggregator
			}
			t.Run(fmt.Sprint(step, who), func(t *testing.T) {
				r := launchertest.RunSurviving(t, launchertest.Ranks(4, dies, "FILE_DIR="+t.TempDir(),
					"FILE_STEP="+step, fmt.Sprint("FILE_RANK=", who)))
				require.Equal(t, launcher.RanksLost, r.Cause(t).How, "%s%s", r.Out, r.Err)
				require.Equal(t, 3, strings.Count(r.Out, "all is well\n"), "%s%s", r.Out, r.Err)
			})
		}
	}
}
