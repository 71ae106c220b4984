package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/weft-mpi/weft/launcher"
)

// hosts parses the options that say where ranks run.
func (o *jobOptions) hosts(job *launcher.Job) (err error) {
	if job.Hosts, err = o.named(); err != nil {
		return err
	}
	if job.MapBy, err = launcher.ParseMapping(o.mapBy); err != nil {
		return fmt.Errorf("--map-by: %w", err)
	}
	if o.starter != "" {
		if o.launcher != "" {
			return errors.New("--launcher and --starter: both say how agents are started; leave one out")
		}
		if job.Starter, err = launcher.ParseStarter(o.starter); err != nil {
			return fmt.Errorf("--starter: %w", err)
		}
	}
	job.AgentPath = o.agentPath
	if err := o.chooseLauncher(job); err != nil || job.Hosts != nil {
		return err
	}
	for _, option := range []struct {
		name  string
		given bool
	}{
		{"--launcher ssh", o.launcher == "ssh"}, {"--starter", o.starter != ""},
		{"--agent-path", o.agentPath != ""}, {"--stage", o.stage},
		{"--fan-out", o.fanOut > 0},
		{"--map-by", o.mapBy != ""},
		{"--min", o.min > 0},
	} {
		if option.given {
			return fmt.Errorf("%s concerns ranks on several hosts, and none is named: add --host or "+
				"--hostfile", option.name)
		}
	}
	return nil
}

// namedByEnvironment is the variable of MPICH's Hydra that names a hostfile; Kubeflow's MPI operator sets it.
const namedByEnvironment = "HYDRA_HOST_FILE"

// given is the value of an option that must not be empty, as it is if a script's variable has no value.
type given string

func (g *given) String() string { return string(*g) }
func (g *given) Type() string   { return "string" }

func (g *given) Set(value string) error {
	if value == "" {
		return errors.New("no host is named")
	}
	*g = given(value)
	return nil
}

// named returns the hosts of --host or --hostfile, or of the environment's hostfile.
func (o *jobOptions) named() ([]launcher.Host, error) {
	switch {
	case o.host != "" && o.hostfile != "":
		return nil, errors.New("--host and --hostfile: one of them names the hosts; leave one out")
	case o.host != "":
		hosts, err := launcher.ParseHosts(string(o.host))
		if err != nil {
			return nil, fmt.Errorf("--host: %w", err)
		}
		return hosts, nil
	case o.hostfile != "":
		return readHostfile("--hostfile", string(o.hostfile))
	case os.Getenv(namedByEnvironment) != "" && o.launcher != "local":
		return readHostfile(namedByEnvironment, os.Getenv(namedByEnvironment))
	}
	return nil, nil
}

// readHostfile reads a hostfile; origin is the option or variable that named it.
func readHostfile(origin, name string) ([]launcher.Host, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", origin, err)
	}
	defer f.Close()
	hosts, err := launcher.ParseHostfile(f, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", origin, err)
	}
	return hosts, nil
}
