package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-mpi/weft/internal/sys"
)

// A command's options are shown in groups, each with a title and an example. The annotation groupOf of an
// option is its group's title; the command's annotation of that name is the group's example.
const groupOf = "group"

// addGroup adds the options that define defines to a command, as a group.
func addGroup(cmd *cobra.Command, title, example string, define func(*pflag.FlagSet)) {
	flags := pflag.NewFlagSet(title, pflag.ContinueOnError)
	flags.SortFlags = false
	define(flags)
	flags.VisitAll(func(f *pflag.Flag) { flags.SetAnnotation(f.Name, groupOf, []string{title}) })
	cmd.Flags().AddFlagSet(flags)
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[title] = example
}

// An optionGroup is a group of options in the help text.
type optionGroup struct {
	title, example string
	options        []option
}

// An option is a flag in the help text.
type option struct{ spelling, meaning string }

// optionsOf returns the visible options of a command, in groups. Those without a group come last.
func optionsOf(cmd *cobra.Command) (groups []optionGroup) {
	rest := optionGroup{title: "Options"}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		o := describe(f)
		of := f.Annotations[groupOf]
		if of == nil {
			rest.options = append(rest.options, o)
			return
		}
		i := slices.IndexFunc(groups, func(g optionGroup) bool { return g.title == of[0] })
		if i < 0 {
			i = len(groups)
			groups = append(groups, optionGroup{title: of[0], example: cmd.Annotations[of[0]]})
		}
		groups[i].options = append(groups[i].options, o)
	})
	if rest.options != nil {
		groups = append(groups, rest)
	}
	return groups
}

// noDefaults are default values that are not shown.
var noDefaults = []string{"", "false", "[]", "0s"}

func describe(f *pflag.Flag) option {
	value, meaning := pflag.UnquoteUsage(f)
	o := option{spelling: "--" + f.Name}
	if f.Shorthand != "" {
		o.spelling = "-" + f.Shorthand + ", " + o.spelling
		if f.Shorthand == f.Name {
			o.spelling = "-" + f.Shorthand
		}
	}
	if value != "" {
		o.spelling += " " + value
	}
	// "none|core: what to bind to" repeats the value, which stands before it already.
	if after, repeated := strings.CutPrefix(meaning, value+": "); repeated && value != "" {
		meaning = after
	}
	o.meaning = meaning
	if d := f.DefValue; !slices.Contains(noDefaults, d) && !strings.Contains(meaning, "(default") {
		o.meaning += fmt.Sprintf(" (default %s)", d)
	}
	return o
}

// The length of a line of help is that of the terminal or, before it, COLUMNS, within these bounds; where
// neither says, it is maxHelpWidth.
const minHelpWidth, maxHelpWidth = 50, 100

func helpWidth() int {
	width, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil {
		width = sys.TerminalWidth(int(os.Stdout.Fd()))
	}
	if width <= 0 {
		return maxHelpWidth
	}
	return min(max(width, minHelpWidth), maxHelpWidth)
}

// fill breaks a paragraph into lines of at most width.
func fill(paragraph string, width int) string {
	var b strings.Builder
	used := 0
	for word := range strings.FieldsSeq(paragraph) {
		n := utf8.RuneCountInString(word)
		switch {
		case used == 0:
		case used+1+n > width:
			b.WriteByte('\n')
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}

// fit fills the paragraphs that have longer lines than width, but for tables.
func fit(text string, width int) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		long := slices.ContainsFunc(strings.Split(p, "\n"), func(line string) bool {
			return utf8.RuneCountInString(line) > width
		})
		if long && !strings.Contains(p, "   ") {
			paragraphs[i] = fill(p, width)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// printHelp prints a command's purpose, its usage, its options in groups, and then the details.
func printHelp(w io.Writer, cmd *cobra.Command) {
	about, details, _ := strings.Cut(strings.TrimSpace(cmd.Long), "\n\n")
	if about == "" {
		about = cmd.Short
	}
	width := helpWidth()
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", fit(about, width), cmd.UseLine())
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintln(w, "\nCommands:")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(w, "  %-*s  %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	for _, g := range optionsOf(cmd) {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		if g.example != "" {
			fmt.Fprintf(w, "  Example: %s\n", g.example)
		}
		for _, o := range g.options {
			o.print(w, width)
		}
	}
	if details != "" {
		fmt.Fprintf(w, "\n%s\n", fit(details, width))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s COMMAND --help tells more about a command.\n", cmd.CommandPath())
	}
}

// print prints the option with its meaning beside it, in lines of at most width.
func (o option) print(w io.Writer, width int) {
	const indent, column = 2, 28
	line := strings.Repeat(" ", indent) + o.spelling
	if !strings.HasPrefix(o.spelling, "-") || strings.HasPrefix(o.spelling, "--") {
		line = strings.Repeat(" ", indent+4) + o.spelling
	}
	if len(line)+2 > column {
		fmt.Fprintln(w, line)
		line = ""
	}
	for meaning := range strings.SplitSeq(fill(o.meaning, width-column), "\n") {
		fmt.Fprintf(w, "%-*s%s\n", column, line, meaning)
		line = ""
	}
}

// plainUsage removes the quotes in the usage of all options, for output that weft does not print itself.
func plainUsage(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = describe(f).meaning })
	for _, c := range cmd.Commands() {
		plainUsage(c)
	}
}
