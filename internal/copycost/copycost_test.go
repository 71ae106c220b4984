package copycost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sharedcopy"
)

// The numbers of three processors, the last of them with cores that share a cache and with others.
var (
	xeon207      = costs(500, 70, 210)
	epycApart    = costs(2300, 65, 205)
	epycTogether = costs(950, 60, 40)
	epycFar      = costs(950, 60, 140)
)

// Those of a processor where lines that another core has read are slow to write, with such cores.
var (
	epyc25Together = Costs{1400, 57, 55, 107}
	epyc25Apart    = Costs{1400, 57, 150, 430}
)

func costs(call, callKiB, mappedKiB time.Duration) Costs {
	return Costs{Call: call, CallKiB: callKiB, MappedKiB: mappedKiB}
}

// TestChoices are those that measurements have found best on three processors.
func TestChoices(t *testing.T) {
	for _, c := range []struct {
		name                                                       string
		costs                                                      Costs
		awaited, awaitedMost, staged, stagedMost, byBoth, byBothTo int
	}{
		{"Xeon, model 207", xeon207, 4 << 10, 8<<10 - 1, 0, 8<<10 - 1, 0, 8<<10 - 1},
		{"EPYC, family 26, cores apart", epycApart, 16 << 10, 32<<10 - 1, 16 << 10, 32<<10 - 1, 32 << 10,
			64<<10 - 1},
		{"EPYC, family 26, cores that share a cache", epycTogether, MaxMapped, MaxMapped, MaxMapped,
			MaxMapped, MaxMapped, MaxMapped},
		{"the same processor, when its host has moved the cores apart", epycFar, 16 << 10, 64 << 10, 8 << 10,
			16 << 10, 16 << 10, 32 << 10},
		{"EPYC, family 25, cores that share a cache", epyc25Together, 64 << 10, MaxMapped, 12 << 10, 24 << 10,
			24 << 10, 48 << 10},
		{"EPYC, family 25, cores apart", epyc25Apart, 16 << 10, 64<<10 - 1, 2 << 10, 4 << 10, 4 << 10, 8 << 10},
	} {
		for what, v := range map[string][3]int{
			"awaited": {c.awaited, c.costs.Awaited(), c.awaitedMost},
			"staged":  {c.staged, c.costs.Staged(), c.stagedMost},
			"by both": {c.byBoth, c.costs.StagedByBoth(), c.byBothTo},
		} {
			require.LessOrEqual(t, v[0], v[1], "%s: %s", c.name, what)
			require.LessOrEqual(t, v[1], v[2], "%s: %s", c.name, what)
		}
	}
	require.Equal(t, Default.Awaited(), Costs{}.Awaited())
}

// TestInPieces: the longest of these lengths that go in pieces of 32 KiB. The single copy of a long vector is
// shared, so a measured number that is wrong by a third changes little.
func TestInPieces(t *testing.T) {
	for _, c := range []struct {
		name  string
		costs Costs
		want  int
	}{
		{"Xeon, model 207", xeon207, 0},
		{"the Xeon, measured again", costs(800, 57, 200), 0},
		{"its call with the host's noise", costs(863, 88, 149), 16 << 10},
		{"its memory likewise", costs(830, 62, 131), 16 << 10},
		{"EPYC, family 26, cores apart", epycApart, 16 << 10},
		{"EPYC, family 26, cores that share a cache", epycTogether, MaxMapped},
		{"likewise, measured again", costs(950, 65, 35), MaxMapped},
		{"the same processor, when its host has moved the cores apart", epycFar, 0},
		{"EPYC, family 25, cores that share a cache", epyc25Together, MaxMapped},
		{"EPYC, family 25, cores apart", epyc25Apart, 16 << 10},
		{"not that far", costs(950, 65, 111), 16 << 10},
		{"and less", costs(950, 65, 60), 64 << 10},
		{"forced", ForcesMapped, MaxMapped},
		{"forced calls", ForcesCall, 0},
	} {
		require.Equal(t, c.want, c.costs.Pieces(MaxPiece), "%s: %v", c.name, c.costs)
	}
	require.Equal(t, Default.InPieces(16<<10, 16<<10), Costs{}.InPieces(16<<10, 16<<10))
}

// TestAwaited_Shared: both processes share the copy of a long message, so mapped memory must be quicker than a
// half of it.
func TestAwaited_Shared(t *testing.T) {
	for _, c := range []struct {
		costs Costs
		want  int
	}{
		{costs(950, 65, 111), sharedcopy.Min - 1}, // 128 KiB: 8.8 µs through the ring, 4.5 by both
		{costs(950, 65, 35), MaxMapped},
		{epycTogether, MaxMapped},
		{costs(863, 88, 149), sharedcopy.Min - 1},
	} {
		require.Equal(t, c.want, c.costs.Awaited(), "%v", c.costs)
	}
}

// TestForced: each way can be forced, for every length.
func TestForced(t *testing.T) {
	for text, want := range map[string]int{"1s,1ns,1ns": MaxMapped, "1ns, 1ns, 1s": MinAwaited} {
		for prefix, wantStart := range map[string]bool{"": false, "from:": true} {
			c, start, err := Parse(prefix + text)
			require.NoError(t, err)
			require.Equal(t, want, c.Awaited())
			require.Equal(t, wantStart, start)
		}
	}
	for _, text := range []string{"", "1s", "1s,1s,0s", "1s,-1s,1s", "1s,1s,1s,1s,1s", "1s,1s,1s,0s", "1s,1s,fast", "from:",
		"1s,1s,1s from:"} {
		_, _, err := Parse(text)
		require.Error(t, err, text)
	}
}

// TestRewrites: of which processors cores wait for lines that others have read.
func TestRewrites(t *testing.T) {
	for _, c := range []struct {
		costs          Costs
		slow, verySlow bool
	}{
		{Costs{}, false, false}, {xeon207, false, false}, {epycTogether, false, false},
		{epyc25Together, true, false}, {epyc25Apart, true, true},
	} {
		require.Equal(t, c.slow, c.costs.RewritesSlowly(), "%v", c.costs)
		require.Equal(t, c.verySlow, c.costs.RewritesVerySlowly(), "%v", c.costs)
	}
	c, start, err := Parse("from:1400ns,57ns,150ns,430ns")
	require.NoError(t, err)
	require.True(t, start)
	require.Equal(t, epyc25Apart, c)
}

// TestFragment: more than one, and few.
func TestFragment(t *testing.T) {
	for n := minFragment + 1; n <= MaxMapped; n += 1000 {
		f := Fragment(n)
		require.Less(t, f, n)
		require.LessOrEqual(t, (n+f-1)/f, 6)
		require.Zero(t, f%8, "of whole words")
	}
}

// TestStreamed: what the ring moves faster while both processes copy.
func TestStreamed(t *testing.T) {
	for _, c := range []struct {
		costs       Costs
		least, most int
	}{
		{xeon207, 0, 16 << 10},
		{epycApart, 32 << 10, 48 << 10},
		{epycTogether, MaxStreamed, MaxStreamed},
		{epycFar, 24 << 10, 48 << 10},
		{costs(time.Second, 1, 1), MaxStreamed, MaxStreamed},
		{costs(1, 1, time.Second), 0, MinAwaited},
	} {
		require.LessOrEqual(t, c.least, c.costs.Streamed(), "%v", c.costs)
		require.LessOrEqual(t, c.costs.Streamed(), c.most, "%v", c.costs)
	}
	require.Equal(t, Default.Streamed(), Costs{}.Streamed())
}
