package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// inputs are files that are hard to cut into parts, and one that is not.
func inputs() map[string]string {
	random := rand.New(rand.NewPCG(1, 2))
	var words, long strings.Builder
	for range 3000 {
		fmt.Fprintf(&words, "%x\n", random.Uint64()>>random.IntN(64))
	}
	for _, n := range []int{10_000, 1, 30_000, 0, 5000} {
		long.WriteString(strings.Repeat("x", n) + "\n")
	}
	return map[string]string{
		"words":            words.String(),
		"equal lines":      strings.Repeat("the same\n", 1000),
		"fewer than ranks": "b\na",
		"long lines":       long.String(),
		"empty lines":      "\n\n\nz\n\na\n",
		"beginnings":       "ab\na\nabc\na\x01\na\xff\n\n",
		"nothing":          "",
	}
}

// reference sorts lines alone.
func reference(text string) string {
	if text == "" {
		return ""
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func TestTheOutputIsTheInputInOrder(t *testing.T) {
	for name, text := range inputs() {
		ranks := []int{3}
		if name == "words" {
			ranks = exampletest.Ranks()
		}
		for _, n := range ranks {
			t.Run(fmt.Sprint(name, "/", n), func(t *testing.T) {
				dir := t.TempDir()
				require.NoError(t, os.WriteFile(filepath.Join(dir, "in"), []byte(text), 0o666))
				stdout, stderr, err := exampletest.Launch(t, n, dir, "-output", "out", "in")
				require.NoError(t, err, stderr)
				require.Contains(t, stdout, fmt.Sprintf("%d lines of in sorted into out by %d ranks in ",
					strings.Count(reference(text), "\n"), n))
				out, err := os.ReadFile(filepath.Join(dir, "out"))
				require.NoError(t, err)
				require.Equal(t, reference(text), string(out))
				require.NoFileExists(t, filepath.Join(dir, "out.partial"))
			})
		}
	}
}

// Without a file the ranks make lines, and write them if they are told where.
func TestLinesThatTheRanksMake(t *testing.T) {
	o, err := parse(nil)
	require.NoError(t, err)
	require.Equal(t, options{}, o)
	dir := t.TempDir()
	stdout, stderr, err := exampletest.Launch(t, 3, dir, "-output", "out")
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "1000000 lines sorted into out by 3 ranks in ")
	out, err := os.ReadFile(filepath.Join(dir, "out"))
	require.NoError(t, err)
	require.Equal(t, made, strings.Count(string(out), "\n"))
}

// A line that is there very often is cut into parts like others.
func TestNoRankGetsMoreThanTwiceItsShare(t *testing.T) {
	dir := t.TempDir()
	text := inputs()["equal lines"]
	require.NoError(t, os.WriteFile(filepath.Join(dir, "in"), []byte(text), 0o666))
	stdout, stderr, err := exampletest.Launch(t, 4, dir, "-output", "out", "in")
	require.NoError(t, err, stderr)
	var largest int
	_, after, _ := strings.Cut(stdout, "; at most ")
	_, err = fmt.Sscanf(after, "%d lines a rank", &largest)
	require.NoError(t, err, stdout)
	require.LessOrEqual(t, largest, 2*1000/4)
}

func TestTheOutputMayBeTheInput(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("3\n1\n2\n"), 0o666))
	_, stderr, err := exampletest.Launch(t, 2, dir, "-output", "file", "file")
	require.NoError(t, err, stderr)
	out, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "1\n2\n3\n", string(out))
}

// Whatever the file and the number of ranks, the parts are the file, cut between lines.
func TestThePartsAreTheFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([a-c]{0,5}\n?){0,40}`).Draw(t, "text")
		ranks := rapid.IntRange(1, 10).Draw(t, "ranks")
		var whole []byte
		for rank := range ranks {
			lines, err := readLines(strings.NewReader(text), int64(len(text)), rank, ranks)
			require.NoError(t, err)
			require.True(t, len(lines) == 0 || lines[len(lines)-1] == '\n')
			whole = append(whole, lines...)
		}
		if text != "" && text[len(text)-1] != '\n' {
			text += "\n"
		}
		require.Equal(t, text, string(whole))
	})
}

func TestALineLongerThanABlockIsFound(t *testing.T) {
	text := strings.Repeat("x", 10_000) + "\nend\n"
	at, err := lineAt(strings.NewReader(text), int64(len(text)), 1)
	require.NoError(t, err)
	require.Equal(t, int64(10_001), at)
}

func TestAFileThatShrinksIsAnError(t *testing.T) {
	_, err := readLines(strings.NewReader("a\nb\n"), 10, 0, 1)
	require.ErrorContains(t, err, "EOF")
}

func TestBadInputIsRefused(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in")
	require.NoError(t, os.WriteFile(in, []byte("b\na\n"), 0o666))
	for _, c := range []struct {
		args  []string
		words string
	}{
		{[]string{"-output", "out", ""}, "sort: 1 input files: name one, after the flags"},
		{[]string{"-output", "out", "a", "b"}, "sort: 2 input files"},
		{[]string{"in"}, "sort: no output: name a file with -output"},
		{[]string{"-o", "out", "in"}, "sort: flag provided but not defined: -o"},
		{[]string{"-output", "out", "none"}, "sort: stat none: no such file"},
		{[]string{"-output", "out", "/dev/zero"}, "sort: /dev/zero: not a regular file"},
		{[]string{"-output", "out", "."}, "sort: .: not a regular file"},
		{[]string{"-output", "none/out", in}, "sort: -output: file: open none/out.partial: no such file"},
		{[]string{"-output", ".", in}, "sort: -output: "},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) { exampletest.Refused(t, c.args, c.words) })
	}
}

func TestAnOutputThatCannotBeWrittenEndsTheJob(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	require.NoError(t, os.WriteFile(in, []byte("b\na\n"), 0o666))
	exampletest.Ends(t, 4, "-output", filepath.Join(dir, "none", "out"), in)
}

func TestHelp(t *testing.T) { exampletest.Helps(t, "-output file") }
