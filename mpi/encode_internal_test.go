package mpi

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// untold is a type whose values gob cannot encode.
type untold struct{ Text string }

func (untold) GobEncode() ([]byte, error) { return nil, errors.New("nothing to tell") }
func (*untold) GobDecode([]byte) error    { return nil }

// Errors about values and elements name their type.
func TestErrorsNameTypes(t *testing.T) {
	text, err := encode(&[]string{"a"}, 0)
	require.NoError(t, err)
	var (
		number  int32
		byName  map[string]int
		made    chan int
		private struct{ hidden string }
	)
	_, gobErr := encode(&untold{}, 0)
	_, chanErr := encode(&made, 0)
	_, hiddenErr := encode(&private, 0)
	for says, err := range map[string]error{
		"3 bytes are no int32, which has 4":           decode([]byte{1, 2, 3}, &number),
		"the message holds no map[string]int: ":       decode(text, &byName),
		"mpi.untold: nothing to tell":                 gobErr,
		"chan int: it is a chan":                      chanErr,
		"struct { hidden string }: ":                  hiddenErr,
		"struct {} has no bytes":                      checkElement[struct{}](),
		"*int: it is a ptr; elements must have a fix": checkElement[*int](),
	} {
		require.ErrorIs(t, err, ErrType)
		require.ErrorContains(t, err, says)
	}
}
