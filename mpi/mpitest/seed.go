package mpitest

import (
	"math/rand/v2"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi"
)

// defaultSeed is the seed without a flag or an option. Its jobs have the default settings.
const defaultSeed = 1

// drawnSettings returns random settings of a rank for the protocols of messages: eager or rendezvous, read by
// their receivers or written by their senders, and how large they may be before a channel changes its phase.
// A program must not depend on them.
func drawnSettings(seed uint64, rank int) mpi.Config {
	if seed == defaultSeed {
		return mpi.Config{}
	}
	job, own := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, uint64(rank)+1))
	draw := func(rng *rand.Rand, of ...string) string { return of[rng.IntN(len(of))] }
	return mpi.Config{Settings: map[string]string{
		"WEFT_PHASES":     draw(job, "", "100,1000", "640", "1024,16448"), // the same at all ranks
		"WEFT_THRESHOLD":  draw(own, "", "80%"),
		"WEFT_EAGER_MAX":  draw(own, "", "", "1", "64", "1K"),
		"WEFT_RENDEZVOUS": draw(own, "read", "write"),
	}}
}

func pointToPoint(context uint32) bool { return contextid.PointToPoint.Is(context) }
