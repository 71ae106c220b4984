package coll

// A Scatter is a reversed Gather, with the same messages.

// scatterAlgorithms are the algorithms of Scatter, which sends a block of Input at the root to Output at
// every rank, in rank order. Input is not used elsewhere. At the root Output may be its own block of Input,
// which then is not copied.
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

// scattervAlgorithms are the algorithms of Scatterv, which is Scatter with blocks of different lengths: the
// call's count is that of this rank's own block, and Send, significant only at the root, describes the blocks
// in Input.
var scattervAlgorithms = []algorithm{
	{"linear", nil, func(s *Schedule, c *Call) {
		gatherLinear(s, c.Rank, c.Size, c.Root, c.bytes(), c.Send.orNone())
		s.mirror()
	}},
}
