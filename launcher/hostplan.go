package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-mpi/weft/internal/route"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/internal/build"
	"github.com/weft-mpi/weft/launcher/internal/placement"
)

// A planRequest is what a host's plan is made from: how many ranks of the job run there, and what the user
// wants for them. Agents of other hosts receive it from the launcher.
type planRequest struct {
	Ranks int
	// Beside is how many ranks other hosts of the job have on the same processors (see processorsID). The
	// plan places them, too, after this host's ranks.
	Beside  int
	Placed  bool // another host of the job has placed this host's ranks
	Binding Binding
	CQCores CQCores
	Each    int // cores for each rank, as Job.CoresPerRank
	// endpoints of each rank (see Job.Endpoints); 0 for as many as it has cores
	Endpoints int
	Programs  []programRequest // by program of the job; nil where the launcher itself has found them
	Peers     []string         // some of the job's other hosts with ranks; empty if there are none
}

// programRequest is a program that must exist before any rank starts.
type programRequest struct {
	Name string // a command, or the path of a file; empty where the host needs no such program
	Dir  string // the folder to start it in
	Hash string // of what is to be copied to a host that does not have it; else empty
	// AnyDir, on a host that has no such folder, starts the program where the host's agent runs.
	AnyDir bool
	Away   bool // this host is not the launcher's
	There  bool // the launcher's host has such a file
}

// A plan says how a host runs its ranks.
type plan struct {
	Cores        [][]int // that ranks can have: the processors of each
	CPUs         [][]int // as in placement.Placement, by the ranks of this host
	Handlers     [][]int
	CoresPerRank int
	// endpoints of each rank; the launcher settles their number when all hosts have planned
	Endpoints int `json:"-"`
	Unbound   string
	OwnCore   bool
	Notes     []string
	Files     []string // by program of the job: what is executed
	// by program of the job: the folder to start it in, if that is not the one that was asked for
	Dirs    []string
	Missing []int // the programs that have to be copied to this host
	// at which the job's other hosts reach this one, as a CIDR; empty where there are none
	Interface string
	Problems  []string // why the job cannot run here
	// The exit status that a shell would give if one of Problems is a program's: 126 or 127; else 0.
	ProgramStatus int
}

// problem returns why the job cannot run on a host, or nil.
func (p *plan) problem(host string) error {
	if len(p.Problems) == 0 {
		return nil
	}
	text := fmt.Sprintf("host %s: %s", host, strings.Join(p.Problems, "; "))
	if p.ProgramStatus != 0 {
		return &ProgramError{Status: p.ProgramStatus, What: text}
	}
	return errors.New(text)
}

// check checks a plan of another host.
func (p *plan) check(r *planRequest) error {
	ranks := r.Ranks + r.Beside
	if n := len(p.CPUs); p.CPUs != nil && n != ranks {
		return fmt.Errorf("processors for %d ranks of %d", n, ranks)
	}
	if n := len(p.Handlers); p.Handlers != nil && n != ranks {
		return fmt.Errorf("completion handlers for %d ranks of %d", n, ranks)
	}
	for _, list := range slices.Concat(p.Cores, p.CPUs, p.Handlers) {
		if len(list) == 0 || slices.Min(list) < 0 || slices.Max(list) >= maxProcessors {
			return fmt.Errorf("%v for processors, which are from 0 to %d", list, maxProcessors-1)
		}
	}
	if p.CoresPerRank < 0 || p.CoresPerRank > maxProcessors {
		return fmt.Errorf("%d cores for each rank", p.CoresPerRank)
	}
	if n := len(p.Files); n != len(r.Programs) {
		return fmt.Errorf("files for %d programs of %d", n, len(r.Programs))
	}
	if n := len(p.Dirs); n > 0 && n != len(r.Programs) {
		return fmt.Errorf("folders for %d programs of %d", n, len(r.Programs))
	}
	for _, i := range p.Missing {
		if i < 0 || i >= len(r.Programs) || r.Programs[i].Hash == "" {
			return fmt.Errorf("program %d is to be copied, which was not offered", i)
		}
	}
	if s := p.ProgramStatus; s != 0 && s != 126 && s != 127 {
		return fmt.Errorf("status %d for a program that cannot run", s)
	}
	if p.Interface != "" {
		if _, err := netip.ParsePrefix(p.Interface); err != nil {
			return err
		}
	}
	return nil
}

// maxProcessors is larger than the largest CPU number.
const maxProcessors = 1 << 16

// boundTo describes a rank's binding.
func (p *plan) boundTo(rank int) string {
	switch {
	case p.CPUs != nil:
		return "bound to " + placement.Processors(p.CPUs[rank])
	case p.Unbound != "":
		return fmt.Sprintf("not bound (%s)", p.Unbound)
	}
	return "not bound"
}

// handledOn describes where a rank's completion handlers run.
func (p *plan) handledOn(rank int) string {
	switch {
	case p.Handlers == nil && p.Endpoints > 1:
		return fmt.Sprintf("%d endpoints, no completion handlers", p.Endpoints)
	case p.Handlers == nil:
		return "no completion handler"
	case p.Endpoints < 2:
		return "completion handler on " + placement.Processors(p.Handlers[rank])
	}
	text := "completion handlers of endpoints"
	for i := range p.Endpoints {
		text += fmt.Sprintf(" %d on %d,", i, p.Handlers[rank][i%len(p.Handlers[rank])])
	}
	return strings.TrimSuffix(text, ",")
}

