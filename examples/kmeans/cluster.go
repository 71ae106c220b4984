package main

import (
	"math"

	"github.com/weft-mpi/weft/mpi"
)

// clusters are the result of the ranks. All but the labels is the same at every rank.
type clusters struct {
	centers points
	counts  []float64 // points of each cluster
	squares float64   // sum of the squared distances of the points from their centers
	rounds  int
	settled bool    // no point would change its cluster in another round
	labels  []int32 // the cluster of each of this rank's points
}

// cluster groups the points of all ranks.
func cluster(world *mpi.Comm, p problem, mine points) (clusters, error) {
	centers, err := farthest(world, p, mine)
	if err != nil {
		return clusters{}, err
	}
	c := clusters{centers: centers, counts: make([]float64, p.K), labels: make([]int32, mine.count())}
	for i := range c.labels {
		c.labels[i] = -1
	}
	for c.rounds < p.Rounds && !c.settled {
		if err := c.round(world, mine); err != nil {
			return clusters{}, err
		}
	}
	return c, nil
}

// round assigns each point to the nearest center, and moves the centers.
func (c *clusters) round(world *mpi.Comm, mine points) error {
	// All that the ranks add up goes into one Allreduce, which costs hardly more than the smallest.
	k, dimensions := len(c.counts), c.centers.dimensions
	all := make([]float64, k*dimensions+k+2)
	sums, counts, squares, moved := points{dimensions, all[:k*dimensions]}, all[k*dimensions:][:k],
		&all[len(all)-2], &all[len(all)-1]
	for i := range mine.count() {
		point := mine.point(i)
		label, squared := c.centers.nearest(point)
		for d, x := range point {
			sums.point(label)[d] += x
		}
		counts[label]++
		*squares += squared
		if c.labels[i] != int32(label) {
			c.labels[i] = int32(label)
			*moved++
		}
	}
	if err := mpi.Allreduce(world, mpi.InPlace[float64](), all, mpi.Sum[float64]()); err != nil {
		return err
	}
	copy(c.counts, counts)
	for label, n := range counts {
		if n == 0 {
			continue // a cluster that has lost its points keeps its center
		}
		for d, sum := range sums.point(label) {
			c.centers.point(label)[d] = sum / n
		}
	}
	c.squares = *squares
	c.settled = *moved == 0
	c.rounds++
	return nil
}

// farthest chooses the first centers: the first point of all, and then again and again the point that is
// farthest from the centers so far. It is the same point on any number of ranks.
func farthest(world *mpi.Comm, p problem, mine points) (points, error) {
	centers := points{p.Dimensions, make([]float64, 0, p.K*p.Dimensions)}
	begin := p.first(world.Rank(), world.Size())
	squares := make([]float64, mine.count()) // from the nearest center so far
	for i := range squares {
		squares[i] = math.Inf(1)
	}
	for range p.K {
		best := mpi.Loc[float64]{Value: -1, Index: int64(p.Points)} // of a rank without points
		for i, squared := range squares {
			if squared > best.Value {
				best = mpi.Loc[float64]{Value: squared, Index: int64(begin + i)}
			}
		}
		best, err := mpi.AllreduceValue(world, best, mpi.MaxLoc[float64]())
		if err != nil {
			return points{}, err
		}
		center, err := p.fetch(world, mine, int(best.Index))
		if err != nil {
			return points{}, err
		}
		centers.at = append(centers.at, center...)
		for i := range squares {
			squares[i] = min(squares[i], distance(mine.point(i), center))
		}
	}
	return centers, nil
}

// fetch gives all ranks a point of one of them.
func (p problem) fetch(world *mpi.Comm, mine points, number int) ([]float64, error) {
	owner := 0
	for p.first(owner+1, world.Size()) <= number {
		owner++
	}
	point := make([]float64, p.Dimensions)
	if owner == world.Rank() {
		copy(point, mine.point(number-p.first(owner, world.Size())))
	}
	return point, mpi.Bcast(world, point, owner)
}
