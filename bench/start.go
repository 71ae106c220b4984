package bench

// initialization prints the time of Init on the ranks.
func initialization(s *session) error {
	s.heading()
	c, err := s.spread(s.initTook * 1e3)
	if err != nil {
		return err
	}
	c.size = s.world.Size()
	s.report.add(row(s.spec.columns, &c))
	s.out.printf("nprocs: %d, min: %.0f ms, max: %.0f ms, avg: %.0f ms\n", s.world.Size(), c.min, c.max,
		c.value)
	return nil
}
