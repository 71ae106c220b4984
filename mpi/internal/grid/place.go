package grid

import "slices"

// Place assigns ranks to the cells of a grid so that neighbors are on one host if possible. hosts has the
// host of each rank. If all hosts have the same number of ranks and the grid can be cut into blocks of that
// many cells, each host gets a block, of the shape that separates the fewest neighbors. Otherwise each host
// gets consecutive cells.
func Place(dims, hosts []int) []int {
	places := Size(dims)
	ranks := byHost(hosts)
	ranks = ranks[:places]
	block := hostBlock(dims, equalShare(ranks, hosts))
	if block == nil {
		return ranks
	}
	order := make([]int, places)
	for i, place := range inBlocks(dims, block) {
		order[place] = ranks[i]
	}
	return order
}

// byHost lists the ranks, those of each host together.
func byHost(hosts []int) []int {
	ranks := make([]int, len(hosts))
	for i := range ranks {
		ranks[i] = i
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return hosts[a] - hosts[b] })
	return ranks
}

// equalShare is how many of the ranks each host has, if all have the same number; else 0. The ranks are
// sorted by host.
func equalShare(ranks, hosts []int) int {
	count := map[int]int{}
	for _, r := range ranks {
		count[hosts[r]]++
	}
	share := 0
	for _, n := range count {
		if share != 0 && n != share {
			return 0
		}
		share = n
	}
	return share
}

// hostBlock is the block of n places that divides the grid and cuts the fewest pairs of neighbors; nil if
// there is none.
func hostBlock(dims []int, n int) []int {
	if n < 2 {
		return nil
	}
	var best []int
	fewest := -1
	block := make([]int, len(dims))
	var try func(d, rest int)
	try = func(d, rest int) {
		if d == len(dims) {
			cut := 0
			for i, b := range block {
				cut += (dims[i]/b - 1) * Size(dims) / dims[i]
			}
			if rest == 1 && (fewest < 0 || cut < fewest) {
				best, fewest = slices.Clone(block), cut
			}
			return
		}
		primes, _ := primeFactors(dims[d]) // no more than the ranks, which are few enough
		for _, b := range divisors(dims[d], primes) {
			if rest%b == 0 {
				block[d] = b
				try(d+1, rest/b)
			}
		}
	}
	try(0, n)
	return best
}

// inBlocks lists the places of a grid block by block.
func inBlocks(dims, block []int) []int {
	outer := make([]int, len(dims))
	for d := range dims {
		outer[d] = dims[d] / block[d]
	}
	var places []int
	for b := range Size(outer) {
		base := Coords(outer, b)
		for i := range Size(block) {
			coords := Coords(block, i)
			for d := range coords {
				coords[d] += base[d] * block[d]
			}
			places = append(places, Rank(dims, coords))
		}
	}
	return places
}

// PlaceGraph assigns ranks to the vertices of a graph so that neighbors are on one host if possible: each
// host in turn takes, one after another, the vertex with the most neighbors on that host. neighbors lists
// those of each vertex; hosts has the host of each rank.
func PlaceGraph(neighbors [][]int, hosts []int) []int {
	ranks := byHost(hosts)
	order := make([]int, len(neighbors)) // the rank of each vertex
	placed := make([]bool, len(neighbors))
	links := make([]int, len(neighbors)) // to vertices of the present host
	for i, r := range ranks {
		if i > 0 && hosts[r] != hosts[ranks[i-1]] {
			clear(links)
		}
		best := -1
		for v := range neighbors {
			if !placed[v] && (best < 0 || links[v] > links[best]) {
				best = v
			}
		}
		placed[best], order[best] = true, r
		for _, v := range neighbors[best] {
			links[v]++
		}
	}
	return order
}
