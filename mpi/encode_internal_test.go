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

// FuzzValueMessage: a message that is no value gives ErrType, and one of valueMessage its value.
func FuzzValueMessage(f *testing.F) {
	for _, v := range []any{7, "text", []float32{1}} {
		b, err := valueMessage(&v)
		require.NoError(f, err)
		f.Add(b)
	}
	number, list := 7, []float32{1, 2}
	b, err := valueMessage(&number)
	require.NoError(f, err)
	f.Add(b)
	b, err = valueMessage(&list)
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		opens[int](t, b)
		opens[[]int32](t, b)
		opens[[]byte](t, b)
		opens[map[string]int](t, b)
	})
}

// opens takes a value of a type out of a message, if it holds one; that makes the same value again.
func opens[T any](t *testing.T, b []byte) {
	var v, again T
	if err := openValueMessage(b, &v); err != nil {
		require.ErrorIs(t, err, ErrType)
		return
	}
	b, err := valueMessage(&v)
	require.NoError(t, err)
	require.Len(t, b, len(b)|1)
	require.NoError(t, openValueMessage(b, &again))
	require.Equal(t, v, again)
}
