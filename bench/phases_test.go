package bench

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi"
)

// measureBy runs phases with the instruments of the golden tables.
func measureBy(world *mpi.Comm) error {
	own, fatal := newSession(find("phases"), Default, world, os.Stdout, tick(world)).outcome()
	return errors.Join(own, fatal)
}

// waitsUnconnected keeps the heartbeat from connecting a rank that waits to the rank that it waits for. The
// connection would be in the made-up resident memory.
const waitsUnconnected = "WEFT_PEER_TIMEOUT=1h"

var goldenPhases = worldBody("golden phases", measureBy, "WEFT_PHASES=640,16384", "WEFT_SHRINK_AFTER=20ms",
	waitsUnconnected)

// TestTheTableOfPhases is of the table's form: clock and resident memory are made up.
// TestMemoryOfEveryPhaseAndBackInTheSmallOne measures them.
func TestTheTableOfPhases(t *testing.T) {
	r := launch(t, group{4, goldenPhases})
	require.NoError(t, r.Failure, r.Err)
	require.Equal(t, `
# OSU-style weft MPI Phases Test v0.1.0
# Bytes of a connection, at rank 0. Resident: with its share of what connections have in common.
# Peers                  Slots          Registered            Resident
1                          640               10496               31488
1                        16384              262400              787200
1                          640               10496               31488
2                          640               10496               31488
2                        16384              262400              787200
2                          640               10496               31488
3                          640               10496               31488
3                        16384              262400              787200
3                          640               10496               31488
`, r.Out)
}

// ringsOf is what a connection has registered: a ring to receive in and the mirror of the peer's, each with
// eight slots of whole lines, at least 64 lines, and two lines more. Of the first phase each has 8 KiB at
// most (E1).
func ringsOf(slot int, first bool) int {
	lines := max(8*((slot+63)/64), 64) + 2
	if first {
		lines = min(lines, 128)
	}
	return 2 * 64 * lines
}

// defaultSlots are those of the phases that a job has if the user says nothing.
func defaultSlots() []int {
	slots, err := channel.ParsePhases(setting.Phases.Default)
	if err != nil {
		panic(err)
	}
	return slots
}

// phased are runs of phases under settings, with the slots of their phases.
var phased = []struct {
	body  string
	slots []int
}{
	{plain("phases", "phases", Default), defaultSlots()},
	{plain("phases, three", "phases", Default, "WEFT_PHASES=100,4096,40000", "WEFT_THRESHOLD=90%"),
		[]int{100, 4096, 40000}},
	{plain("phases, alike", "phases", Default, "WEFT_PHASES=1000,1001", "WEFT_THRESHOLD=500"),
		[]int{1000, 1001}},
	{plain("phases, one", "phases", Default, "WEFT_PHASES=2000", "WEFT_SHRINK_AFTER=never"), []int{2000}},
}

// TestMemoryOfEveryPhaseAndBackInTheSmallOne: what is measured of a connection is at most 16 KiB in the small
// phase (E1); in each phase it is what the rings need, which the system sees where it is much. Seen to fail with
// a first ring of twice the lines.
func TestMemoryOfEveryPhaseAndBackInTheSmallOne(t *testing.T) {
	large := false
	for _, p := range phased {
		r := launch(t, group{4, p.body})
		require.NoError(t, r.Failure, r.Err)
		require.Empty(t, told(r))
		lines := strings.Split(strings.TrimSpace(r.Out), "\n")[3:]
		for peers := 1; peers <= 3; peers++ {
			for i := range len(p.slots) + 1 {
				if i == 1 && len(p.slots) == 1 {
					break
				}
				require.NotEmpty(t, lines, r.Out)
				phase := i % len(p.slots)
				var got [4]int
				n, err := fmt.Sscanf(lines[0], "%d %d %d %d", &got[0], &got[1], &got[2], &got[3])
				require.NoError(t, err, lines[0])
				require.Equal(t, len(got), n)
				slot := p.slots[phase]
				if phase == 0 {
					require.LessOrEqual(t, got[2], 16<<10, lines[0])
				}
				require.Equal(t, []int{peers, slot, ringsOf(slot, phase == 0)}, got[:3], r.Out)
				// What the runtime gives back meanwhile can be more than the rings take: now and then, than
				// large ones.
				large = large || peers*got[2] >= 1<<20 && got[3] > got[2]/2
				require.GreaterOrEqual(t, got[3], 0, lines[0])
				lines = lines[1:]
			}
		}
		require.Empty(t, lines)
	}
	require.True(t, large, "no reading has the memory of large rings")
}

