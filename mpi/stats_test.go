package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// TestStatistics_E13: every rank tells, at the end of the job and of its own accord, what its channels have
// done; the program sees the same.
func TestStatistics_E13(t *testing.T) {
	r := launch(t, 2, statistics, "WEFT_STATS=1")
	require.NoError(t, r.Failure, r.Err)
	for rank := range 2 {
		_, rest, ok := strings.Cut(r.Err, "weft: rank "+strconv.Itoa(rank)+": 1 connections, ")
		require.True(t, ok, r.Err)
		lines := strings.Split(rest, "\n")
		require.Equal(t, "to phase registered asked acked refused shrunk zero head only eager bytes rendezvous bytes",
			strings.Join(strings.Fields(lines[1]), " "))
		fields := strings.Fields(lines[2])
		require.Equal(t, strconv.Itoa(1-rank), fields[0])
		require.Equal(t, "2", fields[1], "the phase")
		require.Equal(t, "1", fields[4], "acked")
		require.Equal(t, "1", fields[11], "by rendezvous")
		require.Equal(t, "100000", fields[12])
	}
}

// TestStatistics_H5_Lanes: where there are several lanes each rank tells of them too; with one there is
// nothing to tell.
func TestStatistics_H5_Lanes(t *testing.T) {
	const columns = "to lanes down up sent again dropped holes open most closed longest in all"
	for _, lanes := range []int{1, 2} {
		r := launch(t, 2, manyLanes, "WEFT_FABRIC=tcp", "WEFT_STATS=1", "WEFT_LANES="+strconv.Itoa(lanes))
		require.NoError(t, r.Failure, r.Err)
		for rank := range 2 {
			_, rest, ok := strings.Cut(r.Err, "weft: rank "+strconv.Itoa(rank)+": 1 connections, ")
			require.True(t, ok, r.Err)
			rest, _, _ = strings.Cut(rest, "weft: ")
			told := strings.Split(rest, "\n")[3:]
			if lanes == 1 {
				require.Equal(t, []string{""}, told)
				continue
			}
			require.Equal(t, columns, strings.Join(strings.Fields(told[0]), " "))
			require.Equal(t, []string{strconv.Itoa(1 - rank), "2", "0", "1", "0", "0", "0"},
				strings.Fields(told[1])[:7])
		}
	}
}

// TestStatistics_R2_BytesCopied: between hosts, where frames have checksums, no byte of a message that the
// receiver reads is copied before it goes out; the table says so. Seen to fail without transport.Unchanging.
func TestStatistics_R2_BytesCopied(t *testing.T) {
	r := launch(t, 2, longMessages, "WEFT_FABRIC=tcp", "WEFT_CHECKSUM=on", "WEFT_STATS=1",
		"WEFT_RENDEZVOUS=read")
	require.NoError(t, r.Failure, r.Err)
	require.Contains(t, r.Err,
		"weft: rank 1 read 4194304 bytes; 0 of them were copied first: 0.00 per byte moved")
}

