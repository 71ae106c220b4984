package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

func TestPatternDependsOnSourceSequenceAndOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(16, 200).Draw(t, "length")
		source, sequence := rapid.IntRange(0, 1000).Draw(t, "source"),
			rapid.IntRange(0, 1<<20).Draw(t, "sequence")
		of := func(source, sequence int) []byte {
			b := make([]byte, n)
			pattern(b, source, sequence)
			return b
		}
		mine := of(source, sequence)
		require.Equal(t, mine, of(source, sequence))
		require.NotEqual(t, mine, of(source+1, sequence))
		require.NotEqual(t, mine, of(source, sequence+1))
		require.NotEqual(t, mine[:8], mine[8:16])
	})
}

// The bytes of a tail are the pattern's too, not zeros.
func TestPatternFillsEveryByte(t *testing.T) {
	for n := 1; n <= 24; n++ {
		seen := make([]byte, n)
		for sequence := range 64 {
			b := make([]byte, n)
			pattern(b, 3, sequence)
			for i := range b {
				seen[i] |= b[i]
			}
		}
		require.Equal(t, bytes.Repeat([]byte{0xff}, n), seen)
	}
}

// A mutant sends one wrong byte: the last of the second timed message of at least wrongFrom bytes (or
// floats).
type mutant struct {
	benchmark string
	source    int   // sends the wrong byte
	finds     []int // ranks that must tell, with what they tell
	tells     string
}

const wrongFrom = 4

var mutants = []mutant{
	{"latency", 0, []int{1}, "latency, 4 bytes: rank 1 got message 1 of rank 0 with 0x"},
	{"latency", 1, []int{0}, "latency, 4 bytes: rank 0 got message 1 of rank 1 with 0x"},
	{"bw", 0, []int{1}, "bw, 4 bytes: rank 1 got message 5 of rank 0 with 0x"},
	{"bibw", 0, []int{1}, "bibw, 4 bytes: rank 1 got message 5 of rank 0 with 0x"},
	{"bibw", 1, []int{0}, "bibw, 4 bytes: rank 0 got message 5 of rank 1 with 0x"},
	{"mbw_mr", 0, []int{1}, "mbw_mr, 4 bytes: rank 1 got message 5 of rank 0 with 0x"},
	{"multi_lat", 1, []int{0}, "multi_lat, 4 bytes: rank 0 got message 1 of rank 1 with 0x"},
	{"overlap", 1, []int{0}, "overlap, 4 bytes: rank 0 got message 1 of rank 1 with 0x"},
	{"latency_mt", 0, []int{1}, "latency_mt, 4 bytes: rank 1 got message 1 of rank 0 with 0x"},
	{"latency_mt", 1, []int{0}, "latency_mt, 4 bytes: rank 0 got message 1 of rank 1 with 0x"},
	{"rate_mt", 0, []int{1}, "rate_mt, 4 bytes: rank 1 got message 1 of rank 0 with 0x"},
	{"bcast", 0, []int{1}, "bcast, 4 bytes: rank 1 got message 1 of rank 0 with 0x"},
	{"reduce", 1, []int{0}, "reduce, 16 bytes: rank 0 got the sum "},
	{"allreduce", 1, []int{0, 1}, "allreduce, 16 bytes: rank %d got the sum "},
	{"gather", 1, []int{0}, "gather, 4 bytes: rank 0 got message 1 of rank 1 with 0x"},
	{"allgather", 1, []int{0, 1}, "allgather, 4 bytes: rank %d got message 1 of rank 1 with 0x"},
	{"alltoall", 0, []int{1}, "alltoall, 4 bytes: rank 1 got message 1 of rank 0 with 0x"},
	{"scatter", 0, []int{1}, "scatter, 4 bytes: rank 1 got message 1 of rank 0 with 0x"},
	{"iscatterv", 0, []int{1}, "iscatterv, 4 bytes: rank 1 got message 1 of rank 0 with 0x"},
	{"reduce_scatter", 1, []int{1}, "reduce_scatter, 8 bytes: rank 1 got the sum "},
	{"scan", 0, []int{0, 1}, "scan, 16 bytes: rank %d got the sum "},
	{"iscan", 1, []int{1}, "iscan, 16 bytes: rank 1 got the sum "},
	{"iallreduce", 1, []int{0, 1}, "iallreduce, 16 bytes: rank %d got the sum "},
}

