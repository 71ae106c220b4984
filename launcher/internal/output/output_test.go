package output

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weft-mpi/weft/internal/sys"
)

// written is what a sink's file got from write.
func written(t require.TestingT, write func(*sink)) string {
	file, err := os.CreateTemp("", "sink")
	require.NoError(t, err)
	defer os.Remove(file.Name())
	defer file.Close()
	s, err := newSink("the sink", file, make(chan struct{}, 1))
	require.NoError(t, err)
	write(s)
	s.flush(patience)
	unwritten, err := s.state()
	require.NoError(t, err)
	require.Zero(t, unwritten)
	s.stop()
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	return string(text)
}

// patience is how long a test waits for what has to come.
const patience = 5 * time.Minute

func TestSinkKeepsLinesOfDifferentRanksApart(t *testing.T) {
	a, b := &lineBuffer{label: "[0] "}, &lineBuffer{label: "[1] "}
	require.Equal(t, "[0] name? bob\n[0] x\n[1] y\n[0] z\nweft: end\n", written(t, func(s *sink) {
		s.put(a, []byte("name? "))
		s.put(a, []byte("bob\nx"))
		s.put(b, []byte("y\n"))
		s.put(a, []byte("z"))
		s.put(nil, []byte("weft: end\n"))
	}))
}

// However a stream's text is cut into pieces, it comes out as it went in.
func TestLineBufferPropertyNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.StringMatching(`[ab\n]{0,9}`)).Draw(t, "pieces")
		maxLine := rapid.IntRange(1, 20).Draw(t, "longest line")
		require.Equal(t, strings.Join(pieces, ""), written(t, func(s *sink) {
			b := &lineBuffer{sink: s, maxLine: maxLine}
			for _, p := range pieces {
				b.add(time.Now(), []byte(p))
			}
			b.flush()
		}))
	})
}

// Lines up to the bound come whole, whatever comes in between; a longer one is cut.
func TestLineBuffersKeepLinesWholeUpToTheBound(t *testing.T) {
	const bound = 100
	text := written(t, func(s *sink) {
		a, b := &lineBuffer{sink: s, maxLine: bound}, &lineBuffer{sink: s, maxLine: bound}
		for _, length := range []int{bound, bound + 2} {
			for range length {
				a.add(time.Now(), []byte("a"))
				b.add(time.Now(), []byte("b\n"))
			}
			a.add(time.Now(), []byte("\n"))
		}
	})
	require.Equal(t, 1, strings.Count(text, "\n"+strings.Repeat("a", bound)+"\nb"))
	require.NotContains(t, text, strings.Repeat("a", bound+2)+"\n",
		"the longer line is cut where another's came")
}

// A name that somebody else has given does nothing to the terminal that a notice is shown on.
func TestNoticesHaveNoControlCharacters(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer file.Close()
	o, err := New(file, file)
	require.NoError(t, err)
	o.Notice("rank 0 on %s ended\n\tso", "host\x1b[2J\r")
	o.Flush(patience)
	o.Close()
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	require.Equal(t, "weft: rank 0 on host\\x1b[2J\\r ended\n\tso\n", string(text))
}

// A sink whose reader stalls returns from stop.
func TestSinkStopsThoughNobodyReads(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	s, err := newSink("the pipe", w, make(chan struct{}, 1))
	require.NoError(t, err)
	text := bytes.Repeat([]byte("x"), sys.PipeCapacity(s.fd)+10000)
	s.put(nil, text)
	s.flush(50 * time.Millisecond)
	unwritten, err := s.state()
	require.NoError(t, err)
	require.GreaterOrEqual(t, unwritten, 10000)
	s.stop()
}
