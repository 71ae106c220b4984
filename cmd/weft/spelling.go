package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// missing are the options that weft run is going to have, or that users of other launchers look for, with what to do instead.
var missing = map[string]string{
	"host":        "ranks are started on this machine only; leave it out",
	"hosts":       "ranks are started on this machine only; leave it out",
	"H":           "ranks are started on this machine only; leave it out",
	"hostfile":    "ranks are started on this machine only; leave it out",
	"machinefile": "ranks are started on this machine only; leave it out",
	"f":           "ranks are started on this machine only; leave it out",
	"ppn":         "ranks are started on this machine only; give their number with -n",
	"map-by":      "ranks are started on this machine only, and numbered in the order of its cores; leave it out",
	"survive":     "a failed rank ends the job; leave it out",
	"phases":      "set it in the environment that the ranks see: -x WEFT_PHASES=LIST",
	"stats":       "leave it out",

	"oversubscribe":     "more ranks than cores are allowed; leave it out",
	"allow-run-as-root": "root may run jobs; leave it out",
	"mca":               "it belongs to Open MPI; settings of weft are listed by weft info --settings",
	"genv":              "write -x NAME=VALUE",
	"env":               "write -x NAME=VALUE",
	"configfile":        "write the programs on the command line, with ':' between them",
}

// aliases are names that other launchers have for options of weft run.
var aliases = map[string]string{"tag-output": "label", "prepend-rank": "label", "wd": "wdir", "cwd": "wdir", "display-bindings": "report-bindings"}

// respell turns the options before the program's name into the spelling that pflag reads: long names with two dashes. It stops at the
// program, whose own options are none of weft's.
func respell(flags *pflag.FlagSet, args []string) ([]string, error) {
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
			if short := flags.ShorthandLookup(name[:1]); short != nil && short.NoOptDefVal == "" && missing[name] == "" &&
				len(name) > 1 && name[1] >= '0' && name[1] <= '9' {
				flag, value, inOne = short, name[1:], true
			}
		}
		switch {
		case name == "h" || name == "help":
			out = append(out, "--help")
			continue
		case flag == nil && missing[name] != "":
			return nil, fmt.Errorf("option %s is not available: %s", arg, missing[name])
		case flag == nil:
			return nil, fmt.Errorf("unknown option %s; weft run --help lists those there are", arg)
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
