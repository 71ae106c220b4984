package main

import (
	"container/heap"

	"github.com/weft-mpi/weft/mpi"
)

// exchange sends rank i the lines from cuts[i] up to cuts[i+1], and merges the lines from all ranks.
func exchange(world *mpi.Comm, mine part, cuts []int) (part, error) {
	ranks := world.Size()
	outgoing := make([]byte, 0, len(mine.text))
	sendCounts, receiveCounts := make([]int, ranks), make([]int, ranks)
	for to := range ranks {
		begin := len(outgoing)
		for _, line := range mine.lines[cuts[to]:cuts[to+1]] {
			outgoing = append(outgoing, line...)
		}
		sendCounts[to] = len(outgoing) - begin
	}
	if err := mpi.Alltoall(world, sendCounts, receiveCounts); err != nil {
		return part{}, err
	}
	total := 0
	for _, n := range receiveCounts {
		total += n
	}
	incoming := make([]byte, total)
	// Without displacements the blocks follow one another, as they do here.
	if err := mpi.Alltoallv(world, outgoing, sendCounts, nil, incoming, receiveCounts, nil); err != nil {
		return part{}, err
	}
	runs := make(runs, 0, ranks)
	lines := 0
	for from, at := 0, 0; from < ranks; from++ {
		if n := receiveCounts[from]; n > 0 {
			run := newPart(incoming[at : at+n]).lines
			runs = append(runs, run)
			lines += len(run)
			at += n
		}
	}
	return part{incoming, runs.merge(lines)}, nil
}

// runs are sequences of lines in order, none of them empty: a heap whose first run has the first line.
type runs [][][]byte

func (r runs) Len() int           { return len(r) }
func (r runs) Less(i, j int) bool { return compare(r[i][0], r[j][0]) < 0 }
func (r runs) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *runs) Push(run any)      { *r = append(*r, run.([][]byte)) }

func (r *runs) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// merge returns all lines, of which there are count, in order.
func (r runs) merge(count int) [][]byte {
	lines := make([][]byte, 0, count)
	heap.Init(&r)
	for len(r) > 0 {
		lines = append(lines, r[0][0])
		if r[0] = r[0][1:]; len(r[0]) > 0 {
			heap.Fix(&r, 0)
		} else {
			heap.Pop(&r)
		}
	}
	return lines
}
