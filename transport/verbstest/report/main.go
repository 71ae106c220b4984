// Report runs the conformance suite on every provider and prints, for each, how many checks of each group
// passed, failed or were skipped, why, and which groups have none:
//
//	go run ./transport/verbstest/report
//
// It exits with 1 if a check failed or a provider could not be tested.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/weft-mpi/weft/transport/verbstest"
)

const suite = "TestConformance"

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// provider is what one package's run has shown.
type provider struct {
	result map[string]string // pass, fail or skip, by check
	output map[string]string
	failed bool // the package, for whatever reason
}

func main() {
	cmd := exec.Command("go", "test", "-count=1", "-json", "-timeout=5m", "-run=^"+suite+"$",
		"./transport/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	providers, err := collect(out)
	failed := cmd.Wait() != nil
	if err != nil || len(providers) == 0 {
		fmt.Fprintf(os.Stderr, "report: no provider was tested: run it in the project's folder (%v)\n", err)
		os.Exit(1)
	}
	print(os.Stdout, providers)
	if failed {
		os.Exit(1)
	}
}

// collect reads the events of a run, by the last part of the package's path.
func collect(r io.Reader) (map[string]*provider, error) {
	all := map[string]*provider{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // what the compiler says is no event
		}
		name := path.Base(e.Package)
		if e.Test == suite && e.Action == "run" {
			all[name] = &provider{result: map[string]string{}, output: map[string]string{}}
		}
		p := all[name]
		if p == nil {
			continue
		}
		check, isCheck := strings.CutPrefix(e.Test, suite+"/")
		switch e.Action {
		case "output":
			p.output[e.Test] += e.Output
		case "pass", "fail", "skip":
			if e.Action == "fail" {
				p.failed = true
			}
			if isCheck && verbstest.GroupOf(check) != "" && strings.Contains(check, "/") {
				p.result[check] = e.Action
			}
		}
	}
	return all, lines.Err()
}

// reason is what a check said when it failed or was skipped.
func (p *provider) reason(check string) string {
	var said []string
	for line := range strings.Lines(p.output[suite+"/"+check]) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			said = append(said, line)
		}
	}
	return strings.Join(said, "; ")
}

func print(w io.Writer, providers map[string]*provider) {
	var names []string
	for name := range providers {
		names = append(names, name)
	}
	sort.Strings(names)
	count := func(p *provider, group, result string) (n int) {
		for check, r := range p.result {
			if r == result && (group == "" || verbstest.GroupOf(check) == group) {
				n++
			}
		}
		return n
	}
	for _, name := range names {
		p := providers[name]
		fmt.Fprintf(w, "provider %s: %d checks: %d passed, %d skipped, %d failed\n", name, len(p.result),
			count(p, "", "pass"), count(p, "", "skip"), count(p, "", "fail"))
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(table, "  group\tpassed\tskipped\tfailed\t")
		var gaps []string
		for _, g := range verbstest.Groups() {
			pass, skip, fail := count(p, g.Name, "pass"), count(p, g.Name, "skip"), count(p, g.Name, "fail")
			if pass+skip+fail == 0 {
				why := g.Gap
				if why == "" {
					why = "not yet"
				}
				gaps = append(gaps, g.Name+": "+why)
				continue
			}
			fmt.Fprintf(table, "  %s\t%d\t%d\t%d\t\n", g.Name, pass, skip, fail)
		}
		table.Flush()
		for _, result := range []string{"skip", "fail"} {
			var list []string
			for check, r := range p.result {
				if r == result {
					list = append(list, fmt.Sprintf("  %s %s: %s", result, check, p.reason(check)))
				}
			}
			sort.Strings(list)
			for _, line := range list {
				fmt.Fprintln(w, line)
			}
		}
		if p.failed && count(p, "", "fail") == 0 {
			fmt.Fprintf(w, "  the package failed: %s\n", p.output[suite])
		}
		for _, gap := range gaps {
			fmt.Fprintln(w, "  gap", gap)
		}
		fmt.Fprintln(w)
	}
}
