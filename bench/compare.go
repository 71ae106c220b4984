package bench

import (
	"fmt"
	"io"
	"slices"
)

// Compare prints, for each kind of figure for which the first file has a table, how the tables of the other
// files compare with it, and draws them into plot if that is not empty. It measures nothing. An error in the
// request or in a file is an *OptionError.
func Compare(paths []string, digits int, plot string, out io.Writer) error {
	if len(paths) < 2 {
		return optionErrorf("two files at least are needed to compare, not %d", len(paths))
	}
	if digits < 0 || digits > maxDigits {
		return optionErrorf("%d decimals: 0 to %d are possible", digits, maxDigits)
	}
	var file *output
	if plot != "" {
		if _, err := plotFormat(plot); err != nil {
			return err
		}
		var err error
		if file, err = newOutput("plot", plot); err != nil {
			return err
		}
	}
	first, err := readResults(paths[0])
	if err != nil {
		return err
	}
	var others []*Result
	for _, path := range paths[1:] {
		results, err := readResults(path)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(results, func(r *Result) bool { return ofMeasure(first, r.measure) != nil }) {
			return optionErrorf("%s has no table of what %s has: %q", path, paths[0], first[0].Title)
		}
		others = append(others, results...)
	}
	t := &table{out: out}
	var compared []*Result
	for _, m := range []*measure{latencyMeasure, bandwidthMeasure} {
		if alike := ofMeasure(append(first, others...), m); ofMeasure(first, m) != nil && len(alike) > 1 {
			t.compare(named(alike), digits)
			compared = append(compared, alike...)
		}
	}
	if t.err != nil {
		return t.err
	}
	return file.write(func(w io.Writer) error { return chartOf("Comparison", compared).write(w, plot) })
}

func ofMeasure(results []*Result, m *measure) (alike []*Result) {
	for _, r := range results {
		if r.measure == m {
			alike = append(alike, r)
		}
	}
	return alike
}

// named makes the names of results unique.
func named(results []*Result) []*Result {
	taken := map[string]bool{}
	for _, r := range results {
		name := r.Name
		for k := 2; taken[r.Name]; k++ {
			r.Name = fmt.Sprintf("%s (%d)", name, k)
		}
		taken[r.Name] = true
	}
	return results
}

// compare prints figures of the same measure side by side, and the ratios of the first result to each other
// one, which are above 1 where the first is ahead. Its rows have more columns than those that parsers look
// for.
func (t *table) compare(results []*Result, digits int) {
	const column, ratioDigits = 20, 3
	first := results[0]
	t.printf("\n# %s (%s); a ratio above 1: %s is ahead\n", first.measure.name, first.measure.unit,
		first.label())
	for _, r := range results {
		from := r.File
		if from == "" {
			from = "this run"
		}
		if r.Setup != "" {
			from += "; " + r.Setup
		}
		if r.Partial {
			from += "; rows are missing"
		}
		t.printf("# %s: %s (%s)\n", r.label(), r.Title, from)
	}
	width := func(r *Result) int { return max(column, len([]rune(r.label()))+2) }
	line := fmt.Sprintf("%-10s", "# Size")
	for i, r := range results {
		line += fmt.Sprintf("%*s", width(r), r.label())
		if i > 0 {
			line += fmt.Sprintf("%*s", column/2, "ratio")
		}
	}
	t.printf("%s\n", line)
	var sizes []int
	for _, r := range results {
		sizes = append(sizes, r.sizes...)
	}
	slices.Sort(sizes)
	for _, n := range slices.Compact(sizes) {
		line = fmt.Sprintf("%-10s", "-")
		if n > 0 {
			line = fmt.Sprintf("%-10d", n)
		}
		mine, have := first.at(n)
		for i, r := range results {
			v, ok := r.at(n)
			figure, ratio := "-", "-"
			if ok {
				figure = fmt.Sprintf("%.*f", digits, v)
			}
			if have && ok && mine > 0 && v > 0 {
				ratio = fmt.Sprintf("%.*f", ratioDigits, first.measure.ratio(mine, v))
			}
			line = withCell(line, fmt.Sprintf("%*s", width(r), figure))
			if i > 0 {
				line = withCell(line, fmt.Sprintf("%*s", column/2, ratio))
			}
		}
		t.printf("%s\n", line)
	}
}
