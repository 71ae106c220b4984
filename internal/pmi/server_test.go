package pmi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func testConfig(n int) Config {
	return Config{
		KVSName: "weft_0123abcd", Size: n,
		Preset: []string{"PMI_process_mapping", fmt.Sprintf("(vector,(0,1,%d))", n)},
	}
}

// initialized is a server whose ranks have all called init.
func initialized(t require.TestingT, n int) *Server {
	s := newWhole(testConfig(n))
	for r := range n {
		_, err := s.handle(r, "cmd=init pmi_version=1 pmi_subversion=1")
		require.NoError(t, err)
	}
	return s
}

// The golden transcripts: the server answers each request with exactly these bytes, and says nothing else.
func TestServerTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			s := newWhole(testConfig(2))
			var due []Reply
			for i, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
				if strings.HasPrefix(line, "#") {
					continue
				}
				rank := int(line[0] - '0')
				switch line[1:3] {
				case "> ":
					require.Empty(t, due, "line %d: not in the transcript", i+1)
					due, err = s.handle(rank, line[3:])
					require.NoError(t, err, "line %d", i+1)
				case "< ":
					require.NotEmpty(t, due, "line %d: no answer", i+1)
					require.Equal(t, Reply{rank, line[3:] + "\n"}, due[0], "line %d", i+1)
					due = due[1:]
				default:
					t.Fatalf("line %d: %q", i+1, line)
				}
			}
			require.Empty(t, due)
		})
	}
}

func TestServerEndsTheJobOfARankThatBreaksTheProtocol(t *testing.T) {
	for _, c := range []struct{ before, line, says string }{
		{"", "", "an empty line"},
		{"", "cmd=get_maxes", "from a rank that is started"},
		{"", "hello", "not key=value"},
		{"", "=x", "not key=value"},
		{"", "cmd=no_such", "not known to weft"},
		{"", "x=1 cmd=init", "not known to weft"},
		{"", "cmd=init pmi_version=1\x00", "byte 0x00"},
		{"", "cmd=" + strings.Repeat("a", maxLine), "longer than"},
		{"cmd=init pmi_version=1", "cmd=init pmi_version=1", "from a rank that is initialized"},
		{"cmd=init pmi_version=1\ncmd=barrier_in", "cmd=barrier_in", "in the barrier"},
		{"cmd=init pmi_version=1\ncmd=finalize", "cmd=get_maxes", "finalized"},
	} {
		s := newWhole(testConfig(2))
		if c.before != "" {
			for line := range strings.SplitSeq(c.before, "\n") {
				_, err := s.handle(1, line)
				require.NoError(t, err)
			}
		}
		replies, err := s.handle(1, c.line)
		var v *Violation
		require.ErrorAs(t, err, &v, "%q", c.line)
		require.Equal(t, 1, v.Rank)
		require.Contains(t, v.What, c.says)
		require.Empty(t, replies)
	}
}

func TestServerHearsAbortInEveryState(t *testing.T) {
	for _, before := range []string{"", "cmd=init pmi_version=1", "cmd=init pmi_version=1\ncmd=barrier_in"} {
		s := newWhole(testConfig(2))
		for line := range strings.SplitSeq(before, "\n") {
			if line != "" {
				_, err := s.handle(0, line)
				require.NoError(t, err)
			}
		}
		_, err := s.handle(0, "cmd=abort exitcode=7")
		var a *Abort
		require.ErrorAs(t, err, &a)
		require.Equal(t, Abort{0, 7}, *a)
	}
}

func TestServerBoundsWhatARankMayPut(t *testing.T) {
	s := initialized(t, 1)
	value := strings.Repeat("v", MaxValue)
	full := false
	for i := 0; i < 2*maxStored/MaxValue && !full; i++ {
		replies, err := s.handle(0, fmt.Sprintf("cmd=put kvsname=weft_0123abcd key=k%d value=%s", i, value))
		require.NoError(t, err)
		full = strings.Contains(replies[0].Line, "kvs_full")
	}
	require.True(t, full)
	replies, err := s.handle(0, "cmd=put kvsname=weft_0123abcd key=long value=v"+value)
	require.NoError(t, err)
	require.Contains(t, replies[0].Line, "rc=-1 msg=value_too_long")
}

