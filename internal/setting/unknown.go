package setting

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-mpi/weft/internal/inherited"
	"github.com/weft-mpi/weft/internal/spelling"
)

// prefix is the prefix of weft's variables.
const prefix = "WEFT_"

// launchers are the variables by which a launcher identifies a rank. They are not settings.
var launchers = []string{
	"WEFT_JOB", "WEFT_RANK", "WEFT_SIZE", "WEFT_LOCAL_RANK", "WEFT_LOCAL_SIZE",
	inherited.Variable, Restarted.Name,
}

// Unknown returns the variables of an environment that look like settings but are not, each with the setting
// that was probably meant.
func Unknown(environ []string) []string {
	known := slices.Clone(launchers)
	for _, s := range All {
		known = append(known, s.Name)
	}
	var out []string
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		// An empty variable counts as unset. Tests of weft have their own variables.
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

// trimmed returns names without their common prefix, which would make them similar.
func trimmed(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = strings.TrimPrefix(name, prefix)
	}
	return out
}
