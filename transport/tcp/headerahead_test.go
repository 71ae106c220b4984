package tcp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// A header is read ahead of its frame in a stream of long Writes, and not in a dialogue of them.
func TestReceive_ReadsAHeaderAheadInAStreamAlone(t *testing.T) {
	for _, checksum := range []Checksum{ChecksumNever, ChecksumAlways} {
		t.Run(fmt.Sprint(checksum), func(t *testing.T) { readsAHeaderAhead(t, checksum) })
	}
}

func readsAHeaderAhead(t *testing.T, checksum Checksum) {
	const long, short = 2 * stagingSize, 64 // what fits the staging memory whole is placed out of it
	sides := newCouple(t, Options{Checksum: checksum}, long, nil)
	sent := byte(0)
	write := func(from, n int) {
		to := sides[1-from]
		sent++
		fill := sides[from].out.Bytes()[:n]
		for i := range fill {
			fill[i] = sent
		}
		require.NoError(t, sides[from].to.PostSend(&transport.SendWR{Op: transport.OpWrite,
			Local:  []transport.SGE{{MR: sides[from].out, Length: n}},
			Remote: []transport.Segment{{Key: to.in.Key(), Length: uint64(n)}}}))
		drive(t, sides, "the Write", func() bool { return to.in.Bytes()[n-1] == sent })
	}
	expects := func(side int) bool { return firstLink(sides[side].to).expectsLong() }
	require.False(t, expects(1))
	write(0, short)
	require.False(t, expects(1), "after a short Write")
	for range 3 {
		write(0, long)
		require.True(t, expects(1), "after a long Write")
	}
	write(1, short)
	require.True(t, expects(1), "after a short answer")
	write(1, long)
	require.False(t, expects(1), "after a long answer")
	require.True(t, expects(0), "which was not answered")
	write(0, stagingSize/2)
	require.True(t, expects(1), "a Write that is placed whole is an answer too")
	write(1, long)
	write(0, long)
	write(0, long)
	require.True(t, expects(1), "in a stream again")
}