// impatient has channels that stay in their large phase for an hour, and little patience with them.
var impatient = worldBody("impatient", func(world *mpi.Comm) error {
	c, err := newCensus(newSession(find("phases"), Default, world, os.Stdout, tick(world)))
	if err != nil {
		return err
	}
	if world.Rank() != 0 {
		return c.echo()
	}
	c.resizeTimeout = time.Millisecond
	if err := c.fill(1, 1, time.Now().Add(time.Minute)); err != nil {
		return err
	}
	_, _, err = c.measured(1, 0)
	return err
}, "WEFT_PHASES=640,16384", "WEFT_SHRINK_AFTER=1h")

var (
	never      = plain("never", "phases", Default, "WEFT_SHRINK_AFTER=never")
	noMemory   = plain("no memory", "phases", Default, "WEFT_PHASES=640,16384", "WEFT_BUFFER_BUDGET=64K")
	halfOfIt   = plain("half of it", "phases", Default, "WEFT_PHASES=640,16384", "WEFT_BUFFER_BUDGET=250K")
	rendezvous = plain("rendezvous", "phases", Default, "WEFT_PHASES=640,16384", "WEFT_EAGER_MAX=1K")
)

func TestChannelsThatDoNotChangeTheirPhaseAreToldOf(t *testing.T) {
	for body, want := range map[string]string{
		never: "phases: WEFT_SHRINK_AFTER=never: channels would not come back from their large buffers",
		noMemory: "phases: messages of 16352 bytes do not go through slots of 16384 bytes, for want of memory or by a setting " +
			"(WEFT_BUFFER_BUDGET=64K, WEFT_EAGER_MAX=1G)",
		// for this rank's question, but not for its peer's
		halfOfIt:   "(WEFT_BUFFER_BUDGET=250K, WEFT_EAGER_MAX=1G)",
		rendezvous: ", WEFT_EAGER_MAX=1K)",
		impatient: "phases: the channels to 1 peers still have large buffers after 1ms, 262400 bytes in all, with " +
			"WEFT_SHRINK_AFTER=1h",
	} {
		r := launch(t, group{2, body})
		requireStatus(t, r, 1)
		require.Equal(t, 1, strings.Count(r.Err, want), "%s:\n%s", body, r.Err)
	}
}

func TestResidentMemoryIsWhatHasBeenWritten(t *testing.T) {
	n, err := parseResident("0-1 ---p [rollup]\nRss:    9000 kB\nShared_Clean:   50 kB\nShared_Dirty:  4 kB\nPrivate_Dirty:     116 kB\nSwap: 0 kB\n")
	require.NoError(t, err)
	require.Equal(t, 120<<10, n)
	for _, text := range []string{
		"", "\nShared_Dirty: 4 kB\n", "\nPrivate_Dirty: 4 kB\n", "\nShared_Dirty: 4 kB\nPrivate_Dirty: x kB",
		"\nShared_Dirty: 4 kB\nPrivate_Dirty:",
		"\nShared_Dirty: 99999999999999999999 kB\nPrivate_Dirty: 1 kB",
		"\nShared_Dirty: -4 kB\nPrivate_Dirty: 1 kB",
	} {
		_, err := parseResident(text)
		require.ErrorContains(t, err, "resident memory: /proc/self/smaps_rollup", "%q", text)
	}
}

func FuzzResident(f *testing.F) {
	f.Add("\nShared_Dirty: 4 kB\nPrivate_Dirty: 116 kB\n")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := parseResident(text); err == nil {
			require.GreaterOrEqual(t, n, 0)
		}
	})
}
