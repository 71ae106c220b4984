package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi/internal/rma"
)

// Attach says whether too much is attached at the moment, or too much has been in all.
func TestAttach_Limits(t *testing.T) {
	e := world(t, simDevices(1, 1))[0]
	w, card, err := e.Windows.NewDynamic(3, rma.Type{Kind: rma.Int, Size: 8})
	require.NoError(t, err)
	w.Join(0, []int{0}, []WindowCard{card})
	defer func() { require.NoError(t, w.Free()) }()
	at := 0
	for range attachedEntries {
		at, err = w.Attach(nil)
		require.NoError(t, err)
	}
	_, err = w.Attach(nil)
	require.ErrorIs(t, err, ErrManyAttached)
	require.NoError(t, w.Detach(at, nil))
	w.dynamic.next = maxAttaching + 1
	for w.dynamic.next%attachedEntries != uint64(at)>>AttachedShift%attachedEntries {
		w.dynamic.next++
	}
	_, err = w.Attach(nil)
	require.ErrorIs(t, err, ErrAttachedTooOften)
}
