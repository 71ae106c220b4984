package verbs

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

func TestImmediate_Has32Bits(t *testing.T) {
	imm, err := Immediate(1<<32 - 1)
	require.NoError(t, err)
	require.Equal(t, uint32(1<<32-1), imm)
	for _, word := range []uint64{1 << 32, 1 << 63} {
		_, err := Immediate(word)
		require.ErrorIs(t, err, transport.ErrProtocol)
	}
}

func TestNoTransferrer_ClosesTheStream(t *testing.T) {
	mine, theirs := net.Pipe()
	err := NoTransferrer{}.Transfer(t.Context(), mine, nil, transport.Initiator, 1)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = theirs.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}
