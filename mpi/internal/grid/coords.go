package grid

// Size returns the number of places of a grid.
func Size(dims []int) int {
	p := 1
	for _, d := range dims {
		p *= d
	}
	return p
}

// Coords returns the coordinates of a rank. The last coordinate changes fastest.
func Coords(dims []int, rank int) []int {
	coords := make([]int, len(dims))
	for d := len(dims) - 1; d >= 0; d-- {
		coords[d] = rank % dims[d]
		rank /= dims[d]
	}
	return coords
}

// Rank returns the rank at some coordinates, which are inside the grid.
func Rank(dims, coords []int) int {
	rank := 0
	for d, at := range coords {
		rank = rank*dims[d] + at
	}
	return rank
}
