package main

import (
	"fmt"
	"math"
)

// tolerance is how far apart two sums of the same numbers may be, in another order, for their size.
const tolerance = 1e-9

// verify checks the clusters with all points: each center is the mean of its points, and, once settled, no
// other center is nearer to a point than its own.
func verify(all points, c clusters, labels []int32) error {
	k := len(c.counts)
	means := points{all.dimensions, make([]float64, k*all.dimensions)}
	sizes := make([]float64, len(means.at)) // sums of absolute values, which bound the rounding
	counts := make([]float64, k)
	for i, label := range labels {
		if label < 0 || int(label) >= k {
			return fmt.Errorf("point %d is in cluster %d; there are %d", i, label, k)
		}
		counts[label]++
		for d, x := range all.point(i) {
			means.point(int(label))[d] += x
			sizes[int(label)*all.dimensions+d] += math.Abs(x)
		}
	}
	for j, n := range counts {
		if n != c.counts[j] {
			return fmt.Errorf("cluster %d has %.0f points, and %.0f by the ranks' count", j, n, c.counts[j])
		}
		for d := range all.dimensions {
			at := j*all.dimensions + d
			if n > 0 && math.Abs(means.at[at]/n-c.centers.at[at]) > tolerance*sizes[at]/n {
				return fmt.Errorf("the center of cluster %d is %v in dimension %d, and the mean of its "+
					"points %v", j, c.centers.at[at], d, means.at[at]/n)
			}
		}
	}
	for i, label := range labels {
		if !c.settled {
			break
		}
		own := distance(all.point(i), c.centers.point(int(label)))
		if near, squared := c.centers.nearest(all.point(i)); squared < own*(1-tolerance) {
			return fmt.Errorf("point %d is in cluster %d, and nearer to the center of cluster %d", i, label,
				near)
		}
	}
	return nil
}
