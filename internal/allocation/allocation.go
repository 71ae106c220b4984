// Package allocation reads from the environment which hosts a batch system has given to a job: Slurm, Grid
// Engine, LSF, PBS.
package allocation

import (
	"fmt"
	"strconv"
	"strings"
)

// maxHosts bounds the hosts of an allocation, and maxSlots the ranks of one host.
const (
	maxHosts = 1 << 16
	maxSlots = 1 << 16
)

// Host is a host of an allocation, and how many ranks it takes.
type Host struct {
	Name  string
	Slots int
}

// An Allocation is the hosts that a batch system has given.
type Allocation struct {
	Engine string // the name of the batch system
	Hosts  []Host
	Why    string // the variables that say so
}

// Source is where the environment is read: os.Getenv and os.ReadFile, or a recorded one.
type Source struct {
	Getenv   func(string) string
	ReadFile func(string) ([]byte, error)
}

// engines are the batch systems in order of detection. The first variable identifies each.
var engines = []struct {
	name, sign string
	read       func(Source) (hosts []Host, why string, err error)
}{
	{"Slurm", "SLURM_JOB_NODELIST", slurm},
	{"Grid Engine", "PE_HOSTFILE", gridEngine},
	{"LSF", "LSB_MCPU_HOSTS", lsf},
	{"PBS", "PBS_NODEFILE", pbs},
}

// Detect returns the allocation of this process; nil without a batch system. If there are two, the error
// names both.
func Detect(from Source) (*Allocation, error) {
	var found *Allocation
	for _, e := range engines {
		if from.Getenv(e.sign) == "" {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("the environment is that of two batch systems, %s (%s) and %s (%s): "+
				"unset one of the variables",
				found.Engine, found.Why, e.name, e.sign)
		}
		hosts, why, err := e.read(from)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		found = &Allocation{e.name, hosts, why}
	}
	return found, nil
}

// slurm reads a node list and the number of tasks of each node, such as "2(x3),1".
func slurm(from Source) ([]Host, string, error) {
	const nodeList = "SLURM_JOB_NODELIST"
	names, err := ParseNodeList(from.Getenv(nodeList))
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", nodeList, err)
	}
	counts := "SLURM_TASKS_PER_NODE"
	if from.Getenv(counts) == "" {
		counts = "SLURM_JOB_CPUS_PER_NODE"
	}
	slots, err := parseCounts(from.Getenv(counts))
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", counts, err)
	}
	if len(slots) != len(names) {
		return nil, "", fmt.Errorf("%s has %d nodes, and %s tells of %d", nodeList, len(names), counts,
			len(slots))
	}
	hosts := make([]Host, len(names))
	for i, name := range names {
		hosts[i] = Host{name, slots[i]}
	}
	return hosts, nodeList + ", " + counts, nil
}

// parseCounts parses numbers separated by ',', each optionally followed by (xN) for N nodes.
func parseCounts(text string) (counts []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		number, times, repeated := strings.Cut(part, "(x")
		n, err := parseSlots(number)
		if err != nil {
			return nil, err
		}
		repeat := 1
		if repeated {
			if repeat, err = strconv.Atoi(strings.TrimSuffix(times, ")")); err != nil || repeat < 1 ||
				!strings.HasSuffix(times, ")") {
				return nil, fmt.Errorf("%.40q is no number such as 4 or 4(x2)", part)
			}
		}
		if repeat > maxHosts-len(counts) {
			return nil, fmt.Errorf("numbers for more than %d nodes", maxHosts)
		}
		for range repeat {
			counts = append(counts, n)
		}
	}
	return counts, nil
}

func parseSlots(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxSlots {
		return 0, fmt.Errorf("%.40q is no number of ranks from 1 to %d", text, maxSlots)
	}
	return n, nil
}

// gridEngine reads a file with a line for each host: name, slots, queue, processors.
func gridEngine(from Source) ([]Host, string, error) {
	const file = "PE_HOSTFILE"
	text, err := from.ReadFile(from.Getenv(file))
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", file, err)
	}
	var list hostList
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) < 2 {
			return nil, "", fmt.Errorf("%s, line %d: no number of slots after %.40q", file, number, fields[0])
		}
		if err := list.add(fields[0], fields[1]); err != nil {
			return nil, "", fmt.Errorf("%s, line %d: %w", file, number, err)
		}
	}
	return list.hosts, file, list.empty(file)
}

// lsf reads names and numbers in turn.
func lsf(from Source) ([]Host, string, error) {
	const variable = "LSB_MCPU_HOSTS"
	words := strings.Fields(from.Getenv(variable))
	if len(words)%2 != 0 {
		return nil, "", fmt.Errorf("%s: %d words are no pairs of a host and a number", variable, len(words))
	}
	var list hostList
	for i := 0; i < len(words); i += 2 {
		if err := list.add(words[i], words[i+1]); err != nil {
			return nil, "", fmt.Errorf("%s: %w", variable, err)
		}
	}
	return list.hosts, variable, list.empty(variable)
}

// pbs reads a file with a line for each slot.
func pbs(from Source) ([]Host, string, error) {
	const file = "PBS_NODEFILE"
	text, err := from.ReadFile(from.Getenv(file))
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", file, err)
	}
	var list hostList
	for name := range strings.FieldsSeq(string(text)) {
		if err := list.add(name, "1"); err != nil {
			return nil, "", fmt.Errorf("%s: %w", file, err)
		}
	}
	return list.hosts, file, list.empty(file)
}

// A hostList collects hosts; one that comes again has the slots of both.
type hostList struct {
	hosts []Host
	index map[string]int
}

func (l *hostList) add(name, slots string) error {
	n, err := parseSlots(slots)
	if err != nil {
		return fmt.Errorf("host %.60q: %w", name, err)
	}
	if err := checkName(name); err != nil {
		return err
	}
	if i, again := l.index[name]; again {
		l.hosts[i].Slots = min(l.hosts[i].Slots+n, maxSlots)
		return nil
	}
	if len(l.hosts) == maxHosts {
		return fmt.Errorf("more than %d hosts", maxHosts)
	}
	if l.index == nil {
		l.index = make(map[string]int)
	}
	l.index[name] = len(l.hosts)
	l.hosts = append(l.hosts, Host{name, n})
	return nil
}

func (l *hostList) empty(where string) error {
	if len(l.hosts) == 0 {
		return fmt.Errorf("%s: no host in it", where)
	}
	return nil
}

// checkName refuses invalid host names, as a name may become part of a command.
func checkName(name string) error {
	const extra = "-._:%"
	bad := name == "" || name[0] == '-' || len(name) > 255 || strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
			strings.ContainsRune(extra, r))
	})
	if bad {
		return fmt.Errorf("%.60q is no host's name", name)
	}
	return nil
}
