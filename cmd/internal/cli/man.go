package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// newMan returns the command that writes the manual pages.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man FOLDER",
		Short:   "Write manual pages of all commands into a folder",
		Example: "  weft man ~/.local/share/man/man1\n  weft man /usr/local/share/man/man1",
		Args:    words("folder", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return fmt.Errorf("the folder for manual pages: %w", err)
			}
			pages := 0
			if err := writePages(args[0], cmd.Root(), &pages); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d manual pages are in %s\n", pages, args[0])
			return err
		},
	}
}

// writePages writes the pages of a command and of its subcommands, and counts them.
func writePages(folder string, cmd *cobra.Command, pages *int) error {
	*pages++
	cmd.InitDefaultHelpFlag()
	f, err := os.Create(filepath.Join(folder, pageName(cmd)+".1"))
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	writePage(out, cmd)
	err = out.Flush()
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		if err := writePages(folder, c, pages); err != nil {
			return err
		}
	}
	return nil
}

// pageName returns weft-run for "weft run".
func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// writePage writes the page of a command in the language of man(7). It depends on the version alone.
func writePage(w io.Writer, cmd *cobra.Command) {
	name := pageName(cmd)
	fmt.Fprintf(w, ".TH \"%s\" \"1\" \"\" \"%s\" \"weft\"\n", roff(strings.ToUpper(name)),
		roff("weft "+version()))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	fmt.Fprintf(w, ".SH SYNOPSIS\n\\fB%s\\fR\n", roff(cmd.UseLine()))
	fmt.Fprintln(w, ".SH DESCRIPTION")
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	for i, paragraph := range strings.Split(strings.TrimSpace(about), "\n\n") {
		if i > 0 {
			fmt.Fprintln(w, ".PP")
		}
		if strings.Contains(paragraph, "   ") { // a table
			fmt.Fprintf(w, ".nf\n%s\n.fi\n", roff(paragraph))
			continue
		}
		fmt.Fprintln(w, roff(paragraph))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintln(w, ".SH COMMANDS")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(w, ".TP\n\\fB%s\\fR\n%s\n", roff(c.Name()), roff(c.Short))
			}
		}
	}
	if groups := optionsOf(cmd); len(groups) > 0 {
		fmt.Fprintln(w, ".SH OPTIONS")
		for _, g := range groups {
			if len(groups) > 1 {
				fmt.Fprintf(w, ".SS %s\n", roff(g.title))
			}
			for _, o := range g.options {
				fmt.Fprintf(w, ".TP\n\\fB%s\\fR\n%s\n", roff(o.spelling), roff(o.meaning))
			}
			if g.example != "" {
				fmt.Fprintf(w, ".PP\nExample: %s\n", roff(g.example))
			}
		}
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, pageName(cmd.Parent()))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			others = append(others, pageName(c))
		}
	}
	for i, other := range others {
		others[i] = "\\fB" + roff(other) + "\\fR(1)"
	}
	fmt.Fprintf(w, ".SH SEE ALSO\n%s\n", strings.Join(others, ", "))
}

// roff escapes text for man(7): backslashes, hyphens, and lines that look like requests.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
