// Kmeans groups points into clusters by Lloyd's algorithm: each point belongs to the cluster whose center is
// nearest, and each center is the mean of its cluster's points.
//
//	weft run -n 4 ./examples/kmeans
//	weft run -n 4 ./examples/kmeans -points 1000000 -k 16 -dimensions 8
//	weft run -n 4 ./examples/kmeans -input examples/kmeans/testdata/points.csv -k 3 -output labels.txt
//
// It shows the loop that much of data analysis consists of, where every rank has a part of the data and all
// have the model:
//
//   - rank 0 reads the points, and Scatterv gives each rank its part (main.go);
//   - the first centers are points far from each other: MaxLoc finds the farthest of all ranks' points, and
//     Bcast sends it to all of them (cluster.go);
//   - Allreduce adds up the ranks' sums, after which all ranks have the same centers, to the last bit, and so
//     decide alike when to stop (cluster.go);
//   - Gatherv collects the labels for rank 0, which verifies the result without the others: no point is
//     nearer to another center than to its own, and every center is the mean of its points (verify.go);
//   - file.WriteOrdered writes the labels of each rank behind those of the ranks before it (output.go).
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("kmeans: ")
	if err := mpi.Run(context.Background(), kmeans); err != nil {
		log.Fatal(err)
	}
}

// problem has the settings that every rank needs. It has a fixed size and no pointers.
type problem struct {
	Points, Dimensions int // no points if there is nothing to do
	K                  int
	Rounds             int
}

func kmeans(_ context.Context, world *mpi.Comm) error {
	var p problem
	var o options
	var all points // at rank 0 alone
	if world.Rank() == 0 {
		var err error
		if p, o, all, err = prepare(os.Args[1:]); err != nil {
			return err
		}
	}
	p, err := mpi.BcastValue(world, p, 0)
	if err != nil || p.Points == 0 {
		return err // without points rank 0 was asked for help
	}
	if o, err = mpi.BcastValue(world, o, 0); err != nil {
		return err
	}
	begin := mpi.Wtime()
	mine, err := scatter(world, p, all)
	if err != nil {
		return err
	}
	c, err := cluster(world, p, mine)
	if err != nil {
		return err
	}
	labels, err := gather(world, p, c.labels)
	if err != nil {
		return err
	}
	seconds := mpi.Wtime() - begin
	if world.Rank() == 0 {
		if err := verify(all, c, labels); err != nil {
			return err
		}
	}
	if o.Output != "" {
		if err := write(world, o.Output, c.labels); err != nil {
			return fmt.Errorf("-output: %w", err)
		}
	}
	if world.Rank() == 0 {
		report(p, c, seconds)
	}
	return nil
}

// first is the number of the rank's first point. That of the rank after the last one is the number of points.
func (p problem) first(rank, ranks int) int {
	return p.Points/ranks*rank + min(p.Points%ranks, rank)
}

// shares are the numbers of points that the ranks have.
func (p problem) shares(ranks int) []int {
	n := make([]int, ranks)
	for rank := range n {
		n[rank] = p.first(rank+1, ranks) - p.first(rank, ranks)
	}
	return n
}

// scatter gives every rank its part of the points that rank 0 has.
func scatter(world *mpi.Comm, p problem, all points) (points, error) {
	counts := p.shares(world.Size()) // of points, then of coordinates
	mine := points{p.Dimensions, make([]float64, counts[world.Rank()]*p.Dimensions)}
	for i := range counts {
		counts[i] *= p.Dimensions
	}
	// Without displacements the blocks follow one another.
	return mine, mpi.Scatterv(world, all.at, counts, nil, mine.at, 0)
}

// gather collects the labels of all points at rank 0.
func gather(world *mpi.Comm, p problem, mine []int32) ([]int32, error) {
	var labels []int32
	if world.Rank() == 0 {
		labels = make([]int32, p.Points)
	}
	return labels, mpi.Gatherv(world, mine, labels, p.shares(world.Size()), nil, 0)
}

func report(p problem, c clusters, seconds float64) {
	for k := range p.K {
		fmt.Printf("cluster %d: %.0f points around %.4g\n", k, c.counts[k], c.centers.point(k))
	}
	took := time.Duration(seconds * float64(time.Second))
	fmt.Printf("%d points in %d dimensions, %d rounds in %v; sum of squares %.10g; ", p.Points, p.Dimensions,
		c.rounds, took.Round(time.Millisecond), c.squares)
	if c.settled {
		fmt.Println("settled and verified")
	} else {
		fmt.Println("not settled: use more -rounds")
	}
}
