// Package fabrics is the list of the providers that a program can choose from.
package fabrics

import (
	"fmt"
	"strings"

	"github.com/weft-mpi/weft/transport/fabric"
	"github.com/weft-mpi/weft/transport/shm"
	"github.com/weft-mpi/weft/transport/tcp"
)

// All lists the fabrics in order of preference. A new provider is one line here.
var All = []fabric.Fabric{
	shm.Fabric,
	tcp.Fabric,
}

// Auto is the name under which a rank uses the first local fabric and the first other one.
const Auto = "auto"

// Names lists the names that can be chosen, for messages: "shm, tcp or auto".
func Names() string {
	var names []string
	for _, f := range All {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ") + " or " + Auto
}

// Help describes the names.
func Help() string {
	var names []string
	for _, f := range All {
		names = append(names, fmt.Sprintf("%s (%s)", f.Name, f.About))
	}
	return strings.Join(names, ", ") + ", or " + Auto + ": the first of these that reaches a peer"
}

// Check returns an error for a name that cannot be chosen.
func Check(name string) error {
	if name == Auto {
		return nil
	}
	for _, f := range All {
		if f.Name == name {
			return nil
		}
	}
	return fmt.Errorf("unknown fabric %q; choose %s", name, Names())
}

// Choose returns the fabrics of a name that Check accepts. For Auto these are the first local one, if here,
// and the first other one, if elsewhere.
func Choose(name string, here, elsewhere bool) (list []fabric.Fabric) {
	wanted := map[bool]bool{true: here, false: elsewhere} // by Local
	for _, f := range All {
		switch {
		case name == f.Name:
			return []fabric.Fabric{f}
		case name == Auto && wanted[f.Local]:
			list = append(list, f)
			wanted[f.Local] = false
		}
	}
	return list
}
