package value

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi/internal/plain"
)

// untold is a type whose values gob cannot encode.
type untold struct{ Text string }

func (untold) GobEncode() ([]byte, error) { return nil, errors.New("nothing to tell") }
func (*untold) GobDecode([]byte) error    { return nil }

// Errors about values name their type.
func TestErrorsNameTypes(t *testing.T) {
	text, err := Encode(&[]string{"a"}, 0)
	require.NoError(t, err)
	var (
		number  int32
		byName  map[string]int
		made    chan int
		private struct{ hidden string }
	)
	_, gobErr := Encode(&untold{}, 0)
	_, chanErr := Encode(&made, 0)
	_, hiddenErr := Encode(&private, 0)
	for says, err := range map[string]error{
		"3 bytes are no int32, which has 4":     Decode([]byte{1, 2, 3}, &number),
		"the message holds no map[string]int: ": Decode(text, &byName),
		"value.untold: nothing to tell":         gobErr,
		"chan int: it is a chan":                chanErr,
		"struct { hidden string }: ":            hiddenErr,
	} {
		require.ErrorIs(t, err, plain.ErrType)
		require.ErrorContains(t, err, says)
	}
}

// FuzzMessage: a message that is no value gives plain.ErrType, and one of Message its value.
func FuzzMessage(f *testing.F) {
	for _, v := range []any{7, "text", []float32{1}} {
		b, err := Message(&v)
		require.NoError(f, err)
		f.Add(b)
	}
	number, list := 7, []float32{1, 2}
	b, err := Message(&number)
	require.NoError(f, err)
	f.Add(b)
	b, err = Message(&list)
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
	if err := Open(b, &v); err != nil {
		require.ErrorIs(t, err, plain.ErrType)
		return
	}
	b, err := Message(&v)
	require.NoError(t, err)
	require.Len(t, b, len(b)|1)
	require.NoError(t, Open(b, &again))
	require.Equal(t, v, again)
}
