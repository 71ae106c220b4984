package coll

// A Scatter is a Gather backwards, with the same messages.

// Scatter brings a block of Input at the root to Output at every rank, in the order of ranks. Input is not used
// elsewhere. At the root Output may be its own block of Input, which then stays as it is.
func Scatter(s *Schedule, rank, size, root, blockBytes int) {
	Gather(s, rank, size, root, blockBytes)
	s.mirror()
}

// Scatterv is Scatter with blocks of different lengths: bytes is that of this rank's own, and the blocks, significant at
// the root only, tell where they come from.
func Scatterv(s *Schedule, rank, size, root, bytes int, blocks Blocks) {
	Gatherv(s, rank, size, root, bytes, blocks)
	s.mirror()
}
