package firstmessage

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// The layout is that of docs/internals/spec/shm.md, "First messages".
func TestSpec_FirstMessages(t *testing.T) {
	var l line
	require.Equal(t, []uintptr{0, 8, 16, 32, 64, 128}, []uintptr{unsafe.Offsetof(l.rank), unsafe.Offsetof(l.open),
		unsafe.Offsetof(l.wake), unsafe.Sizeof(l.wake), unsafe.Offsetof(l.sleeping), unsafe.Sizeof(l)})
	var c cell
	require.Equal(t, []uintptr{0, 4, 8, 56}, []uintptr{unsafe.Offsetof(c.state), unsafe.Offsetof(c.length),
		unsafe.Offsetof(c.message), unsafe.Sizeof(c.message)})
	require.Equal(t, []int{0, 1, 2}, []int{cellEmpty, cellFull, cellTaken})
	require.EqualValues(t, 64, unsafe.Sizeof(header{}))
	require.Equal(t, 4096+16*16*64, size(16))
	require.Equal(t, 36864+256*256*64, size(256))
	require.Equal(t, transport.MaxUnconnected, MaxMessage)
}
