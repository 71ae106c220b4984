package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/weft-mpi/weft/internal/allocation"
	"github.com/weft-mpi/weft/launcher"
)

// batchSystems are the values of --launcher for batch systems, which provide the hosts and start the agents.
// srun starts all of them at once, in the order of its list. When one is lost, weft decides about the others,
// whatever the site's default is.
var batchSystems = []struct{ option, engine, starter string }{
	{"slurm", "Slurm", "srun --overlap --no-kill --kill-on-bad-exit=0 --wait=0 --nodes={count} " +
		"--ntasks={count} --distribution=arbitrary --nodelist={hosts}"},
	{"sge", "Grid Engine", "qrsh -inherit {host}"},
	{"lsf", "LSF", "blaunch {host}"},
	{"pbs", "PBS", "pbs_tmrsh {host}"},
}

// chooseLauncher chooses the command that starts the agents of other hosts: ssh, or inside an allocation the
// batch system's, which also provides the hosts, unless the user has chosen otherwise.
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
			return fmt.Errorf("--launcher %s: this is not a job of %s: weft info --why shows what the "+
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

// useAllocation makes the ranks run on the hosts of an allocation. If that is this host alone, no agent is
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
