// Package cli is the command line of weft: its commands, their flags, and exit statuses. It is no part of
// package main, which is compiled with a profile: so would be its tests, with everything that they import.
package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-mpi/weft/bench"
	"github.com/weft-mpi/weft/internal/printable"
	"github.com/weft-mpi/weft/launcher"
)

// exitStatus is an error that has already been printed, and now only sets the exit status.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// The statuses of weft itself: usage for an invalid command line, failed for everything else.
const (
	failed = exitStatus(1)
	usage  = exitStatus(2)
)

// A usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usageErrorf(text string, args ...any) error { return usageError{fmt.Errorf(text, args...)} }

// Main runs the command line of this process, and exits.
func Main() {
	launcher.Watchdog()
	os.Exit(execute(os.Args))
}

func execute(args []string) int {
	root := newRoot(commands(args))
	args, err := commandLine(root, args)
	if err == nil {
		if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
			plainUsage(root)
			completeValues(root)
		}
		root.SetArgs(args)
		err = root.Execute()
	}
	if err == nil {
		return 0
	}
	if status, told := err.(exitStatus); told {
		return int(status)
	}
	warn(err.Error())
	if _, invalid := errors.AsType[usageError](err); invalid {
		return int(usage)
	}
	return int(failed)
}

// commandLine returns the arguments for cobra: it turns mpirun and mpiexec into "weft run", and other
// launchers' spellings into those that cobra knows.
func commandLine(root *cobra.Command, args []string) ([]string, error) {
	switch filepath.Base(args[0]) {
	case "mpirun", "mpiexec":
		args = append([]string{"run"}, args[1:]...)
	default:
		args = args[1:]
	}
	root.InitDefaultHelpCmd()
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") &&
		!strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		if named, _, err := root.Find(args[:1]); err != nil || named == root {
			return nil, root.Args(root, args[:1]) // before an option of what was meant is refused
		}
	}
	if len(args) == 0 || args[0] != "run" {
		return args, nil
	}
	run, _, err := root.Find([]string{"run"})
	if err != nil {
		return nil, err
	}
	rest, err := respell(run.Flags(), args[1:], warn)
	if err != nil {
		return nil, usageError{err}
	}
	return append([]string{"run"}, rest...), nil
}

// warn prints a warning, each line with weft's prefix.
func warn(text string) {
	fmt.Fprintln(os.Stderr, printable.Text("weft: "+strings.ReplaceAll(text, "\n", "\nweft: ")))
}

// commands returns the commands that a command line may use. Those that start with a job or its ranks omit
// the others, because defining their options takes longer than starting an agent.
func commands(args []string) []*cobra.Command {
	switch {
	case len(args) > 1 && args[1] == agentName:
		return []*cobra.Command{newAgent()}
	case len(args) > 1 && args[1] == "run":
		return []*cobra.Command{newRun()}
	case len(args) > 2 && args[1] == "bench":
		for i, b := range bench.All {
			if b.Name == args[2] {
				return []*cobra.Command{newBench(bench.All[i : i+1])}
			}
		}
	}
	return []*cobra.Command{newRun(), newTop(), newShow(), newAgent(), newBench(bench.All), newInfo(),
		newMan(), newCompletion(), newVersion()}
}

const rootShort = "Message passing for Go: start the ranks of a job, watch them, measure"

func newRoot(commands []*cobra.Command) *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:           "weft COMMAND",
		Short:         rootShort,
		Long:          rootShort + ".\n\nThe tutorial: https://github.com/weft-mpi/weft/blob/main/docs/tutorial.md",
		Example:       "  weft run -n 4 ./program\n  weft run -n 4 .",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          subcommand("command"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return printVersion(cmd)
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "print the version")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		invalid, is := errors.AsType[*pflag.InvalidValueError](err)
		if is && invalid.GetFlag().NoOptDefVal != "" {
			return usageErrorf("--%s=%s: it takes no value: write --%[1]s", invalid.GetFlag().Name,
				invalid.GetValue())
		}
		unknown, is := errors.AsType[*pflag.NotExistError](err)
		err = optionError(err)
		if !is {
			return usageError{err}
		}
		if !cmd.HasParent() {
			return usageErrorf("%w; the options of a job follow run: weft run -n 2 ./program", err)
		}
		return usageErrorf("%w%s; %s --help lists all options", err,
			suggestion(cmd.Flags(), unknown.GetSpecifiedName()), cmd.CommandPath())
	})
	root.SetOut(os.Stdout)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { printHelp(cmd.OutOrStdout(), cmd) })
	root.AddCommand(commands...)
	if len(commands) > 1 { // a single command needs none
		root.SetHelpCommand(newHelp())
	}
	root.CompletionOptions.DisableDefaultCmd = true // newCompletion has weft's own
	finish(root)
	return root
}

// optionError returns an error of pflag, which calls options flags, in the words of weft.
func optionError(err error) error {
	if e, is := errors.AsType[*pflag.NotExistError](err); is {
		if e.GetSpecifiedShortnames() != "" {
			return fmt.Errorf("unknown option -%s", e.GetSpecifiedName())
		}
		return fmt.Errorf("unknown option --%s", e.GetSpecifiedName())
	}
	if e, is := errors.AsType[*pflag.ValueRequiredError](err); is {
		return fmt.Errorf("option --%s needs a value", e.GetFlag().Name)
	}
	if e, is := errors.AsType[*pflag.InvalidValueError](err); is {
		name := "--" + e.GetFlag().Name
		if short := e.GetFlag().Shorthand; short != "" {
			name = "-" + short + ", " + name
		}
		return fmt.Errorf("invalid value %q for %q: %w", e.GetValue(), name, e.Unwrap())
	}
	return err
}

// finish makes the usage lines end like those of the commands.
func finish(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true
	for _, c := range cmd.Commands() {
		finish(c)
	}
}