// A planner makes the plan of this host, and holds the locks on the ranks' CPUs.
type planner struct {
	machine *topology.Machine
	locks   *placement.Locks
}

func newPlanner() (*planner, error) {
	machine, err := topology.Read()
	if err != nil {
		return nil, err
	}
	return &planner{machine: machine, locks: placement.NewLocks()}, nil
}

// plan places the ranks and finds their programs. The error is for the user.
func (p *planner) plan(r *planRequest) (*plan, error) {
	out := new(plan)
	if r.Ranks > 0 {
		out.Cores = p.machine.Cores
	}
	if r.Ranks > 0 && !r.Placed {
		place, err := p.locks.Place(placement.Request{
			Machine: p.machine, Ranks: r.Ranks + r.Beside, Each: r.Each, Binding: r.Binding, CQ: r.CQCores,
			Handlers: r.Endpoints,
		})
		if err != nil {
			return nil, &RequestError{err.Error()}
		}
		out.take(place)
	}
	out.Dirs = make([]string, len(r.Programs))
	for i, program := range r.Programs {
		var file, problem string
		var status int
		if program.AnyDir && !isFolder(program.Dir) {
			if dir, err := os.Getwd(); err == nil {
				out.Notes = append(out.Notes, fmt.Sprintf("there is no folder %s: %s starts in %s; --wdir "+
					"names another", program.Dir, filepath.Base(program.Name), dir))
				out.Dirs[i], program.Dir = dir, dir
			}
		}
		if program.Name != "" {
			file, problem, status = program.find()
		}
		if problem != "" {
			out.Problems = append(out.Problems, problem)
			out.ProgramStatus = cmp.Or(out.ProgramStatus, status)
		} else if program.Name != "" && file == "" {
			out.Missing = append(out.Missing, i)
		}
		out.Files = append(out.Files, file)
	}
	if len(r.Peers) > 0 && r.Ranks > 0 {
		hosts := make([]string, 0, len(r.Peers))
		for _, peer := range r.Peers {
			hosts = append(hosts, peer[strings.LastIndexByte(peer, '@')+1:])
		}
		if addr, err := route.Towards(hosts); err != nil {
			out.Problems = append(out.Problems, err.Error())
		} else {
			out.Interface = netip.PrefixFrom(addr, addr.BitLen()).String()
		}
	}
	return out, nil
}

// take takes over where the ranks run.
func (p *plan) take(from placement.Placement) {
	p.CPUs, p.Handlers, p.CoresPerRank = from.CPUs, from.Handlers, from.CoresPerRank
	p.Unbound, p.OwnCore, p.Notes = from.Unbound, from.OwnCore, from.Notes
}

// takePart takes over where another host's plan places n ranks, from the first on.
func (p *plan) takePart(from *plan, first, n int) {
	part := func(byRank [][]int) [][]int {
		if byRank == nil {
			return nil
		}
		return byRank[first : first+n]
	}
	p.CPUs, p.Handlers, p.CoresPerRank = part(from.CPUs), part(from.Handlers), from.CoresPerRank
	p.Unbound, p.OwnCore = from.Unbound, from.OwnCore
}

// find looks for a program on this host, or says why it cannot run, with the exit status that a shell would
// give if the program is to blame. If it returns neither, the program must be copied.
func (p *programRequest) find() (file, problem string, status int) {
	if p.Dir != "" && !isFolder(p.Dir) {
		return "", fmt.Sprintf("there is no folder %s to start %s in; create it, or name one that every "+
			"host has with --wdir", p.Dir, filepath.Base(p.Name)), 0
	}
	if p.Hash != "" {
		info, err := os.Stat(p.Name)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			if own, err := build.ContentHash(p.Name); err == nil && own == p.Hash {
				return p.Name, "", 0
			}
		}
		return "", "", 0
	}
	if !strings.ContainsRune(p.Name, filepath.Separator) {
		file, err := exec.LookPath(p.Name)
		switch {
		case err != nil && p.Away:
			return "", fmt.Sprintf("%s is not in the PATH that weft's agent has there; write its path",
				p.Name), 127
		case err != nil:
			return "", fmt.Sprintf("%s is not in PATH", p.Name), 127
		}
		return file, "", 0
	}
	switch info, err := os.Stat(p.Name); {
	case err != nil && p.Away && p.There:
		return "", fmt.Sprintf("there is no %s; --stage copies the program to each host", p.Name), 127
	case err != nil && p.Away:
		return "", fmt.Sprintf("there is no %s, and none on the host of weft run", p.Name), 127
	case err != nil:
		return "", fmt.Sprintf("there is no %s", p.Name), 127
	case info.IsDir():
		return "", fmt.Sprintf("%s is a folder", p.Name), 126
	case info.Mode()&0o111 == 0:
		return "", fmt.Sprintf("%s is not executable", p.Name), 126
	}
	return p.Name, "", 0
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}
