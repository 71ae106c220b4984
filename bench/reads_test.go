package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	readsPlain   = plain("reads", "reads", Default)
	readsChecked = plain("reads, checked", "reads", Default, "WEFT_CHECKSUM=on")
	readsShort   = plain("reads, short", "reads", Default, "WEFT_EAGER_MAX=1K")
)

// TestReads_R2_BytesCopied for a byte moved: none of a message, with and without checksums, which the program
// may not change meanwhile; each of a window under a checksum, once or more: what finds no room in the socket is
// copied again, however often that happens. Seen to fail without transport.Unchanging.
func TestReads_R2_BytesCopied(t *testing.T) {
	for body, leastOfGet := range map[string]float64{readsPlain: 0, readsChecked: 1} {
		r := launch(t, group{2, body})
		require.NoError(t, r.Failure, r.Err)
		lines := strings.Split(strings.TrimSpace(r.Out), "\n")
		require.Equal(t, "# Size                 Message                 Get", lines[2])
		require.Len(t, lines[3:], len(readSizes))
		for i, n := range readSizes {
			var size int
			var message, get float64
			_, err := fmt.Sscanf(lines[3+i], "%d %f %f", &size, &message, &get)
			require.NoError(t, err, lines[3+i])
			require.Equal(t, n, size)
			require.Zero(t, message, r.Out)
			require.GreaterOrEqual(t, get, leastOfGet, r.Out)
			if leastOfGet == 0 {
				require.Zero(t, get, r.Out)
			}
		}
	}
	r := launch(t, group{2, readsShort})
	requireStatus(t, r, 1)
	require.Contains(t, r.Err, "reads: 0 of 10240 bytes were read; messages of 1024 bytes do not go by Reads with "+
		"WEFT_FABRIC=tcp, WEFT_EAGER_MAX=1K, WEFT_RENDEZVOUS=read")
}
