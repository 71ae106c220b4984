package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/weft-mpi/weft/internal/allocation"
	"github.com/weft-mpi/weft/launcher"
)

// batchSystems are the values of --launcher that stand for a batch system: the hosts are those that it has
// given, and it starts the agents. srun starts all of them at once, in the order of its list.
var batchSystems = []struct{ option, engine, starter string }{
	{"slurm", "Slurm", "srun --overlap --nodes={count} --ntasks={count} --distribution=arbitrary " +
		"--nodelist={hosts}"},
	{"sge", "Grid Engine", "qrsh -inherit {host}"},
	{"lsf", "LSF", "blaunch {host}"},
	{"pbs", "PBS", "pbs_tmrsh {host}"},
}

// hosts reads the options that say where ranks run.
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

// given is the value of an option that may not be empty, as it is where a script's variable has no value.
type given string

func (g *given) String() string { return string(*g) }
func (g *given) Type() string   { return "string" }

func (g *given) Set(value string) error {
	if value == "" {
		return errors.New("it names no host")
	}
	*g = given(value)
	return nil
}

// named are the hosts of --host or --hostfile, or else of the environment's hostfile.
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

// readHostfile reads a hostfile; origin says who has named it.
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

// chooseLauncher settles what starts the agents of other hosts. Inside an allocation that is the
// batch system, and the hosts are its, unless the user has said otherwise.
func (o *jobOptions) chooseLauncher(job *launcher.Job) error {
	switch o.launcher {
	case "ssh":
		return nil
	case "local":
		if job.Hosts != nil {
			return errors.New("--launcher local: ranks of other hosts cannot be started locally; leave " +
				"it out")
		}
		return nil
	}
	given, err := allocation.Detect(allocation.Source{Getenv: os.Getenv, ReadFile: os.ReadFile})
	for _, b := range batchSystems {
		isGiven := err == nil && given != nil && given.Engine == b.engine
		switch {
		case o.launcher == "" && o.starter == "" && isGiven:
			return o.useAllocation(job, given, b.starter)
		case o.launcher != b.option:
			continue
		case err != nil:
			return fmt.Errorf("--launcher %s: %w", o.launcher, err)
		case !isGiven:
			return fmt.Errorf("--launcher %s: this is no job of %s: weft info --why tells what the "+
				"environment says",
				o.launcher, b.engine)
		}
		return o.useAllocation(job, given, b.starter)
	}
	if err != nil && o.launcher == "" && job.Hosts == nil {
		warn(fmt.Sprintf("%v: the ranks run on this host", err))
	}
	if o.launcher != "" {
		return fmt.Errorf("--launcher %s: local, ssh, slurm, sge, lsf and pbs are known; --starter takes "+
			"the "+
			"command of any other", o.launcher)
	}
	return nil
}

// useAllocation has the ranks run where a batch system lets them. If that is this host alone, no agent is
// needed.
func (o *jobOptions) useAllocation(job *launcher.Job, given *allocation.Allocation,
	starter string) (err error) {
	if job.Hosts == nil {
		for _, h := range given.Hosts {
			job.Hosts = append(job.Hosts, launcher.Host{Name: h.Name, Slots: h.Slots})
		}
		if len(job.Hosts) == 1 && o.launcher == "" && launcher.IsThisHost(job.Hosts[0].Name) {
			return nil
		}
	}
	job.Starter, err = launcher.ParseStarter(starter)
	return err
}
