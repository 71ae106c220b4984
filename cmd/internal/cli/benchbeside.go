package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weft-mpi/weft/bench"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/launcher"
)

// runBeside runs a benchmark first with each baseline setting, and then with words as arguments, and shows
// the results side by side. If the user has chosen a fabric, all jobs use it: jobs for another fabric do not
// run.
func runBeside(cmd *cobra.Command, b *bench.Benchmark, ranks int, fabric string, words []string) error {
	if len(b.Besides) == 0 {
		job, err := selfJob(ranks, words)
		if err != nil {
			return err
		}
		if b.Unbound {
			job.BindTo.To = launcher.BindNone
		}
		return run(cmd, job)
	}
	dir, err := os.MkdirTemp("", "weft-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	_, chosen := os.LookupEnv(setting.Fabric.Name)
	chosen = chosen || fabric != ""
	var beside []string
	for i, settings := range b.Besides {
		report := ""
		if settings[setting.Fabric.Name] == "" || !chosen {
			report = filepath.Join(dir, fmt.Sprintf("%d.json", i))
			before := []string{"bench", b.Name, "--json", report}
			if fabric != "" {
				before = append(before, "--fabric", fabric)
			}
			if err := runUnder(cmd, settings, ranks, before); err != nil {
				return err
			}
		}
		beside = append(beside, "--"+besideFlag+"="+report)
	}
	return runSelf(cmd, ranks, withOptions(words, b.Name, beside))
}

// withOptions returns the arguments of a benchmark, with options after its name.
func withOptions(words []string, name string, options []string) []string {
	return slices.Insert(slices.Clone(words), slices.Index(words, name)+1, options...)
}

// runUnder runs this executable as the ranks of a job under settings, without its standard output.
func runUnder(cmd *cobra.Command, settings map[string]string, ranks int, words []string) error {
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer nowhere.Close()
	job, err := selfJob(ranks, words)
	if err != nil {
		return err
	}
	job.Out = nowhere
	for name, value := range settings {
		job.Env = append(job.Env, name+"="+value)
	}
	return run(cmd, job)
}
