package bench

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// progressing measures three sizes and prints what its terminal was told.
var progressing = worldBody("progressing", func(world *mpi.Comm) error {
	var terminal bytes.Buffer
	s := newSession(find("bcast"), sized(1, 4, 1), world, os.Stdout, tick(world))
	s.by.Progress = &terminal
	if own, fatal := s.outcome(); own != nil || fatal != nil {
		return fatal
	}
	s.out.printf("%q\n", terminal.String())
	return nil
})

// Each line is gone before a row is printed, and at the end.
func TestProgressIsTold(t *testing.T) {
	r := launch(t, group{2, progressing})
	require.NoError(t, r.Failure, r.Err)
	require.Contains(t, r.Out, `"\r\x1b[Kbcast: 0 of 3 sizes, now 1 bytes\r\x1b[K`+
		`\r\x1b[Kbcast: 1 of 3 sizes, now 2 bytes\r\x1b[K`+
		`\r\x1b[Kbcast: 2 of 3 sizes, now 4 bytes\r\x1b[K"`+"\n")
}