// mutated are the options of the mutants.
var mutated = options(func(o *Options) {
	o.Max, o.Iterations, o.Warmup, o.Window, o.Validate = 64, 3, 0, 4,
		true
})

// wrongByte is the pattern with a byte of one message spoilt.
func wrongByte(b []byte, source, sequence int) {
	pattern(b, source, sequence)
	if sequence == 1 && len(b) >= wrongFrom {
		b[len(b)-1] ^= 0x5a
	}
}

// wrongByteOfWindow likewise, where messages of a window begin one byte after another.
func wrongByteOfWindow(b []byte, source, sequence int) {
	pattern(b, source, sequence)
	if n := len(b) - mutated.Window; sequence == 1 && n >= wrongFrom {
		b[n] ^= 0x5a // the last byte of message 1, and inside of the messages after it
	}
}

var mutantBody = worldBody("mutants", func(world *mpi.Comm) error {
	for _, m := range mutants {
		with := tick(world)
		if world.Rank() == m.source {
			with.pattern = wrongByte
			if find(m.benchmark).spec == stream || find(m.benchmark).spec == rates {
				with.pattern = wrongByteOfWindow
			}
		}
		s := newSession(find(m.benchmark), mutated, world, os.Stdout, with)
		own, fatal := s.outcome()
		if fatal != nil {
			return fmt.Errorf("%s: %w", m.benchmark, fatal)
		}
		must := ""
		for _, r := range m.finds {
			if r == world.Rank() {
				must = strings.ReplaceAll(m.tells, "%d", fmt.Sprint(r))
			}
		}
		switch {
		case must == "" && own != nil:
			return fmt.Errorf("%s: rank %d got nothing wrong, but tells of %w", m.benchmark, world.Rank(),
				own)
		case must != "" && !errors.Is(own, ErrInvalid):
			return fmt.Errorf("%s: rank %d got a wrong byte, but tells of %v", m.benchmark, world.Rank(), own)
		case must != "" && !strings.Contains(own.Error(), must):
			return fmt.Errorf("%s: rank %d tells of %w, not of %q", m.benchmark, world.Rank(), own, must)
		}
		s.out.printf(separator)
	}
	return nil
})

func TestValidationFindsAWrongByte(t *testing.T) {
	r := launch(t, group{2, mutantBody})
	require.NoError(t, r.Failure, r.Err)
	tables := strings.Split(r.Out, separator)
	require.Len(t, tables, len(mutants)+1)
	for i, m := range mutants {
		assert.Equal(t, 1, strings.Count(tables[i], "Fail\n"), tables[i])
		assert.True(t, strings.HasSuffix(tables[i], "Fail\n"),
			"the table ends with the size that failed:\n%s", tables[i])
		assert.Equal(t, find(m.benchmark).spec.element == 1, strings.Contains(tables[i], "\n2   "), tables[i])
		assert.Contains(t, tables[i], "Pass\n", "smaller messages were right")
	}
}

// mutantRun is the whole run of a rank, which ends as the command does: with what it has found.
var mutantRun = launchertest.Body("mutant run", func() error {
	with := instruments{now: mpi.Wtime, date: time.Now, pattern: wrongByte}
	return find("bcast").run(context.Background(), mutated, Invocation{}, os.Stdout, with)
})

func TestAWrongByteFailsTheJobAndIsToldOnce(t *testing.T) {
	r := launch(t, group{2, mutantRun})
	requireStatus(t, r, 1)
	require.Equal(t, 1, strings.Count(r.Err, ErrInvalid.Error()), r.Err)
	require.Contains(t, r.Err, "validation failed: bcast, 4 bytes: rank 1 got message 1 of rank 0 with 0x")
	require.Contains(t, r.Err, "at offset 3")
	require.Contains(t, r.Out, "Fail\n")
}
