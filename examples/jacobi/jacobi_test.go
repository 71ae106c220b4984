package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// doomed is the example, of which the ranks of JACOBI_DOOMED are killed, each as soon as a step is saved that
// the seed has chosen, and a little later.
var doomed = launchertest.Body("doomed", func() error {
	doomed := strings.Split(os.Getenv("JACOBI_DOOMED"), ",")
	seed, err := strconv.ParseUint(os.Getenv("JACOBI_SEED"), 10, 64)
	if err != nil {
		return err
	}
	rank := os.Getenv("WEFT_RANK")
	if i := slices.Index(doomed, rank); i >= 0 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		step, later := random.IntN(600), time.Duration(random.IntN(20_000))*time.Microsecond
		go func() {
			for latest("jacobi.saved") < step {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(later)
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}()
	}
	main()
	return nil
})

// latest is the latest step in the names of a folder.
func latest(folder string) (step int) {
	list, _ := os.ReadDir(folder)
	for _, e := range list {
		var n int
		if _, err := fmt.Sscanf(e.Name(), "step-%d-", &n); err == nil {
			step = max(step, n)
		}
	}
	return step
}

// The ranks that are left come to the answer of one rank alone, whoever was killed and when.
func TestTheSurvivorsComeToTheAnswer(t *testing.T) {
	rounds := 1
	if n, err := strconv.Atoi(os.Getenv("JACOBI_ROUNDS")); err == nil {
		rounds = n
	}
	type test struct {
		ranks  int
		doomed string
		seed   uint64
	}
	tests := []test{{1, "", 1}, {2, "0", 1}, {4, "0,1,3", 1}}
	if testlength.Whole() {
		tests = append(tests, test{4, "1,2", 1}, test{8, "0,3,7", 1}, test{8, "0,1,2,3,4,5,6", 11638944012166513534})
	}
	for _, c := range tests {
		for round := range rounds {
			seed := fmt.Sprint(c.seed)
			if round > 0 {
				seed = fmt.Sprint(rand.Uint64())
			}
			t.Run(fmt.Sprintf("%d ranks without %s, seed %s", c.ranks, c.doomed, seed), func(t *testing.T) {
				app := launchertest.Ranks(c.ranks, doomed, "JACOBI_DOOMED="+c.doomed, "JACOBI_SEED="+seed)
				app.Args, app.Dir = []string{"-side", "67", "-steps", "1500", "-save-every", "20"}, t.TempDir()
				r := launchertest.RunSurviving(t, app)
				left := c.ranks
				if c.doomed == "" {
					require.NoError(t, r.Failure, r.Err)
				} else {
					require.Equal(t, launcher.RanksLost, r.Cause(t).How, r.Err)
					left -= strings.Count(c.doomed, ",") + 1
				}
				require.Equal(t, 1, strings.Count(r.Out, "comparison  bit for bit what one rank computes alone\n"), r.Out)
				require.Contains(t, r.Out, fmt.Sprintf("ranks       %d at the end\n", left), r.Err)
				require.NoDirExists(t, filepath.Join(app.Dir, "jacobi.saved"))
			})
		}
	}
}

func TestAnyNumberOfRanksComesToTheAnswer(t *testing.T) {
	for _, ranks := range exampletest.Ranks() {
		stdout, stderr, err := exampletest.Launch(t, ranks, t.TempDir(), "-side", "13", "-steps", "50",
			"-save-every", "7")
		require.NoError(t, err, stderr)
		require.Contains(t, stdout, "square      13 × 13 cells, 50 steps\n")
		require.Contains(t, stdout, "comparison  bit for bit")
	}
}

// Far from the start the method has converged to the solution, which is known.
func TestTheAnswerIsRight(t *testing.T) {
	p := problem{side: 15, steps: 3000}
	b := newBlock(p, 0, 1)
	for range p.steps {
		b.sweep()
	}
	for y := range p.side {
		for x, v := range b.row(y) {
			h := 1 / float64(p.side+1)
			// eigenvalues of the five-point formula
			lambda := 4 - 2*math.Cos(math.Pi*h) - 2*math.Cos(2*math.Pi*h)
			require.InDelta(t, source(x, y, p.side)/lambda, v, 1e-12)
		}
	}
}

func TestRowsOfAnotherNumberOfRanks(t *testing.T) {
	p := problem{side: 7}
	for old := 1; old <= 7; old++ {
		for ranks := 1; ranks <= 7; ranks++ {
			var pieces [][][]byte
			for from := range old {
				b := newBlock(p, from, old)
				for i := range b.own() {
					b.own()[i] = float64(b.first*p.side + i)
				}
				state, err := b.state()
				require.NoError(t, err)
				cut, err := p.reshape().Split(state, from, old, ranks)
				require.NoError(t, err)
				pieces = append(pieces, cut)
			}
			for rank := range ranks {
				var mine [][]byte
				for from := range old {
					mine = append(mine, pieces[from][rank])
				}
				state, err := p.reshape().Join(mine, rank, ranks)
				require.NoError(t, err)
				b := newBlock(p, rank, ranks)
				require.NoError(t, b.restore(state))
				for i, v := range b.own() {
					require.Equal(t, float64(b.first*p.side+i), v)
				}
			}
		}
	}
	_, err := p.reshape().Split(make([]byte, 3), 0, 1, 1)
	require.Error(t, err)
	require.Error(t, newBlock(p, 0, 1).restore(make([]byte, 8)))
}

func TestBadInputIsRefused(t *testing.T) {
	exampletest.RefusedEach(t, map[string]string{
		"-foo":          "jacobi: flag provided but not defined: -foo",
		"more":          `jacobi: "more" is not a flag`,
		"-side 0":       "jacobi: -side 0: must be from 1 to",
		"-side 1000000": "jacobi: -side 1000000: must be from 1 to",
		"-steps -1":     "jacobi: -steps -1: must be 0 or more",
		"-save-every 0": "jacobi: -save-every 0: must be 1 or more",
		"-folder= ":     "jacobi: -folder must name a folder",
	})
	require.Error(t, problem{side: 3, saveEvery: 1, folder: "x"}.check(4))
	require.NoError(t, problem{side: 3, saveEvery: 1, folder: "x"}.check(3))
}

func TestTooManyRanksEndTheJob(t *testing.T) { exampletest.Ends(t, 4, "-side", "3") }

func TestHelp(t *testing.T) { exampletest.Helps(t, "-save-every int") }
