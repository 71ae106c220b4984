package setting

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-mpi/weft/internal/inherited"
	"github.com/weft-mpi/weft/internal/spelling"
)

// prefix begins the names of all variables of weft.
const prefix = "WEFT_"

// launchers are the variables by which a launcher tells a rank who it is. They are no settings.
var launchers = []string{
	"WEFT_JOB", "WEFT_RANK", "WEFT_SIZE", "WEFT_LOCAL_RANK", "WEFT_LOCAL_SIZE",
	inherited.Variable, Restarted.Name,
}

// Unknown lists the variables of an environment that have the name of a setting which does not exist, each
// with the setting that was meant, as far as that can be told.
func Unknown(environ []string) []string {
	known := slices.Clone(launchers)
	for _, s := range All {
		known = append(known, s.Name)
	}
	var out []string
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		// An empty variable is as good as none. Tests of weft have variables of their own.
		if !ours || value == "" || slices.Contains(known, name) || strings.HasPrefix(rest, "TEST_") {
			continue
		}
		text := fmt.Sprintf("%.60q in the environment is no setting", name)
		if nearest := spelling.Nearest(rest, trimmed(known)); nearest != "" {
			text += "; did you mean " + prefix + nearest + "?"
		}
		if text += " (weft info --settings lists all)"; !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// trimmed are names without the prefix that all of them have, which would make each like every other.
func trimmed(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = strings.TrimPrefix(name, prefix)
	}
	return out
}
