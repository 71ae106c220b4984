package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan is the command that writes the manual pages.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man FOLDER",
		Short:   "Write manual pages of all commands into a folder",
		Example: "  weft man /usr/local/share/man/man1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return fmt.Errorf("the folder for manual pages: %w", err)
			}
			header := &doc.GenManHeader{Title: "WEFT", Section: "1", Source: "weft", Manual: "weft"}
			return doc.GenManTree(cmd.Root(), header, args[0])
		},
	}
}
