package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// readPage reads a page whose commands a test is about to run, or skips the test.
func readPage(t *testing.T, name string) string {
	if os.Getenv("WEFT_TEST_PAGES") == "" {
		t.Skip("builds and runs all programs of a page: set WEFT_TEST_PAGES=1, as .ci/run does")
	}
	return text(t, name)
}

func text(t *testing.T, name string) string {
	page, err := os.ReadFile("../../../" + name)
	require.NoError(t, err)
	return string(page)
}

// The commands of other guides, with what they print.
func TestPage_Guides(t *testing.T) {
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	for name, blocks := range map[string]int{"failures": 1, "without-a-launcher": 1} {
		page := readPage(t, "docs/guide/"+name+".md")
		page = strings.ReplaceAll(page, "go build ./examples/ring", "go -C "+root+" build -o $PWD/ ./examples/ring")
		list := pageBlocks(page)
		require.Len(t, list, blocks, name)
		for _, b := range list {
			if wrong := b.check(t.TempDir(), "/bin/true"); wrong != "" {
				t.Error("docs/guide/" + name + ".md:" + wrong)
			}
		}
	}
}

// The wrong program of docs/guide/testing.md fails as the page says, with some seed.
func TestPage_Testing(t *testing.T) {
	// up to where the page mends the program: the other blocks have programs of their own
	page, _, _ := strings.Cut(readPage(t, "docs/guide/testing.md"), "The\ncure is")
	u := newTutorial(t)
	program := "package compose\n\nimport (\n\t\"context\"\n\t\"fmt\"\n\t\"testing\"\n\n" +
		"\t\"github.com/weft-mpi/weft/mpi\"\n\t\"github.com/weft-mpi/weft/mpi/mpitest\"\n)\n"
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1) {
		program += "\n" + block[1]
	}
	require.NoError(t, os.WriteFile(filepath.Join(u.dir, "compose_test.go"), []byte(program), 0o600))
	blocks := pageBlocks(page)
	require.Len(t, blocks, 1)
	require.Len(t, blocks[0].commands, 1)
	cmd := exec.Command("sh", "-c", blocks[0].commands[0])
	cmd.Dir, cmd.Env = u.dir, append(os.Environ(), u.env...)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	number := regexp.MustCompile(`\d+(\.\d+)?`)
	for _, line := range blocks[0].printed {
		require.Contains(t, number.ReplaceAllString(string(out), "N"), number.ReplaceAllString(line, "N"))
	}
}

// The benchmarks on the pages run, here with few iterations, sizes and ranks.
func TestPage_Benchmarks(t *testing.T) {
	command := regexp.MustCompile(`(?m)^weft bench (.*?)(?:  +#.*)?$`)
	ran := 0
	for _, name := range []string{"docs/guide/performance.md", "docs/reference/benchmarks.md"} {
		for _, m := range command.FindAllStringSubmatch(readPage(t, name), -1) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "osu_latency.txt"),
				[]byte(text(t, "docs/pictures/latency/others-shm.txt")), 0o600))
			short := " -i 2 -x 1 -m 8:64"
			switch benchmark, _, _ := strings.Cut(m[1], " "); benchmark {
			case "tune":
				short = " -n 2 --limit 1s -m 8:8"
			case "memory":
				short = " -n 4"
			}
			cmd := exec.Command("sh", "-c", "weft bench "+m[1]+short)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s", m[0], out)
			require.Regexp(t, `(?m)^[0-9A-Z]\S* +\S`, string(out), m[0]) // a row of its table
			ran++
		}
	}
	require.Greater(t, ran, 9)
}

// row is a row of examples/README.md: the folder, the number of lines, the command, a line of its output.
var row = regexp.MustCompile("(?m)^\\| \\[(\\w+)\\]\\(\\w+\\) \\| .* \\| (\\d+) \\| `(.*)` \\| `(.*)` \\|$")

// examples/README.md has all examples, with their numbers of lines.
func TestExamples_Lines(t *testing.T) {
	var want, got []string
	folders, err := filepath.Glob("../../../examples/*/main.go")
	require.NoError(t, err)
	for _, main := range folders {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(main), "*.go"))
		require.NoError(t, err)
		lines := 0
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				code, err := os.ReadFile(file)
				require.NoError(t, err)
				lines += strings.Count(string(code), "\n")
			}
		}
		want = append(want, fmt.Sprint(filepath.Base(filepath.Dir(main)), " ", lines))
	}
	for _, r := range row.FindAllStringSubmatch(text(t, "examples/README.md"), -1) {
		got = append(got, r[1]+" "+r[2])
	}
	require.ElementsMatch(t, want, got)
}

// Each example prints the line that examples/README.md has of it.
func TestPage_Examples(t *testing.T) {
	for _, r := range row.FindAllStringSubmatch(readPage(t, "examples/README.md"), -1) {
		dir := t.TempDir()
		cmd := exec.Command("sh", "-c", strings.Replace(r[3], "weft run ", "weft run --wdir "+dir+" ", 1))
		cmd.Dir = "../../.."
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", r[3], out)
		line := ".*" + strings.ReplaceAll(regexp.QuoteMeta(r[4]), "…", ".*")
		require.Regexp(t, line, string(out), r[3])
	}
}

