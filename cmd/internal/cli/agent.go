package cli

import (
	"github.com/spf13/cobra"

	"github.com/weft-mpi/weft/launcher"
)

const agentName = "agent"

// newAgent returns the command that weft run starts on other hosts.
func newAgent() *cobra.Command {
	var numberIn string
	cmd := &cobra.Command{
		Use:    agentName,
		Short:  "Run the ranks of this host for weft run on another host",
		Args:   noWords,
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return launcher.AgentMain(numberIn) },
	}
	cmd.Flags().StringVar(&numberIn, "number-in", "",
		"`VARIABLE` with the number of this agent among those that one command has started")
	return cmd
}
