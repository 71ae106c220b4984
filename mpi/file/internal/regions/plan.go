package regions

import (
	"cmp"
	"slices"
)

// An Extent is what all ranks know of a rank's regions.
type Extent struct{ Lo, Hi, Bytes int64 } // offsets of the first byte and after the last; how many bytes

// A Domain is a part of the file that one rank, its owner, reads or writes for all.
type Domain struct {
	Owner  int
	Lo, Hi int64
}

// A Plan cuts the file into domains, and these into windows. Domains are disjoint, ascend, and begin at
// multiples of the file system's block, so that no block has two writers.
type Plan struct {
	Domains []Domain
	Window  int64 // bytes
}

// ownBytes is how many bytes ranks have on average, at least, if each of them is to read and write its own.
// Fewer are faster through few ranks.
const ownBytes = 64 << 10

// NewPlan plans what ranks with these extents read or write together. If the extents of no two ranks overlap
// and they are long, each rank owns its own, and the bytes of others in the blocks at its ends, in windows of
// a length own. Otherwise the aggregators own equal parts, in windows of a length shared. Both lengths are
// multiples of block.
func NewPlan(ranks []Extent, aggregators []int, block, shared, own int64) Plan {
	p := Plan{Window: shared}
	var used []int // ranks that have bytes
	lo, hi, bytes := int64(0), int64(0), int64(0)
	for rank, e := range ranks {
		if e.Bytes == 0 {
			continue
		}
		if len(used) == 0 {
			lo = e.Lo
		}
		lo, hi, bytes = min(lo, e.Lo), max(hi, e.Hi), bytes+e.Bytes
		used = append(used, rank)
	}
	if len(used) == 0 {
		return p
	}
	down := func(off int64) int64 { return off / block * block }
	slices.SortFunc(used, func(a, b int) int { return cmp.Compare(ranks[a].Lo, ranks[b].Lo) })
	apart := bytes/int64(len(used)) >= ownBytes
	for i := 1; i < len(used); i++ {
		apart = apart && ranks[used[i-1]].Hi <= ranks[used[i]].Lo
	}
	if apart {
		for i, rank := range used {
			end := hi
			if i+1 < len(used) {
				end = down(ranks[used[i+1]].Lo)
			}
			if begin := down(ranks[rank].Lo); begin < end {
				p.Domains = append(p.Domains, Domain{rank, begin, end})
			}
		}
		p.Window = own
		return p
	}
	lo = down(lo)
	n := int64(len(aggregators))
	part := (hi-lo+n-1)/n + block - 1
	part = max(down(part), (ownBytes+block-1)/block*block)
	for _, rank := range aggregators {
		if lo < hi {
			p.Domains = append(p.Domains, Domain{rank, lo, min(lo+part, hi)})
			lo += part
		}
	}
	return p
}

// Windows is a rank's way through the windows of a domain that have bytes of its regions.
type Windows struct {
	domain  Domain
	size    int64
	regions *Regions
	next    int64 // a window; none if no window is left
}

// None is the window after the last.
const None = -1

// NewWindows begins with the first window that has bytes of the regions.
func NewWindows(r *Regions, d Domain, size int64) Windows {
	w := Windows{domain: d, size: size, regions: r}
	w.seek(d.Lo)
	return w
}

func (w *Windows) seek(off int64) {
	w.next = None
	if next, ok := w.regions.Next(off); ok && next < w.domain.Hi {
		w.next = (next - w.domain.Lo) / w.size
	}
}

// Next returns the number of the window, or None.
func (w *Windows) Next() int64 { return w.next }

// Advance goes on to the following window that has bytes of the regions.
func (w *Windows) Advance() {
	_, hi := w.domain.Bounds(w.next, w.size)
	w.seek(hi)
}

// Bounds returns the offsets of a window of a size.
func (d Domain) Bounds(window, size int64) (lo, hi int64) {
	lo = d.Lo + window*size
	return lo, min(lo+size, d.Hi)
}
