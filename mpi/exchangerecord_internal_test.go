package mpi

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// Records that are cut off a message lie inside it, and are what was put there.
func FuzzCutRecord(f *testing.F) {
	r := exchangeRecord{origin: 3, dest: 70_000, block: []byte("twelve bytes")}
	message := r.append(r.append(nil))
	f.Add(message)
	f.Add(message[:len(message)-4])
	f.Add(message[:20])
	f.Add(bytes.Repeat([]byte{0xff}, 16))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			r, rest, err := cutRecord(b)
			if err != nil {
				return
			}
			again := r.append(nil)
			require.Len(t, again, r.size())
			require.Zero(t, len(again)%8)
			require.Equal(t, b[:r.sizeAtEnd()], again[:r.sizeAtEnd()])
			if len(rest) > 0 {
				require.Equal(t, b[r.size():], rest)
			}
			b = rest
		}
	})
}
