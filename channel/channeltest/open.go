package channeltest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// Channel is the part of channel.Channel that is used here. The tests of that package import this one.
type Channel interface {
	Open(qp transport.QP, peer []byte) error
	Descriptor() []byte
	Close() error
}

// Open opens a channel over a Pair; create makes its ends. At the end of the test both are closed, and no
// region may be left registered.
func Open[C Channel](t testing.TB, p *Pair, create func(e *End) (C, error)) (a, b C) {
	t.Helper()
	return open(t, p, p.A, p.B, create)
}

// OpenInline is Open over queue pairs that write inline.
func OpenInline[C Channel](t testing.TB, p *Pair, shared bool, create func(e *End) (C, error)) (a, b C) {
	t.Helper()
	return open(t, p, p.A.Inline(shared), p.B.Inline(shared), create)
}

func open[C Channel](t testing.TB, p *Pair, qpA, qpB transport.QP, create func(e *End) (C, error)) (a, b C) {
	t.Helper()
	a, err := create(p.A)
	require.NoError(t, err)
	b, err = create(p.B)
	require.NoError(t, err)
	require.NoError(t, a.Open(qpA, b.Descriptor()))
	require.NoError(t, b.Open(qpB, a.Descriptor()))
	t.Cleanup(func() {
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
		require.Zero(t, p.A.Regions()+p.B.Regions())
	})
	return a, b
}
