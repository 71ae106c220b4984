package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noWords,
		RunE:  func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) },
	}
}

func printVersion(cmd *cobra.Command) error {
	_, err := fmt.Fprintln(cmd.OutOrStdout(), "weft", version())
	return err
}

// release is the latest version in CHANGELOG.md.
const release = "0.1.0"

// version returns the module's version, or the commit from which this program was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown) " + runtime.Version()
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "v" + release + "+devel"
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v = s.Value
			}
		}
	}
	return fmt.Sprintf("%s %s %s/%s", v, info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
