package bench

import (
	"encoding/json"
	"math"
	"strings"
)

// readBesides reads the reports of the jobs that ran before this one under other settings
// (Benchmark.Besides). An error is an *OptionError.
func (s *session) readBesides() error {
	for _, path := range s.Beside {
		var r *Report
		if path != "" {
			content, err := readFile(path)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(content, &r); err != nil || r == nil || r.Schema != Schema ||
				r.Benchmark != s.Name {
				return optionErrorf("%s: no report of weft bench %s", path, s.Name)
			}
		}
		s.besides = append(s.besides, r)
	}
	return nil
}

// withBesides adds the figures of the earlier jobs' matching rows to those of the next row. Rows match if
// they begin with the same figure.
func (s *session) withBesides(own []float64) []float64 {
	figures := own
	for _, c := range s.spec.columns[len(own):] {
		v := math.NaN()
		if i, n := c.beside-1, len(s.report.Rows); i < len(s.besides) && s.besides[i] != nil &&
			n < len(s.besides[i].Rows) {
			row := s.besides[i].Rows[n]
			if there, ok := row[c.source].(float64); ok && row[s.spec.columns[0].name] == own[0] {
				v = there
			}
		}
		figures = append(figures, v)
	}
	return figures
}

// besideColumns returns copies of columns for the figures of an earlier job, numbered from 1.
func besideColumns(job int, name, heading string, own ...column) (columns []column) {
	for _, c := range own {
		c.source, c.beside, c.of = c.name, job, nil
		c.name, c.heading = name+"_"+c.name, strings.TrimSpace(heading+" "+c.heading)
		c.width = max(c.width, len(c.heading)+2)
		columns = append(columns, c)
	}
	return columns
}
