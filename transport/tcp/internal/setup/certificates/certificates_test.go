package certificates

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

func certificatesOf(t testing.TB, rank uint32, change func(id *transport.Identity), skew time.Duration) *Job {
	t.Helper()
	id := transport.Identity{Job: "job", Rank: rank, Size: 4, Secret: [32]byte{1, 2, 3}}
	if change != nil {
		change(&id)
	}
	j, err := New(id, func() time.Time { return time.Now().Add(skew) })
	require.NoError(t, err)
	return j
}

// All ranks derive the same authority; another job or secret has another; a leaf is renewed before its time
// is over.
func TestCertificates(t *testing.T) {
	a, b := certificatesOf(t, 0, nil, 0), certificatesOf(t, 1, nil, 90*24*time.Hour)
	require.Equal(t, a.Root.Raw, b.Root.Raw)
	require.NotEqual(t, a.Key, certificatesOf(t, 0, func(id *transport.Identity) { id.Secret[31] ^= 1 },
		0).Key)
	require.NotEqual(t, a.Key,
		certificatesOf(t, 0, func(id *transport.Identity) { id.Job = "another with the same secret" },
			0).Key)

	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	a.now = func() time.Time { return now }
	first, err := a.Leaf()
	require.NoError(t, err)
	again, err := a.Leaf()
	require.NoError(t, err)
	require.Same(t, first, again)
	for _, later := range []time.Duration{leafRenew + time.Second, -time.Hour} { // the clock may go back, too
		now = now.Add(later)
		next, err := a.Leaf()
		require.NoError(t, err)
		require.NotSame(t, first, next)
		require.True(t, next.Leaf.NotBefore.Equal(now.Add(-leafBefore)) &&
			next.Leaf.NotAfter.Equal(now.Add(leafAfter)))
		first = next
	}
	require.NotEqual(t, a.Key.Public(), first.Leaf.PublicKey)
	rank, err := b.RankOf(first.Leaf)
	require.NoError(t, err)
	require.Equal(t, uint32(0), rank)
	for _, names := range [][]string{nil, {"1"}, {"1." + a.domain, "2." + a.domain}, {"01." + a.domain},
		{"-1." + a.domain},
		{"4294967296." + a.domain}, {"*." + a.domain}, {a.domain}} {
		_, err := b.RankOf(&x509.Certificate{DNSNames: names})
		require.ErrorIs(t, err, transport.ErrAuth, "%q", names)
	}
}
