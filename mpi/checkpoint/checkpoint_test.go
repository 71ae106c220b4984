package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

func TestMain(m *testing.M) {
	launchertest.Play()
	goleak.VerifyTestMain(m)
}

const cells = 60

// content is what all ranks together save after a step; each has a block of it.
func content(step int) []byte {
	b := make([]byte, cells)
	for i := range b {
		b[i] = byte(i + 3*step)
	}
	return b
}

func blockOf(rank, ranks int) (from, to int) { return rank * cells / ranks, (rank + 1) * cells / ranks }

var blocks = &Reshape{
	Split: func(state []byte, from, old, ranks int) ([][]byte, error) {
		if os.Getenv("CHECKPOINT_SPLIT") == "fails" && from == 1 {
			return nil, errors.New("cannot")
		}
		begin, end := blockOf(from, old)
		pieces := make([][]byte, ranks)
		for rank := range pieces {
			low, high := blockOf(rank, ranks)
			if low, high = max(low, begin), min(high, end); low < high {
				pieces[rank] = state[low-begin : high-begin]
			}
		}
		return pieces, nil
	},
	Join: func(pieces [][]byte, rank, ranks int) ([]byte, error) { return bytes.Join(pieces, nil), nil },
}

// steps is what ranks do, one word after the other: save:N and load, on hosts and in folders of the test's.
var steps = launchertest.Body("steps", func() error {
	return mpi.Run(context.Background(), func(_ context.Context, c *mpi.Comm) error {
		host, err := strconv.Atoi(strings.Split(os.Getenv("CHECKPOINT_HOSTS"), ",")[c.Rank()])
		if err != nil {
			return err
		}
		hostOf = func(*mpi.Comm) (int, error) { return host, nil }
		dir := filepath.Join(os.Getenv("CHECKPOINT_DIR"), fmt.Sprint(host))
		s, err := Open(c, dir, os.Getenv("CHECKPOINT_WHAT"))
		if err != nil {
			return err
		}
		from, to := blockOf(c.Rank(), c.Size())
		for word := range strings.FieldsSeq(os.Getenv("CHECKPOINT_STEPS")) {
			if text, is := strings.CutPrefix(word, "save:"); is {
				n, err := strconv.Atoi(text)
				if err != nil {
					return err
				}
				if err := s.Save(n, content(n)[from:to]); err != nil {
					fmt.Printf("rank %d: %v\n", c.Rank(), err)
				}
				continue
			}
			if word == "lose" {
				if c.Rank() == 1 {
					if err := os.RemoveAll(dir); err != nil {
						return err
					}
				}
				if err := mpi.Barrier(c); err != nil {
					return err
				}
				continue
			}
			reshape := blocks
			if word == "load-only" {
				reshape = nil
			}
			n, state, err := s.Load(reshape)
			if err == nil && !bytes.Equal(state, content(n)[from:to]) {
				return fmt.Errorf("rank %d: wrong state of step %d: %v", c.Rank(), n, state)
			}
			fmt.Printf("rank %d: step %d, %v\n", c.Rank(), n, err)
		}
		return s.Close()
	})
})

// A folders is the folders of all hosts.
type folders struct {
	t   *testing.T
	dir string
}

func newFolders(t *testing.T) folders { return folders{t, t.TempDir()} }

// ranks has a rank on each of these hosts do the steps. All have to print what is wanted.
func (f folders) ranks(hosts, steps, want string, env ...string) {
	f.t.Helper()
	n := len(strings.Split(hosts, ","))
	env = append([]string{"CHECKPOINT_DIR=" + f.dir, "CHECKPOINT_HOSTS=" + hosts, "CHECKPOINT_STEPS=" + steps,
		"CHECKPOINT_WHAT=test"}, env...)
	r := launchertest.Run(f.t, launchertest.Ranks(n, f.body(), env...))
	require.NoError(f.t, r.Failure, r.Err)
	if want == "" {
		require.Empty(f.t, r.Out)
		return
	}
	for rank := range n {
		require.Contains(f.t, r.Out, fmt.Sprintf("rank %d: %s", rank, want))
	}
}

func (folders) body() string { return steps }

