package mpitest

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/transport/fabrics"
)

var (
	seedFlag = flag.Uint64("mpitest.seed", defaultSeed, "`seed` of the network that mpitest.Run simulates")
	runsFlag = flag.Int("mpitest.runs", 1,
		"have mpitest.Run run each job `n` times, with seeds from -mpitest.seed on, until one fails")
)

// misplacedPackage returns an error if go test has taken a package for an argument of the tests, and so tests
// another one: it does so with all that follows a flag which it does not know.
func misplacedPackage() (err error) {
	flag.Visit(func(f *flag.Flag) {
		if p := flag.Arg(0); strings.HasPrefix(f.Name, "mpitest.") &&
			(strings.HasPrefix(p, "./") || strings.HasPrefix(p, "../")) {
			err = fmt.Errorf("mpitest: %s comes after -%s, so go test tests the package of the current "+
				"folder: write go test %[1]s -%[2]s=%v", p, f.Name, f.Value)
		}
	})
	return err
}

// Option changes how Run runs a job.
type Option func(*options)

type options struct {
	seed    uint64
	runs    int // number of runs, with seeds from seed on
	config  []mpi.Config
	fabric  string   // a real fabric; empty for the simulated network
	network *Network // costs of messages; nil if nothing is measured

	matchings int // see MaxMatchings
	kills     map[int]int
	slow      map[int]bool
	slowLinks [][2]int
	free      bool // see Concurrent
	loses     *laneLoss
}

// simulated is the name of Run's default fabric.
const simulated = "sim"

// Fabric selects the fabric: "sim", the simulated network, which is the default; or "shm" and "tcp", shared
// memory and TCP as between processes of one host. With these the ranks are not in a bubble of package
// synctest: their time is real, a seed has no meaning, and a deadlock takes half a second to find. It is
// found only if all goroutines of the ranks wait in calls of weft or for one another, and no timer calls a
// function of the program. Goroutines that outlive the body are found if the goroutine that started them is a
// rank's, or has not ended.
func Fabric(name string) Option {
	return func(o *options) {
		if o.fabric = name; name == simulated {
			o.fabric = ""
		}
	}
}

func (o *options) check() error {
	if o.loses != nil && o.fabric != "tcp" {
		return errors.New(`mpitest: LoseLane without Fabric("tcp"): no other fabric has lanes`)
	}
	if o.fabric == "" {
		return nil
	}
	if err := fabrics.Check(o.fabric); err != nil {
		return fmt.Errorf("mpitest: Fabric: %w, and %s", err, simulated)
	}
	if o.kills != nil || o.slow != nil || o.slowLinks != nil {
		return fmt.Errorf("mpitest: Fabric(%q) with Kill, Slow or SlowLink: these are for the simulated "+
			"network", o.fabric)
	}
	return nil
}

// Seed sets the seed for everything that MPI leaves open: which rank goes on, how far messages overtake
// others, and so which message a receive from any source matches, which request Waitany, Testany, Waitsome
// and Testsome return, which messages are eager, when a channel changes its phase and when credits return.
// Without this option the seed is that of -mpitest.seed, by default 1, whose jobs have the default settings.
// A seed repeats a run if a rank's behavior depends only on its messages. See the guide for ranks with
// several goroutines.
func Seed(seed uint64) Option { return func(o *options) { o.seed, o.runs = seed, 1 } }

// Config changes settings of all ranks.
func Config(c mpi.Config) Option { return func(o *options) { o.config = append(o.config, c) } }

// Sizes runs body as jobs of several sizes, in subtests n=1, n=2, ….
func Sizes(t *testing.T, sizes []int, body Body, opts ...Option) {
	t.Helper()
	for _, n := range sizes {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			t.Helper()
			Run(t, n, body, opts...)
		})
	}
}

// Concurrent lets the goroutines of the ranks run as the Go runtime schedules them. Without it one runs at a
// time, until its next call, and the seed chooses which. It is for ranks with several goroutines that hold a
// sync.Mutex during a call, while others wait for it. A seed does not repeat such a run.
func Concurrent() Option { return func(o *options) { o.free = true } }