// The tables of docs/guide/performance.md are those of the picture, which weft bench has drawn.
func TestPicture(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("figures are rounded in other ways")
	}
	page := text(t, "docs/guide/performance.md")
	args := []string{"weft", "bench", "compare"}
	for _, fabric := range []string{"shared memory", "TCP"} {
		_, table, found := strings.Cut(page, "| "+fabric+", bytes | latency")
		require.True(t, found)
		table, _, _ = strings.Cut(table, "\n\n")
		var weft, others []string
		for line := range strings.Lines(table) {
			if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) == 5 && cells[0][0] >= '0' &&
				cells[0][0] <= '9' {
				weft, others = append(weft, cells[0]+" "+cells[1]), append(others, cells[0]+" "+cells[2])
			}
		}
		for who, rows := range map[string][]string{"weft": weft, "others": others} {
			name := fmt.Sprintf("docs/pictures/latency/%s-%s.txt", who,
				map[string]string{"shared memory": "shm", "TCP": "tcp"}[fabric])
			var figures []string
			for line := range strings.Lines(text(t, name)) {
				if !strings.HasPrefix(line, "#") {
					figures = append(figures, strings.Join(strings.Fields(line), " "))
				}
			}
			require.Equal(t, rows, figures, name)
		}
	}
	for _, name := range []string{"weft-shm", "others-shm", "weft-tcp", "others-tcp"} {
		args = append(args, "../../../docs/pictures/latency/"+name+".txt")
	}
	file := filepath.Join(t.TempDir(), "latency.svg")
	require.Contains(t, page, "weft bench compare weft-shm.txt others-shm.txt weft-tcp.txt others-tcp.txt --plot")
	root := newRoot(commands(args))
	root.SetOut(io.Discard)
	root.SetArgs(append(args[1:], "--plot", file))
	require.NoError(t, root.Execute())
	drawn, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, text(t, "docs/pictures/latency.svg"), string(drawn))
}

// Every command line of weft on a page has options that there are, and every test and benchmark that a command
// names is there.
func TestCommandLines(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/guide/*.md")
	require.NoError(t, err)
	pages = append(pages, "../../../docs/reference/benchmarks.md", "../../../README.md", "../../../docs/tutorial.md", "../../../examples/README.md",
		"../../../CONTRIBUTING.md", "../../../deploy/kubernetes/README.md")
	command := regexp.MustCompile("(?:^|[`$( =])weft (run|bench|top|show|info|man|version|completion)((?: [^`|&;)…]+)?)")
	goTest := regexp.MustCompile(`go test[^|]*? -(?:run|bench) ['"^]*(\w+)`)
	parsed, tests := 0, testNames(t)
	for _, name := range pages {
		page := strings.TrimPrefix(name, "../../../")
		for i, line := range strings.Split(text(t, page), "\n") {
			line, _, _ = strings.Cut(line, "   #") // a comment after a command
			for _, m := range command.FindAllStringSubmatch(line, -1) {
				parsed++
				require.NoError(t, parses(m[1], m[2]), "%s:%d: weft %s%s", page, i+1, m[1], m[2])
			}
			for _, m := range goTest.FindAllStringSubmatch(line, -1) {
				here := strings.Contains(text(t, page), "func "+m[1]+"(")
				require.True(t, here || strings.Contains(tests, m[1]), "%s:%d: no test is called %s", page, i+1, m[1])
			}
		}
	}
	require.Greater(t, parsed, 80)
}

// Every link from one page to another leads to a file, and to a heading where it names one.
func TestLinks(t *testing.T) {
	out, err := exec.Command("git", "-C", "../../..", "ls-files", "*.md").Output()
	if err != nil {
		t.Skip("not in a clone")
	}
	link := regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	for name := range strings.FieldsSeq(string(out)) {
		for _, m := range link.FindAllStringSubmatch(text(t, name), -1) {
			to := name
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(name), m[1])
			}
			_, err := os.Stat("../../../" + to)
			require.NoError(t, err, "%s: %s", name, m[0])
			if m[2] != "" {
				require.Contains(t, anchors(text(t, to)), m[2], "%s: %s", name, m[0])
			}
		}
	}
}

// anchors are the names that headings of a page have in links.
func anchors(page string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")
		names = append(names, regexp.MustCompile("[^a-z0-9_-]").ReplaceAllString(name, ""))
	}
	return names
}

// testNames are the names of all tests and benchmarks.
func testNames(t *testing.T) string {
	out, err := exec.Command("grep", "-rhoE", `^func (Test|Benchmark|Fuzz)\w+`, "--include=*_test.go", "../../..").Output()
	require.NoError(t, err)
	return string(out)
}

// parses parses a command line of weft up to the program that it runs.
func parses(name, line string) error {
	args := []string{"weft", name}
	for _, word := range regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`).FindAllString(line, -1) {
		args = append(args, strings.Trim(word, `'",.:`))
	}
	root := newRoot(commands(args))
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	args, err := commandLine(root, args)
	if err != nil {
		if strings.HasSuffix(err.Error(), " needs a value") {
			err = nil
		}
		return err
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		return nil // of weft bench NAME
	}
	if !slices.ContainsFunc(rest, placeholder) {
		err = cmd.ParseFlags(rest)
		if _, cut := errors.AsType[*pflag.ValueRequiredError](err); cut || errors.Is(err, pflag.ErrHelp) {
			err = nil // the value is on the page's next line, or left out
		}
		return err
	}
	for _, word := range rest {
		name, is := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		if is && cmd.Flags().Lookup(name) == nil {
			return fmt.Errorf("no option --%s", name)
		}
	}
	return nil
}

// placeholder reports whether a word stands for something else, as in -n N.
func placeholder(word string) bool { return regexp.MustCompile(`(^|=)[A-Z]+$`).MatchString(word) }
