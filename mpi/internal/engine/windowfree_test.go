package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi/internal/rma"
	"github.com/weft-mpi/weft/transport"
)

// Free reports every mapping that could not be removed.
func TestTarget_UnmapJoinsErrors(t *testing.T) {
	e := world(t, simDevices(1, 1))[0]
	control, memory := errors.New("control block"), errors.New("memory")
	target := &Target{w: &Window{e: e}, unmaps: []func() error{
		func() error { return control },
		func() error { return memory },
		func() error { return nil },
	}}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := target.unmapLocked()
	require.ErrorIs(t, err, control)
	require.ErrorIs(t, err, memory)
	require.Empty(t, target.unmaps)
}

var errNoRoom = errors.New("no room for another region")

// registersOnce is a protection domain that refuses every registration but the first.
type registersOnce struct {
	transport.PD
	registered int
}

func (d *registersOnce) Register(buf []byte, access transport.Access) (transport.MR, error) {
	if d.registered++; d.registered > 1 {
		return nil, errNoRoom
	}
	return d.PD.Register(buf, access)
}

// A window that cannot be registered leaves neither memory nor regions behind.
func TestWindows_CreationThatFailsLeavesNothing(t *testing.T) {
	e := world(t, simDevices(1, 1))[0]
	f := e.fabrics[0]
	pd := f.pd
	f.pd = &registersOnce{PD: pd}
	w, card, err := e.Windows.New(3, make([]byte, 64), rma.Type{Kind: rma.Int, Size: 8})
	f.pd = pd
	require.ErrorIs(t, err, errNoRoom)
	require.Nil(t, w)
	require.Equal(t, WindowCard{Failed: 1}, card)
	require.Empty(t, e.hub.Memory.list, "the control block is left")
}

// A rank with more fabrics than a card has room for has no windows.
func TestWindows_TooManyFabrics(t *testing.T) {
	e := world(t, simDevices(1, 1))[0]
	fabrics := e.fabrics
	for len(e.fabrics) <= maxWindowFabrics {
		e.fabrics = append(e.fabrics, fabrics[0])
	}
	_, card, err := e.Windows.New(3, nil, rma.Type{Kind: rma.Int, Size: 8})
	e.fabrics = fabrics
	require.ErrorIs(t, err, transport.ErrInvalid)
	require.ErrorContains(t, err, "5 fabrics")
	require.NotZero(t, card.Failed)
	require.Empty(t, e.hub.Memory.list)
}

// The keys of a fabric are found by its whole name.
func TestWindowCard_KeysOfAFabric(t *testing.T) {
	var card WindowCard
	for i, name := range []string{"tcp2", "tcp", "longname"} {
		copy(card.Fabrics[i].Name[:], name)
		keys, err := card.keysFor(&fabric{device: &device{name: name}})
		require.NoError(t, err)
		require.Same(t, &card.Fabrics[i], keys, "%s", name)
	}
	_, err := card.keysFor(&fabric{device: &device{name: "tc"}})
	require.ErrorIs(t, err, transport.ErrInvalid)
}