// longMessages sends what a rendezvous moves.
var longMessages = worldBody("longMessages", func(_ context.Context, world *mpi.Comm) error {
	for _, n := range []int{1 << 20, 3 << 20} {
		buf := make([]byte, n)
		if world.Rank() == 1 {
			if _, err := mpi.Recv(world, buf, 0, 1); err != nil {
				return err
			}
			continue
		}
		if err := mpi.Send(world, buf, 1, 1); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(world); err != nil || world.Rank() == 1 {
		return err
	}
	c := world.Stats().Channels[0]
	if c.ReadBytes != 4<<20 || c.ReadBytesCopied != 0 {
		return fmt.Errorf("%d bytes were read, and %d copied", c.ReadBytes, c.ReadBytesCopied)
	}
	return nil
})

// manyLanes talks until all lanes are there that its setting asks for.
var manyLanes = worldBody("manyLanes", func(_ context.Context, world *mpi.Comm) error {
	want, err := strconv.Atoi(os.Getenv("WEFT_LANES"))
	if err != nil {
		return err
	}
	for s := (laneSums{up: -1}); s.up < 2*(want-1); {
		if s, err = lanesOfAll(world); err != nil {
			return err
		}
	}
	return mpi.Barrier(world)
})

var statistics = worldBody("statistics", func(_ context.Context, world *mpi.Comm) error {
	small, medium, large := make([]byte, 8), make([]byte, 1000), make([]byte, 100_000)
	peer := 1 - world.Rank()
	for _, buf := range [][]byte{small, medium, large} {
		if _, err := mpi.Sendrecv(world, buf, peer, 1, make([]byte, len(buf)), peer, 1); err != nil {
			return err
		}
	}
	st := world.Stats()
	if len(st.Channels) != 1 || st.Connections != 1 {
		return errors.New("not one channel")
	}
	c := st.Channels[0]
	return firstError(
		want("peer", c.Peer, peer), want("phase", c.Phase, 1), want("asked", c.EnlargesSent, 1),
		want("acked", c.EnlargesGranted, 1),
		want("refused", c.ResizesRefused, 0), want("eager messages", c.Eager, 2),
		want("eager bytes", c.EagerBytes, 1008),
		want("rendezvous messages", c.Rendezvous, 1), want("rendezvous bytes", c.RendezvousBytes, 100_000),
	)
})

// TestSettings_E9_NonsenseIsRefused at the start, with the reason, by every rank that reads it.
func TestSettings_E9_NonsenseIsRefused(t *testing.T) {
	t.Parallel()
	for setting, text := range map[string]string{
		"WEFT_PHASES=640,64":         "phase 2: a slot of 64 bytes",
		"WEFT_PHASES=640,1000,900":   "phase 3: a slot of 900 bytes",
		"WEFT_PHASES=50":             "phase 1: a slot of 50 bytes; the only ones have from 100 to 200000",
		"WEFT_PHASES=640,x":          "\"x\" is not a slot size",
		"WEFT_THRESHOLD=617":         "a threshold of 617 bytes: a slot of 640 carries 616",
		"WEFT_THRESHOLD=79%":         "80 to 99 are possible",
		"WEFT_THRESHOLD=-1":          "neither a number of bytes above 0",
		"WEFT_BUFFER_BUDGET=10K":     "a budget of 10240 bytes: one channel needs 10496",
		"WEFT_BUFFER_BUDGET=many":    "not a number of bytes",
		"WEFT_VECTOR=middle":         "first, largest or sum",
		"WEFT_VECTOR=first,half":     "first, largest or sum",
		"WEFT_SHRINK_AFTER=soon":     "not a duration above zero",
		"WEFT_REPLY_TIMEOUT=soon":    "must be a duration such as 10s, or never",
		"WEFT_TAIL_LOOKS=0":          "not a whole number from 1 to 1000000",
		"WEFT_EAGER_MAX=0":           "not a number of bytes from 1 on",
		"WEFT_RENDEZVOUS=push":       "must be auto, read or write",
		"WEFT_CHECKSUM=crc32":        "must be auto, on or off",
		"WEFT_UNEXPECTED_MAX=64 KiB": "not a number of bytes",
		"WEFT_PEER_TIMEOUT=99ms":     "must be at least 100ms",
		"WEFT_PEER_TIMEOUT=never":    "not a duration above zero",
		"WEFT_LANES=0":               "not a whole number from 1 to 8",
		"WEFT_LANES=9":               "not a whole number from 1 to 8",
		"WEFT_LANES=two":             "not a whole number from 1 to 8",
		"WEFT_ENDPOINTS=9":           "not a whole number from 1 to 8, or auto",
		"WEFT_ENDPOINTS=many":        "not a whole number from 1 to 8, or auto",
		"WEFT_RECONNECT=yes":         "must be on or off",
		"WEFT_IFACE=lo,":             "an empty name",
		"WEFT_IFACE=lo,nosuch0":      "no interface or network \"nosuch0\" is up here; there are: ",
		"WEFT_IFACE=203.0.113.0/24":  "no interface or network \"203.0.113.0/24\" is up here; there are: ",
		"WEFT_STATS=2":               "must be on or off, or 1 or 0",
	} {
		r := launch(t, 1, statistics, setting)
		require.Error(t, r.Failure, setting)
		name, _, _ := strings.Cut(setting, "=")
		require.Contains(t, r.Err, name)
		require.Contains(t, r.Err, text)
	}
}
