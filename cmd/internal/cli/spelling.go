package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weft-mpi/weft/internal/spelling"
)

// missing are options of other launchers that weft run does not have, with what to do instead.
var missing = map[string]string{
	"configfile": "write the programs on the command line, with ':' between them",
}

// A foreignOption is an option of other launchers that weft run ignores.
type foreignOption struct {
	values  int    // arguments that follow it
	warning string // empty if weft always does what the option asks for
}

var ignored = map[string]foreignOption{
	"oversubscribe":     {},
	"allow-run-as-root": {},
	"mca":               {2, openMPI},
	"gmca":              {2, openMPI},
	"prtemca":           {2, openMPI},
	"pmixmca":           {2, openMPI},
}

const openMPI = "it belongs to Open MPI; weft info --settings lists the settings of weft"

// aliases are other launchers' names for options of weft run.
var aliases = map[string]string{
	"tag-output": "label", "prepend-rank": "label", "wd": "wdir", "cwd": "wdir",
	"display-bindings": "report-bindings", "display-map": "report-bindings",
	"display-allocation": "report-bindings",
	"H":                  "host", "hosts": "host", "machinefile": "hostfile", "f": "hostfile",
}

// phrases are options of other launchers that stand for an option of weft run and its value.
var phrases = map[string]string{
	"donotlaunch": "--dry-run", "do-not-launch": "--dry-run",
}

// pairs are options of other launchers that name a variable and its value in two words: -genv NAME VALUE is
// -x NAME=VALUE.
var pairs = map[string]string{"genv": "x", "env": "x"}

// foreignHelp says which options of other launchers weft run takes.
func foreignHelp() string {
	spellings := map[string][]string{} // by the option of weft run
	for _, table := range []map[string]string{aliases, phrases} {
		for name, option := range table {
			option = strings.TrimPrefix(option, "--")
			spellings[option] = append(spellings[option], "-"+name)
		}
	}
	var taken []string
	for _, option := range slices.Sorted(maps.Keys(spellings)) {
		slices.Sort(spellings[option])
		taken = append(taken, strings.Join(spellings[option], ", ")+" for --"+option)
	}
	var without, warned []string
	for _, name := range slices.Sorted(maps.Keys(ignored)) {
		if ignored[name].warning == "" {
			without = append(without, "--"+name)
		} else {
			warned = append(warned, "--"+name)
		}
	}
	named := slices.Sorted(maps.Keys(pairs))
	text := fmt.Sprintf("Spellings of other launchers are taken, too, with one dash or two: %s; -%s NAME "+
		"VALUE for -x NAME=VALUE. %s change nothing; %s are ignored with a warning.",
		strings.Join(taken, "; "), strings.Join(named, " and -"), strings.Join(without, " and "),
		strings.Join(warned, ", "))
	return fill(text, 105)
}

// respell changes the options before the program's name to the spelling that pflag parses: long names with
// two dashes. It stops at the program, whose options are its own. It warns of ignored options.
func respell(flags *pflag.FlagSet, args []string, warn func(string)) ([]string, error) {
	var out []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name := strings.TrimLeft(arg, "-")
		if arg == "--" || name == arg || name == "" {
			return append(out, args[i:]...), nil
		}
		name, value, inOne := strings.Cut(name, "=")
		if other, ok := aliases[name]; ok {
			name = other
		}
		flag := flags.Lookup(name)
		if flag == nil && len(name) == 1 {
			flag = flags.ShorthandLookup(name)
		}
		// -n4, with one dash only.
		if flag == nil && !inOne && !strings.HasPrefix(arg, "--") {
			if short := flags.ShorthandLookup(name[:1]); short != nil && short.NoOptDefVal == "" &&
				missing[name] == "" && len(name) > 1 && name[1] >= '0' && name[1] <= '9' {
				flag, value, inOne = short, name[1:], true
			}
		}
		pass, isForeign := ignored[name]
		switch {
		case name == "h" || name == "help":
			out = append(out, "--help")
			continue
		case name == "version" || name == "V":
			out = append(out, "--version")
			continue
		case flag == nil && phrases[name] != "":
			out = append(out, phrases[name])
			continue
		case flag == nil && isForeign:
			if len(args)-i <= pass.values {
				return nil, fmt.Errorf("option %s needs %d values", arg, pass.values)
			}
			if pass.warning != "" {
				warn(fmt.Sprintf("%s is ignored: %s", strings.Join(args[i:i+1+pass.values], " "),
					pass.warning))
			}
			i += pass.values
			continue
		case flag == nil && pairs[name] != "":
			if len(args)-i <= 2 {
				return nil, fmt.Errorf("option %s needs a name and a value", arg)
			}
			out = append(out, "--"+pairs[name]+"="+args[i+1]+"="+args[i+2])
			i += 2
			continue
		case flag == nil && missing[name] != "":
			return nil, fmt.Errorf("option %s is not available: %s", arg, missing[name])
		case flag == nil:
			return nil, fmt.Errorf("unknown option %s%s; weft run --help lists all options", arg,
				suggestion(flags, name))
		}
		takesValue := flag.NoOptDefVal == ""
		if takesValue && !inOne {
			if i++; i == len(args) {
				return nil, fmt.Errorf("option %s needs a value", arg)
			}
			value, inOne = args[i], true
		}
		if inOne {
			out = append(out, "--"+flag.Name+"="+value)
		} else {
			out = append(out, "--"+flag.Name)
		}
	}
	return out, nil
}

// suggestion returns the option that is most similar to a mistyped one.
func suggestion(flags *pflag.FlagSet, name string) string {
	names := slices.Concat(slices.Collect(maps.Keys(aliases)), slices.Collect(maps.Keys(pairs)))
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	slices.Sort(names)
	if nearest := spelling.Nearest(name, names); nearest != "" {
		return fmt.Sprintf(" (did you mean --%s?)", nearest)
	}
	return ""
}
