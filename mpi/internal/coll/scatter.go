package coll

// A Scatter is a Gather backwards, with the same messages.

// Scatter brings a block of Input at the root to Output at every rank, in rank order. Input is not used
// elsewhere. At the root Output may be its own block of Input, which then stays as it is.
var scatterAlgorithms = []algorithm{
	{"binomial", nil, func(s *Schedule, c *Call) {
		gatherTree(s, c.Rank, c.Size, c.Root, c.bytes())
		s.mirror()
	}},
	{"linear", nil, func(s *Schedule, c *Call) {
		gatherLinear(s, c.Rank, c.Size, c.Root, c.bytes(), even(c.bytes()))
		s.mirror()
	}},
}

// Scatterv is Scatter with blocks of different lengths: the call's count is that of this rank's own, and
// Send, significant at the root only, tells where blocks come from.
var scattervAlgorithms = []algorithm{
	{"linear", nil, func(s *Schedule, c *Call) {
		gatherLinear(s, c.Rank, c.Size, c.Root, c.bytes(), c.Send.orNone())
		s.mirror()
	}},
}
