package launcher

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/local"
	"github.com/weft-mpi/weft/launcher/internal/remote"
)

// weftVersion is what both ends of a job must have in common.
func weftVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// AgentMain runs an agent: the process that runs the ranks of one host for a launcher on another. It returns
// when nothing of the job is left on this host. If the starter has started other agents as well, numberIn is
// the name of the environment variable that holds this agent's number, and the agent is a child of this
// process, which goes on until the starter's input ends; otherwise numberIn is empty.
func AgentMain(numberIn string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)
	if numberIn != "" {
		number, err := strconv.ParseUint(os.Getenv(numberIn), 10, 31)
		if err != nil {
			return fmt.Errorf("%s=%q is no agent's number", numberIn, os.Getenv(numberIn))
		}
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("the path of this program: %w", err)
		}
		return remote.Hold(os.Stdin, os.Stdout, int(number), []string{self, "agent"}, signals)
	}
	planner, err := newPlanner()
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	var ranks *local.Agent
	staged := &stager{folder: func() (string, error) { return ranks.TempDir() }}
	return remote.Serve(os.Stdin, os.Stdout, remote.ServerConfig{
		Hello: remote.Hello{Version: weftVersion(), Host: host, Cores: planner.machine.UsableCores(),
			Processors: processorsID(planner.machine)},
		Open: func(job string) (_ agent.Agent, err error) {
			ranks, err = local.New(local.Options{Job: job, Sole: true})
			return ranks, err
		},
		Stage: staged.take,
		Prepare: func(request []byte) ([]byte, error) {
			var r planRequest
			if err := remote.Unmarshal(request, &r); err != nil {
				return nil, err
			}
			staged.wanted = r.Programs
			var reply planReply
			if reply.Plan, err = planner.plan(&r); err != nil {
				reply.Problem = err.Error()
			}
			return remote.Marshal(reply)
		},
		Signals: signals,
	})
}
