package cli

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/setting"
)

var update = flag.Bool("update", false, "write docs/reference/commands.md and settings.md anew")

// docs/reference/commands.md and settings.md say what the commands and the table of settings say:
// go test ./cmd/... -run TestReference -update writes them.
func TestReference(t *testing.T) {
	for name, write := range map[string]func(io.Writer){"commands": writeCommands, "settings": writeSettings} {
		var page strings.Builder
		write(&page)
		file := "../../../docs/reference/" + name + ".md"
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(page.String()), 0o666))
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, page.String(), string(text), "%s: run this test with -update", file)
	}
}

// The version that is printed is the latest of CHANGELOG.md, and README names it.
func TestVersion(t *testing.T) {
	latest := regexp.MustCompile(`(?m)^## ((\d+\.\d+)\.\d+),`).FindStringSubmatch(text(t, "CHANGELOG.md"))
	require.Len(t, latest, 3)
	require.Equal(t, latest[1], release)
	require.Contains(t, text(t, "README.md"), "Version "+latest[2]+",")
	require.NotContains(t, version(), "(devel)")
}

func writeSettings(w io.Writer) {
	fmt.Fprint(w, "# Settings\n\nRanks read these variables of the environment. `weft run -x NAME=VALUE` sets one "+
		"for all ranks, and `weft\ninfo --settings` prints this table. In a test, `mpitest.Config` sets them. A name "+
		"that does not exist is\nwarned about.\n\n| variable | default | meaning |\n|---|---|---|\n")
	for _, s := range setting.All {
		value := s.Default
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", s.Name, value, cell(s.Meaning))
	}
}

// cell is text in a table of Markdown.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func writeCommands(w io.Writer) {
	fmt.Fprint(w, "# Commands\n\nThis is what `--help` prints; `weft man FOLDER` writes manual pages of it, and "+
		"`weft completion SHELL` the\ncompletions of a shell. `mpirun` and `mpiexec`, as links to weft, are `weft run`.\n")
	root := newRoot(commands([]string{"weft"}))
	for _, c := range root.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" {
			continue
		}
		writeCommand(w, c)
		writeOptions(w, optionsOf(c), nil)
		if c.Name() == "bench" {
			writeBenchmarks(w, c)
		}
	}
}

// writeCommand writes what a command is, and its details.
func writeCommand(w io.Writer, c *cobra.Command) {
	about := c.Long
	if about == "" {
		about = c.Short + "."
	}
	first, details, _ := strings.Cut(strings.TrimSpace(about), "\n\n")
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n```\n%s\n", c.CommandPath(), first, c.UseLine())
	if c.HasExample() {
		fmt.Fprintf(w, "\n%s\n", c.Example)
	}
	fmt.Fprintln(w, "```")
	for paragraph := range strings.SplitSeq(details, "\n\n") {
		if strings.Contains(paragraph, "   ") { // a table
			paragraph = "```\n" + paragraph + "\n```"
		}
		if paragraph != "" {
			fmt.Fprintf(w, "\n%s\n", paragraph)
		}
	}
}

// writeOptions writes a command's options, but for those that are skipped, in tables.
func writeOptions(w io.Writer, groups []optionGroup, skip func(option) bool) {
	for _, g := range groups {
		g.options = slices.DeleteFunc(g.options, func(o option) bool {
			return strings.HasPrefix(o.meaning, "help for ") || o.meaning == "print the version" ||
				skip != nil && skip(o)
		})
		if len(g.options) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n| %s | |\n|---|---|\n", strings.ToLower(g.title))
		for _, o := range g.options {
			fmt.Fprintf(w, "| `%s` | %s |\n", cell(o.spelling), cell(o.meaning))
		}
		if g.example != "" {
			fmt.Fprintf(w, "\n    %s\n", g.example)
		}
	}
}

// writeBenchmarks writes the names of the benchmarks, the options of the first one, and what options others have.
func writeBenchmarks(w io.Writer, bench *cobra.Command) {
	fmt.Fprint(w, "\n| name | what it measures |\n|---|---|\n")
	for _, c := range bench.Commands() {
		fmt.Fprintf(w, "| `%s` | %s |\n", c.Name(), cell(c.Short))
	}
	fmt.Fprintln(w, "\nOptions of most benchmarks:")
	latency, _, _ := bench.Find([]string{"latency"})
	known := map[string]bool{}
	for _, o := range optionsOf(latency)[0].options {
		known[o.spelling] = true
	}
	writeOptions(w, optionsOf(latency), nil)
	fmt.Fprint(w, "\n| more options | of | |\n|---|---|---|\n")
	for _, more := range moreOptions(bench, known) {
		fmt.Fprintln(w, more)
	}
}

// moreOptions are rows of the options that are not known, each with the benchmarks that have it.
func moreOptions(bench *cobra.Command, known map[string]bool) (rows []string) {
	var options []option
	of := map[option][]string{}
	for _, c := range bench.Commands() {
		for _, g := range optionsOf(c) {
			for _, o := range g.options {
				if known[o.spelling] || strings.HasPrefix(o.meaning, "help for ") {
					continue
				}
				if of[o] == nil {
					options = append(options, o)
				}
				of[o] = append(of[o], c.Name())
			}
		}
	}
	for _, o := range options {
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", cell(o.spelling), strings.Join(of[o], ", "),
			cell(o.meaning)))
	}
	return rows
}
