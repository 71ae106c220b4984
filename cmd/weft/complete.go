package main

import (
	"github.com/spf13/cobra"

	"github.com/weft-mpi/weft/transport/fabrics"
)

// completeValues makes the shell complete the values of options that are words.
func completeValues(cmd *cobra.Command) {
	names := []string{fabrics.Auto}
	for _, f := range fabrics.All {
		names = append(names, f.Name)
	}
	words := map[string][]string{
		"fabric": names, "bind-to": {"none", "core", "numa", "socket"}, "cq-cores": {"none", "auto"},
		"map-by":  {"core", "node", "ppr:"},
		"profile": profiles, "stdin": {"all", "none"},
		"launcher": {"local", "ssh"},
	}
	for _, b := range batchSystems {
		words["launcher"] = append(words["launcher"], b.option)
	}
	for option, list := range words {
		// It fails only for an option that does not exist.
		offer := cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
		cmd.RegisterFlagCompletionFunc(option, offer)
	}
}
