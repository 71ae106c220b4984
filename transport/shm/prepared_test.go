//go:build linux

package shm

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// A block that a peer may have taken although the handshake failed here is used again when that peer's process
// has ended, and no earlier; meanwhile it tells the peer to place nothing.
func TestDrop_BlockThatAPeerMayUseIsFreedWithItsProcess(t *testing.T) {
	_, b := couple(t, Options{})
	p, err := b.dev.prepareQP(transport.QPConfig{PD: b.pd, SendCQ: b.cq, RecvCQ: b.cq, SendWR: 8, RecvWR: 8})
	require.NoError(t, err)
	poller, wake, err := newPoller()
	require.NoError(t, err)
	prober, err := sys.NewProber()
	require.NoError(t, err)
	defer prober.Close()

	b.dev.drop(p, wake.address())
	b.dev.recycleRetired(prober)
	require.True(t, b.holds(p.in))
	require.NotZero(t, atomic.LoadUint64(&p.in.block.notifyEnable)&notifyClosed)

	poller.Close()
	b.dev.recycleRetired(prober)
	require.False(t, b.holds(p.in))
}

// holds reports whether a block is one in which a peer may write.
func (e *end) holds(in *receiveBlock) bool {
	e.dev.live.Lock()
	defer e.dev.live.Unlock()
	_, ok := e.dev.live.inbounds[in]
	return ok
}

// A protection domain reports what the device has measured since it was made.
func TestDeviceAttr_CopyCostsAreTheDevicesPresentOnes(t *testing.T) {
	d, err := New(Options{})
	require.NoError(t, err)
	defer d.Close()
	pd, err := d.AllocPD()
	require.NoError(t, err)
	require.Zero(t, d.Query().CopyCosts)
	least(&d.copyCall.ns, 7*time.Microsecond)
	least(&d.copyCall.ns, 8*time.Microsecond)
	require.Equal(t, 7*time.Microsecond, d.Query().CopyCosts.Call)
	require.Equal(t, d.Query(), pd.DeviceAttr())
}
