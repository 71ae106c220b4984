package wireup

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/internal/allocation"
)

// environment is where a process finds a scheduler's information about rank 0.
type environment struct {
	getenv   func(string) string
	readFile func(string) ([]byte, error)
	hostname func() (string, error)
}

// rank0Port is the port of rank 0 if a scheduler gives its host and nothing gives the port.
const rank0Port = "5700"

// Each of these functions returns the address of rank 0 by the variables of one scheduler; "" if it is not
// there. rank is this process's rank.

// kubernetesRank0 uses the names of pods. Those of an Indexed Job and of a JobSet end in the index, and are
// hosts in the domain of a headless service, if the pods' template names one as their subdomain.
func kubernetesRank0(e *environment, rank string) (string, error) {
	name, err := e.hostname()
	if err != nil {
		return "", err
	}
	name, domain, _ := strings.Cut(name, ".")
	base, ok := strings.CutSuffix(name, "-"+rank)
	if !ok {
		return "", fmt.Errorf("JOB_COMPLETION_INDEX=%.20s, and the pod's name %q does not end in it: set "+
			"WEFT_COORDINATOR=HOST:PORT, where rank 0 waits for the others", rank, name)
	}
	if domain == "" {
		hosts, err := e.readFile("/etc/hosts")
		if err != nil {
			return "", err
		}
		domain = domainOf(name, hosts)
	}
	if domain == "" {
		return "", errors.New("this pod of an Indexed Job has no subdomain, by which it would find rank 0: " +
			"make a headless service (clusterIP: None), and name it in the pods' template (subdomain), or " +
			"set WEFT_COORDINATOR=HOST:PORT")
	}
	return net.JoinHostPort(base+"-0."+domain, rank0Port), nil
}

// domainOf returns the domain of a host by the text of /etc/hosts, where the kubelet writes it.
func domainOf(host string, text []byte) string {
	for line := range bytes.Lines(text) {
		line, _, _ = bytes.Cut(line, []byte("#"))
		for i, name := range strings.Fields(string(line)) {
			if domain, ok := strings.CutPrefix(name, host+"."); ok && i > 0 && domain != "" {
				return domain
			}
		}
	}
	return ""
}

// slurmRank0 returns the first node of the step, where srun starts task 0. The port is one that Slurm has
// reserved for the step, or else one that another step is unlikely to have.
func slurmRank0(e *environment, _ string) (string, error) {
	list, tasks := e.getenv("SLURM_STEP_NODELIST"), e.getenv("SLURM_STEP_NUM_TASKS")
	if list == "" || tasks == "" {
		return "", nil // a batch script's own process
	}
	nodes, err := allocation.ParseNodeList(list)
	if err != nil {
		return "", fmt.Errorf("SLURM_STEP_NODELIST: %w", err)
	}
	port, _, _ := strings.Cut(e.getenv("SLURM_STEP_RESV_PORTS"), "-")
	if port, _, _ = strings.Cut(port, ","); port == "" {
		h := fnv.New32a()
		fmt.Fprint(h, e.getenv("SLURM_JOB_ID"), ".", e.getenv("SLURM_STEP_ID"))
		port = strconv.Itoa(20000 + int(h.Sum32()%10000))
	}
	return net.JoinHostPort(nodes[0], port), nil
}

// awsRank0 returns the main node of a multi-node job of AWS Batch, if that has number 0. The main node itself
// does not get its address.
func awsRank0(e *environment, rank string) (string, error) {
	main, host := e.getenv("AWS_BATCH_JOB_MAIN_NODE_INDEX"),
		e.getenv("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS")
	if main != "0" {
		return "", nil
	}
	if host == "" && rank == "0" {
		var err error
		if host, err = e.hostname(); err != nil {
			return "", err
		}
	}
	if host == "" {
		return "", nil
	}
	return net.JoinHostPort(host, rank0Port), nil
}

// torchRank0 returns the address that torchrun and compatible launchers give to all ranks.
func torchRank0(e *environment, _ string) (string, error) {
	host, port := e.getenv("MASTER_ADDR"), e.getenv("MASTER_PORT")
	if host == "" || port == "" {
		return "", nil
	}
	return net.JoinHostPort(host, port), nil
}
