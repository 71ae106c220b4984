package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-mpi/weft/bench"
	"github.com/weft-mpi/weft/internal/live"
	"github.com/weft-mpi/weft/internal/printable"
	"github.com/weft-mpi/weft/transport/fabrics"
)

// shells are the arguments of weft completion, each with what writes its script.
var shells = []struct {
	name  string
	write func(root *cobra.Command) error
}{
	{"bash", func(root *cobra.Command) error { return root.GenBashCompletionV2(root.OutOrStdout(), true) }},
	{"zsh", func(root *cobra.Command) error { return root.GenZshCompletion(root.OutOrStdout()) }},
	{"fish", func(root *cobra.Command) error { return root.GenFishCompletion(root.OutOrStdout(), true) }},
	{"powershell", func(root *cobra.Command) error {
		return root.GenPowerShellCompletionWithDesc(root.OutOrStdout())
	}},
}

const completionHelp = `Print the script by which a shell completes the commands, options and values of weft.

bash needs its package bash-completion, and zsh the folder of the script in fpath, before compinit. A new
shell reads the script.`

// newCompletion returns the command that prints the completions of a shell.
func newCompletion() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completions of a shell: bash, zsh, fish or powershell",
		Long:  completionHelp,
		Example: "  weft completion bash > ~/.local/share/bash-completion/completions/weft\n" +
			"  weft completion zsh > ~/.zfunc/_weft\n" +
			"  weft completion fish > ~/.config/fish/completions/weft.fish",
		Args: words("shell", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, s := range shells {
				if s.name == args[0] {
					return s.write(cmd.Root())
				}
			}
			return usageErrorf("unknown shell %q; it is %s", args[0], strings.Join(cmd.ValidArgs, ", "))
		},
	}
	for _, s := range shells {
		cmd.ValidArgs = append(cmd.ValidArgs, s.name)
	}
	return cmd
}

// completeValues makes the shell complete the values of options that are words, of a command and of its
// subcommands.
func completeValues(cmd *cobra.Command) {
	names := []string{fabrics.Auto}
	for _, f := range fabrics.All {
		names = append(names, f.Name)
	}
	words := map[string][]string{
		"fabric": names, "bind-to": {"none", "core", "numa", "socket"}, "cq-cores": {"none", "auto"},
		"map-by":  {"core", "node", "ppr:"},
		"profile": profiles, "stdin": {"all", "none"},
		"launcher":     {"local", "ssh"},
		"stuck-action": {"report", "abort", "abort-unmoved"}, "endpoints": {"auto"},
		"sync": {"flush", "lock", "fence"}, "alloc": {"heap", "registered"}, "shape": bench.Shapes,
		"call": bench.Calls,
	}
	for _, b := range batchSystems {
		words["launcher"] = append(words["launcher"], b.option)
	}
	for option, list := range words {
		// It fails only for an option that the command does not have.
		offer := cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
		cmd.RegisterFlagCompletionFunc(option, offer)
	}
	for _, c := range cmd.Commands() {
		completeValues(c)
	}
}

// completeJobs offers the jobs that weft top can show.
func completeJobs(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var jobs []cobra.Completion
	if len(args) == 0 {
		all, _ := live.Find()
		for _, w := range all {
			jobs = append(jobs, cobra.CompletionWithDesc(strconv.Itoa(w.Job.PID), printable.Line(w.Job.Name)))
			w.Close()
		}
	}
	return jobs, cobra.ShellCompDirectiveNoFileComp
}
