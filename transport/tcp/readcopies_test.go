package tcp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// No byte of a Read is copied before it goes out, of any size, with checksums and without; but for memory that
// may change under a checksum. Seen to fail where responder.frame copies up to frame.MaxCopied bytes, or with
// every checksum.
func TestReads_R2_BytesCopiedForAByteMoved(t *testing.T) {
	for _, c := range []struct {
		checksum Checksum
		lanes    int
		access   transport.Access
		copied   uint64 // for a byte moved
	}{
		{ChecksumNever, 0, transport.RemoteRead, 0},
		{ChecksumNever, 0, transport.RemoteRead | transport.Unchanging, 0},
		{ChecksumAlways, 0, transport.RemoteRead | transport.Unchanging, 0},
		{ChecksumAlways, 2, transport.RemoteRead | transport.Unchanging, 0},
		{ChecksumAlways, 0, transport.RemoteRead, 1},
	} {
		for _, n := range []int{1, 100, 1 << 10, 2 << 10, 64 << 10, 4 << 20} {
			t.Run(fmt.Sprintf("checksum %d, %d lanes, %v, %d bytes", c.checksum, c.lanes, c.access, n),
				func(t *testing.T) {
					a := newHostOfRank(t, Options{Checksum: c.checksum, Lanes: c.lanes}, 0)
					b := newHostOfRank(t, Options{Checksum: c.checksum, Lanes: c.lanes}, 1)
					require.NoError(t, a.ep.Connect(t.Context(), 1, b.ep.Addr()))
					x, y := a.nextMade().qp, b.nextMade().qp
					from, err := b.pd.Alloc(n, c.access)
					require.NoError(t, err)
					into, err := a.pd.Alloc(n, transport.LocalWrite)
					require.NoError(t, err)
					copy(from.Bytes(), pattern(1, 1, n))
					require.NoError(t, x.PostSend(&transport.SendWR{ID: 1, Op: transport.OpRead,
						Flags: transport.FlagSignaled, Local: []transport.SGE{{MR: into, Length: n}},
						Remote: []transport.Segment{{Key: from.Key(), Length: uint64(n)}}}))
					want := transport.ReadStats{Bytes: uint64(n), Copied: uint64(n) * c.copied}
					a.until("the Read", func() bool {
						b.cq.Poll(nil)
						return len(a.wcs) > 0 && y.ReadsAnswered().Bytes == want.Bytes
					})
					require.Equal(t, transport.StatusSuccess, a.wcs[0].Status)
					require.Equal(t, pattern(1, 1, n), into.Bytes())
					got := y.ReadsAnswered()
					require.GreaterOrEqual(t, got.Copied, want.Copied) // what has found no room is copied again
					if c.copied == 0 {
						require.Zero(t, got.Copied)
					}
				})
		}
	}
}
