package bench

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/mpi"
)

var goldenEnlarge = worldBody("golden enlarge", func(world *mpi.Comm) error {
	o := options(func(o *Options) { o.Iterations = 1 })
	own, fatal := newSession(find("enlarge"), o, world, os.Stdout, tick(world)).outcome()
	return errors.Join(own, fatal)
}, "WEFT_PHASES=640,1000,16384", "WEFT_SHRINK_AFTER=20ms")

var announcing = worldBody("announcing", func(world *mpi.Comm) error {
	o := options(func(o *Options) { o.Iterations = 1 })
	own, fatal := newSession(find("enlarge"), o, world, os.Stdout, tick(world)).outcome()
	return errors.Join(own, fatal)
}, "WEFT_PHASES=640,16384", "WEFT_SHRINK_AFTER=20ms", "WEFT_EAGER_MAX=256")

// interrupted: the host stops rank 0 at the end of its first change, for so long that the channel shrinks.
var interrupted = worldBody("interrupted", func(world *mpi.Comm) error {
	o := options(func(o *Options) { o.Iterations = 1 })
	with, reads := tick(world), 0
	now := with.now
	with.now = func() float64 {
		if reads++; world.Rank() == 0 && reads == 2*changeRounds {
			for world.Stats().Channels[0].Phase > 0 {
				if _, _, err := mpi.Iprobe(world, 1, 999); err != nil {
					panic(err)
				}
				time.Sleep(time.Millisecond)
			}
			println("interrupted")
		}
		return now()
	}
	own, fatal := newSession(find("enlarge"), o, world, os.Stdout, with).outcome()
	return errors.Join(own, fatal)
}, "WEFT_PHASES=640,16384", "WEFT_SHRINK_AFTER=20ms")

// A change is measured again if the channel has shrunk before its end.
func TestEnlarge_Interrupted(t *testing.T) {
	r := launch(t, group{2, interrupted})
	require.NoError(t, r.Failure, r.Err)
	require.Contains(t, r.Err, "interrupted")
	require.Contains(t, r.Out, "\n640          16384")
}

// A clock that moves by a millisecond tells no change from a message. That the channel is in the new phase is
// checked.
func TestTheTableOfEnlarge(t *testing.T) {
	r := launch(t, group{2, goldenEnlarge})
	require.NoError(t, r.Failure, r.Err)
	require.Equal(t, `
# OSU-style weft MPI Enlarge Test v0.1.0
# A channel's slots grow for a message. First touch: of as much memory as the new rings. Message: and a byte back.
# From          To      Change(us)   First touch(us)     Message(us)
640           1000            0.00           1000.00         1000.00
640          16384            0.00           1000.00         1000.00
1000         16384            0.00           1000.00         1000.00
`, r.Out)
	r = launch(t, group{2, announcing})
	require.NoError(t, r.Failure, r.Err)
	require.Contains(t, r.Out, "\n640          16384               -                 -         1000.00\n")
}

func TestAChangeIsWhatTheFirstRingTakesLonger(t *testing.T) {
	times := make([][]float64, 4*channel.RingSlots)
	for i := range times {
		times[i] = []float64{9, 10, 1000} // the median counts
	}
	change, message := changeOf(times)
	require.Equal(t, []float64{0, 10}, []float64{change, message})
	times[0], times[3] = []float64{110, 110, 5}, []float64{15, 15, 15}
	times[channel.RingSlots] = []float64{500, 500, 500} // between the two: neither
	change, message = changeOf(times)
	require.Equal(t, []float64{105, 10}, []float64{change, message})
}
