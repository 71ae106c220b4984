package mpi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Errors about elements name their type.
func TestElements_ErrorsNameTypes(t *testing.T) {
	for says, err := range map[string]error{
		"struct {} has no bytes":                      checkElement[struct{}](),
		"*int: it is a ptr; elements must have a fix": checkElement[*int](),
	} {
		require.ErrorIs(t, err, ErrType)
		require.ErrorContains(t, err, says)
	}
}
