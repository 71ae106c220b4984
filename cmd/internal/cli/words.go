package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-mpi/weft/internal/spelling"
)

// noWords returns an error if a command without arguments has any.
func noWords(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%s takes no argument: %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// words requires between least and most arguments, each of the kind that is named.
func words(kind string, least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usageErrorf("which %s? write %s", kind, cmd.UseLine())
		case len(args) > most:
			return usageErrorf("one %s at most, not also %q; write %s", kind, args[most], cmd.UseLine())
		}
		return nil
	}
}

// subcommand returns an error for an unknown subcommand, and names the most similar one.
func subcommand(kind string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		meant, name := "", spelling.Nearest(args[0], names)
		for _, c := range cmd.Commands() {
			if slices.Contains(c.SuggestFor, args[0]) {
				name = c.Name()
			}
		}
		if name != "" {
			meant = fmt.Sprintf(" (did you mean %s?)", name)
		}
		return usageErrorf("unknown %s %q%s; %s --help lists all", kind, args[0], meant, cmd.CommandPath())
	}
}

// newHelp returns the command that prints the --help text of a named command.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]…",
		Short: "Print the help of a command",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			var names []cobra.Completion
			if about, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, c := range about.Commands() {
					if c.IsAvailableCommand() {
						names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = usageErrorf("%s has no command %q; %[1]s --help lists all", about.CommandPath(),
					strings.Join(rest, " "))
				if about.Args != nil && about.HasAvailableSubCommands() {
					err = about.Args(about, rest)
				}
			}
			if err != nil {
				return err
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}