// A rank that does not wait for the answer to get could have any number of them under way.
func TestServerRefusesARequestBeforeTheAnswerToGet(t *testing.T) {
	s := initialized(t, 2)
	e, err := s.Handle(0, "cmd=get kvsname=weft_0123abcd key=far")
	require.NoError(t, err)
	require.Equal(t, Effects{Find: "far"}, e)
	for _, line := range []string{"cmd=get kvsname=weft_0123abcd key=far", "cmd=barrier_in"} {
		_, err = s.Handle(0, line)
		require.ErrorContains(t, err, "before the answer to get")
	}
	e, err = s.Handle(1, "cmd=get kvsname=weft_0123abcd key=far")
	require.NoError(t, err)
	require.Empty(t, e, "one question is enough")
	require.Len(t, s.Found("far", "x", true).Replies, 2)
	_, err = s.Handle(0, "cmd=barrier_in")
	require.NoError(t, err)
}

// What one member puts takes no room from another.
func TestSpaceBoundsEachMember(t *testing.T) {
	s := NewKeySpace([]int{1, 2}, true)
	value := strings.Repeat("v", maxStored-1)
	require.NoError(t, s.Put(0, []string{"a", value}))
	require.EqualError(t, s.Put(0, []string{"b", "c"}), "more than 1048576 bytes of keys and values")
	require.False(t, s.Has("b"))
	require.NoError(t, s.Put(1, []string{"c", value, "d", value}))
	require.EqualError(t, s.Put(1, []string{"e", "f"}), "more than 2097152 bytes of keys and values")
}

// Nobody leaves a barrier before the last has entered it, and then everybody does.
func TestServerBarrierProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "ranks")
		s := initialized(t, n)
		for round := range 3 {
			order := rapid.Permutation(ranks(n)).Draw(t, fmt.Sprint("order", round))
			for i, r := range order {
				replies, err := s.handle(r, "cmd=barrier_in")
				require.NoError(t, err)
				if i < n-1 {
					require.Empty(t, replies)
					require.Equal(t, InBarrier, s.State(r))
					continue
				}
				require.Len(t, replies, n)
				for to, reply := range replies {
					require.Equal(t, Reply{to, "cmd=barrier_out\n"}, reply)
				}
			}
		}
	})
}

func ranks(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Whatever ranks send, the server neither panics nor answers anything but whole short lines, at most one to
// each rank.
func FuzzServer(f *testing.F) {
	for _, file := range []string{"testdata/mpich-4.0.2.txt", "testdata/refusals.txt"} {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		var session []string
		for line := range strings.SplitSeq(string(text), "\n") {
			if len(line) > 3 && line[1] == '>' {
				session = append(session, line[:1]+line[3:])
			}
		}
		f.Add(strings.Join(session, "\n"))
	}
	f.Fuzz(func(t *testing.T, session string) {
		const n = 3
		s := newWhole(testConfig(n))
		for line := range strings.SplitSeq(session, "\n") {
			if line == "" {
				continue
			}
			rank := int(line[0]) % n
			replies, err := s.handle(rank, line[1:])
			if err != nil {
				var a *Abort
				var v *Violation
				require.True(t, errors.As(err, &a) || errors.As(err, &v))
				require.Empty(t, replies)
				return
			}
			to := map[int]bool{}
			for _, r := range replies {
				require.False(t, to[r.Rank])
				to[r.Rank] = true
				require.True(t, strings.HasSuffix(r.Line, "\n"))
				_, err := parse(strings.TrimSuffix(r.Line, "\n"))
				require.NoError(t, err)
			}
			s.Waiting()
		}
	})
}

// What is parsed and written again is the same but for repeated spaces.
func FuzzParse(f *testing.F) {
	f.Add("cmd=put kvsname=a key=k value=a=b=")
	f.Add("  cmd=x  y=")
	f.Fuzz(func(t *testing.T, line string) {
		m, err := parse(line)
		if err != nil {
			return
		}
		again, err := parse(strings.TrimSuffix(format(m), "\n"))
		require.NoError(t, err)
		require.Equal(t, m, again)
	})
}
