package tcp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weft-mpi/weft/transport/verbstest"
)

// The whole suite over encrypted lanes with checksums, in sockets that take nearly every write in part; at length
// also over four lanes, and with each option by itself.
func TestConformanceOverLanes(t *testing.T) {
	t.Parallel()
	for _, p := range []provider{
		{options: Options{Lanes: 2, Checksum: ChecksumAlways, TLS: true, AuthTimeout: 10 * time.Second}, narrow: true},
		{options: Options{Lanes: 4}},
		{options: Options{Lanes: 2, Checksum: ChecksumAlways}, narrow: true},
		{options: Options{Lanes: 3, TLS: true, AuthTimeout: 10 * time.Second}, narrow: true},
	} {
		o := p.options
		t.Run(fmt.Sprintf("%d lanes, checksum %d, TLS %v, narrow %v", o.Lanes, o.Checksum, o.TLS, p.narrow),
			func(t *testing.T) {
				if o.Checksum == 0 || !o.TLS {
					onlyAtLength(t)
				}
				verbstest.Run(t, p)
			})
	}
}

// The whole suite over lanes that are cut, each at a random byte, and re-established: nobody notices.
func TestConformanceOverLanesThatAreCut(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if n == 1 {
				onlyAtLength(t)
			}
			c := &cuts{minBytes: 2 << 10, maxBytes: 64 << 10, random: rand.New(rand.NewPCG(uint64(n), 9))}
			p := throughProxy{provider{options: Options{Lanes: n, Reconnect: true,
				PeerTimeout: 2 * time.Second}}, c}
			for _, check := range verbstest.Checks() {
				t.Run(check.Name, func(t *testing.T) {
					switch check.Name {
					case "More/FlushSendsWhatWasHeldBack", "Random/ManyRanksEachWithAGoroutineOfItsOwn":
						t.Skip("one end is not driven any more while the other waits, and cannot send again what a cut has taken")
					}
					if err := check.Verify(p, verbstest.Patience); err != nil &&
						!errors.Is(err, errors.ErrUnsupported) {
						t.Error(err)
					}
				})
			}
			if t.Logf("%d cuts", c.struck.Load()); c.struck.Load() < 50 {
				t.Errorf("%d cuts are too few to prove anything", c.struck.Load())
			}
		})
	}
}