// files are those of a host.
func (f folders) files(host int) (list []string) {
	entries, err := os.ReadDir(filepath.Join(f.dir, fmt.Sprint(host)))
	require.NoError(f.t, err)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// lose removes the folder of a host.
func (f folders) lose(host int) {
	require.NoError(f.t, os.RemoveAll(filepath.Join(f.dir, fmt.Sprint(host))))
}

// change changes a rank's files of a step, of which there must be so many.
func (f folders) change(step, rank, files int, how func(b []byte) []byte) {
	list, err := filepath.Glob(filepath.Join(f.dir, "*", fmt.Sprintf("step-%012d-*-%d.of.*", step, rank)))
	require.NoError(f.t, err)
	require.GreaterOrEqual(f.t, len(list), files)
	slices.SortFunc(list, func(a, b string) int { return strings.Compare(filepath.Ext(b), filepath.Ext(a)) }) // states first
	for _, name := range list[:files] {
		b, err := os.ReadFile(name)
		require.NoError(f.t, err)
		require.NoError(f.t, os.WriteFile(name, how(b), 0o666))
	}
}

func torn(b []byte) []byte    { return b[:len(b)-7] }
func flipped(b []byte) []byte { b[len(b)-6] ^= 4; return b }

func TestTheLastTwoAreKept(t *testing.T) {
	for _, hosts := range []string{"0", "0,0", "0,1,2,0"} {
		t.Run(hosts, func(t *testing.T) {
			f := newFolders(t)
			f.ranks(hosts, "load", "step 0, no checkpoint")
			f.ranks(hosts, "save:1 save:2 save:5", "")
			for host := range 3 {
				if strings.Contains(hosts, fmt.Sprint(host)) {
					require.NotEmpty(t, f.files(host))
				}
				if !strings.Contains(hosts, fmt.Sprint(host)) {
					continue
				}
				for _, file := range f.files(host) {
					require.Regexp(t, `^step-00000000000[25]-`, file)
				}
			}
			f.ranks(hosts, "load save:6 load", "step 6, <nil>")
		})
	}
}

// The loss of any one host, with its disk, leaves every state; and when it has been loaded, the loss of
// another one does.
func TestAnyOneHostMayBeLost(t *testing.T) {
	for lost := range 3 {
		f := newFolders(t)
		f.ranks("0,0,1,2", "save:1 save:2", "")
		f.lose(lost)
		f.ranks("0,0,1,2", "load", "step 2, <nil>")
		f.lose((lost + 1) % 3)
		f.ranks("0,0,1,2", "load", "step 2, <nil>")
	}
	// Without the host that was lost, its ranks are on the others.
	f := newFolders(t)
	f.ranks("0,1,1,2", "save:1 save:2", "")
	f.lose(1)
	f.ranks("0,2,0,2", "load save:3", "step 2, <nil>")
	f.lose(0)
	f.ranks("2,2,2,2", "load", "step 3, <nil>")
}

func TestTwoLostHostsAreNoFreshStart(t *testing.T) {
	f := newFolders(t)
	f.ranks("0,1,2", "save:1 save:2 save:3", "")
	f.lose(0)
	f.lose(1)
	f.ranks("0,1,2", "load", "step 0, checkpoint: none is complete any more: step 3 without the state of ranks 0 of 3; "+
		"step 2 without the state of ranks 0 of 3")
}

func TestDamagedFiles(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{"torn": torn, "flipped": flipped} {
		t.Run(name, func(t *testing.T) {
			f := newFolders(t)
			f.ranks("0,1,1", "save:1 save:2", "")
			f.change(2, 2, 1, damage)
			f.change(2, 0, 1, damage)
			f.ranks("0,1,1", "load", "step 2, <nil>")
			f = newFolders(t)
			f.ranks("0,1,1", "save:1 save:2", "")
			f.change(2, 2, 2, damage)
			f.ranks("0,1,1", "load", "step 1, <nil>")
		})
	}
}

// What was not finished is nothing: neither the first checkpoint nor a later one, and no file that was being
// written.
func TestAnUnfinishedCheckpoint(t *testing.T) {
	f := newFolders(t)
	f.ranks("0,1", "save:1", "")
	f.change(1, 0, 2, torn)
	f.ranks("0,1", "load", "step 0, no checkpoint")
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "0", unfinished+"123"), []byte("x"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "0", "step-notes"), []byte("x"), 0o666))
	f.ranks("0,1", "load save:1 save:2 save:3", "step 0, no checkpoint")
	require.NotContains(t, f.files(0), unfinished+"123")
	require.Contains(t, f.files(0), "step-notes", "what is not the Store's is not touched")
	require.Len(t, f.files(0), 5)
}

func TestAnotherNumberOfRanks(t *testing.T) {
	f := newFolders(t)
	f.ranks("0,0,1,2,3", "save:1 save:2", "")
	f.ranks("0,1,2", "load-only", "step 0, checkpoint: the one in "+f.dir)
	f.ranks("0,0,2", "load", "step 0, rank 1: checkpoint: the state of rank 1 of 5 cannot be split: cannot",
		"CHECKPOINT_SPLIT=fails")
	f.lose(1)
	f.ranks("0,2,3", "load", "step 2, <nil>")
	f.lose(2)
	f.ranks("0,2,3", "load save:3", "step 2, <nil>")
	f.ranks("0,1,1,2,2,2,3", "load", "step 3, <nil>")
	f.ranks("3,1,0", "load", "step 3, <nil>")
}

// A state that one rank cannot save is an error at all ranks, and what was saved before stays.
func TestAStateThatCannotBeSaved(t *testing.T) {
	f := newFolders(t)
	f.ranks("0,1,1", "save:1 lose save:2", "rank 1: open "+f.dir+"/1/")
	f.ranks("0,1,1", "load save:1", "step 1, <nil>")
}

func TestTheStateOfSomethingElse(t *testing.T) {
	f := newFolders(t)
	f.ranks("0,1", "save:1", "")
	f.ranks("0,1", "load", `step 0, checkpoint: the one in `+f.dir, "CHECKPOINT_WHAT=other")
}

func TestOpenRefusesAFolderThatIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	r := launchertest.Run(t, launchertest.Ranks(2, steps, "CHECKPOINT_DIR="+file, "CHECKPOINT_HOSTS=0,1"))
	require.Error(t, r.Failure)
	require.Contains(t, r.Err, "not a directory")
}
