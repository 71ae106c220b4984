package mpi

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatus_String(t *testing.T) {
	received := Status{Source: 1, Tag: 5, Count: 3, bytes: 24}
	require.Equal(t, "source 1, tag 5, count 3, bytes 24", fmt.Sprint(received))
	received.err = ErrTruncate
	require.Equal(t, "source 1, tag 5, count 3, bytes 24: "+ErrTruncate.Error(), fmt.Sprint(received))
	require.Equal(t, "no message", fmt.Sprint(emptyStatus))
	require.Equal(t, "no message", fmt.Sprint(Status{Source: ProcNull, Tag: AnyTag}))
	cancelled := emptyStatus
	cancelled.cancelled = true
	require.Equal(t, "cancelled", fmt.Sprint(cancelled))
}
