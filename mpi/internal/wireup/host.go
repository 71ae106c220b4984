package wireup

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/internal/setting"
)

// Host is the address of this machine at which peers reach us: on the interface that the setting names, or in the network
// that it gives as CIDR.
func (j *Job) Host() (string, error) {
	want := setting.Interface.String()
	prefix, cidrErr := netip.ParsePrefix(want)
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("network interfaces: %w", err)
	}
	var seen []string
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || p.Addr().IsLinkLocalUnicast() {
				continue
			}
			seen = append(seen, i.Name+" "+p.String())
			if cidrErr == nil && prefix.Contains(p.Addr()) || cidrErr != nil && i.Name == want {
				return p.Addr().String(), nil
			}
		}
	}
	return "", fmt.Errorf("%s=%q: no such interface or network is up here; there are: %s", setting.Interface.Name, want,
		strings.Join(seen, ", "))
}

// Neighbours tells whether other ranks of the job can be expected on this host, and whether some can on others. Where the launcher has
// not said how many there are, both can. A world of one counts as a neighbour of itself.
func (j *Job) Neighbours() (here, elsewhere bool) {
	size := int(j.Identity.Size)
	if size == 1 {
		return true, false
	}
	for _, name := range []string{"WEFT_LOCAL_SIZE", "MPI_LOCALNRANKS"} {
		if local, err := strconv.Atoi(os.Getenv(name)); err == nil && local > 0 {
			return local > 1, local < size
		}
	}
	return true, true
}
