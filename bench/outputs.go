package bench

import (
	"errors"
	"io"
)

// ends are the outputs of rank 0 at the end.
type ends struct {
	report, plot *output
	others       []*Result
}

// ends checks the outputs before anything is measured. An error is an *OptionError.
func (s *session) ends() (e ends, err error) {
	if s.Plot != "" {
		if _, err := plotFormat(s.Plot); err != nil {
			return ends{}, err
		}
		if e.plot, err = newOutput("plot", s.Plot); err != nil {
			return ends{}, err
		}
	}
	if s.Report != "" {
		if e.report, err = newOutput("report", s.Report); err != nil {
			return ends{}, err
		}
	}
	if want := s.Benchmark.measure(); len(s.Compare) > 0 && want != nil {
		if e.others, err = readAlike(s.Compare, want); err != nil {
			return ends{}, err
		}
	}
	return e, s.readBesides()
}

// finish prints and writes the outputs for a complete table.
func (e ends) finish(s *session) error {
	s.seal(true)
	err := e.report.write(s.report.write)
	own := s.report.result("weft")
	if len(e.others) > 0 {
		s.out.compare(named(append([]*Result{own}, e.others...)), s.Digits)
		err = errors.Join(err, s.out.err)
	}
	return errors.Join(err, e.plot.write(func(w io.Writer) error {
		return s.chart(own, e.others).write(w,
			s.Plot)
	}))
}

// partial writes the incomplete report, if it has rows, with the reason why the rest is missing.
func (e ends) partial(s *session, why error) error {
	if len(s.report.Rows) == 0 {
		return nil
	}
	s.seal(false)
	s.report.Error = why.Error()
	return e.report.write(s.report.write)
}

// chart returns a plot of the table: all of its figures, or the averages together with those of others.
func (s *session) chart(own *Result, others []*Result) *chart {
	setups := []string{s.report.setup()}
	switch {
	case s.spec == connections:
		return &chart{title: s.title, setups: setups, panels: []*panel{phaseLines(s.report.figures)}}
	case s.spec == footprints:
		return &chart{title: s.title, setups: setups,
			panels: []*panel{memoryLines(s.spec.columns, s.report.figures)}}
	case len(others) > 0:
		return chartOf(s.title, append([]*Result{own}, others...))
	}
	p := &panel{axes: s.spec.axes}
	for i, c := range s.spec.columns {
		if c.unit != own.measure.unit || !c.printed(&s.Options) {
			continue
		}
		for _, figures := range s.report.figures {
			p.add(lineName(&c), figures[0], figures[i])
		}
	}
	return &chart{title: s.title, setups: setups, panels: []*panel{p}}
}
