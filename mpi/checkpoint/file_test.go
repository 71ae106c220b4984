package checkpoint

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var exampleHeader = header{Set: setID{Step: 200, Run: 0x0123456789abcdef, Size: 8}, Rank: 3, Before: 100, Length: 5,
	What: "heat 768x512"}

func fileOf(h header, state string) []byte { return bytes.Join(h.frame([]byte(state)), nil) }

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	b := fileOf(exampleHeader, "state")
	require.Len(t, b, int(exampleHeader.bytes()))
	h, state, err := parseFile(b)
	require.NoError(t, err)
	require.Equal(t, exampleHeader, h)
	require.Equal(t, "state", string(state))
	require.Equal(t, "step-000000000200-0123456789abcdef-3.of.8.state", h.name(false))
	require.Regexp(t, names, h.name(true))
}

// A file that has lost its end, or has more than it should, or of which any bit is another one, is refused.
func TestTornAndDamagedFilesAreRefused(t *testing.T) {
	b := fileOf(exampleHeader, "state")
	for n := range b {
		_, _, err := parseFile(b[:n])
		require.Error(t, err, "cut to %d bytes", n)
	}
	_, _, err := parseFile(append(slices.Clone(b), 0))
	require.Error(t, err)
	for bit := range 8 * len(b) {
		c := slices.Clone(b)
		c[bit/8] ^= 1 << (bit % 8)
		_, _, err := parseFile(c)
		require.Error(t, err, "bit %d", bit)
	}
}

// Headers with the right checksum that no Store writes.
func TestHeadersThatMakeNoSenseAreRefused(t *testing.T) {
	for at, text := range map[int]string{
		8: "\xff\xff\xff\xff\xff\xff\xff\xff", 24: "\xfe\xff\xff\xff\xff\xff\xff\xff",
		32: "\xff\xff\xff\xff\xff\xff\xff\x7f", 40: "\x08", 44: "\xff\xff\xff\x7f", 48: "\xff\xff",
	} {
		b := fileOf(exampleHeader, "state")
		copy(b[at:], text)
		n := fixedSize + len(exampleHeader.What)
		binary.LittleEndian.PutUint32(b[n:], crc32.Checksum(b[:n], castagnoli))
		_, _, err := parseFile(b)
		require.Error(t, err, "at %d", at)
	}
}

func FuzzFile(f *testing.F) {
	f.Add(fileOf(exampleHeader, "state"))
	f.Add(fileOf(header{Set: setID{Size: 1}, Before: none}, ""))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		// What follows the magic would hardly ever have the right checksums.
		if n := len(b) - checksumOf; n >= fixedSize {
			if what := int(binary.LittleEndian.Uint32(b[48:])); what >= 0 && fixedSize+what+checksumOf <= n {
				at := fixedSize + what
				binary.LittleEndian.PutUint32(b[at:], crc32.Checksum(b[:at], castagnoli))
				binary.LittleEndian.PutUint32(b[n:], crc32.Checksum(b[at+checksumOf:n], castagnoli))
			}
		}
		h, state, err := parseFile(b)
		if err != nil {
			return
		}
		require.Equal(t, b, bytes.Join(h.frame(state), nil))
		require.Regexp(t, names, h.name(false))
	})
}
