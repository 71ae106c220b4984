package regions

import "math/bits"

// Coverage is the set of bytes of a window that have been given a value, or asked for.
type Coverage struct {
	words  []uint64 // a bit for each byte
	lo, hi int      // outside of which no bit is set
}

// Reset makes the set empty, of a window of n bytes.
func (c *Coverage) Reset(n int) {
	if words := (n + 63) / 64; words > len(c.words) {
		c.words = make([]uint64, words)
	} else if c.lo < c.hi {
		clear(c.words[c.lo/64 : (c.hi+63)/64])
	}
	c.lo, c.hi = n, 0
}

// Add adds the bytes from lo up to hi, and returns the first that was there before, or -1.
func (c *Coverage) Add(lo, hi int) (twice int) {
	twice = -1
	for at := lo; at < hi; {
		end := min((at/64+1)*64, hi)
		mask := ^uint64(0) >> (64 - (end - at)) << (at % 64)
		if both := c.words[at/64] & mask; both != 0 && twice < 0 {
			twice = at/64*64 + bits.TrailingZeros64(both)
		}
		c.words[at/64] |= mask
		at = end
	}
	c.lo, c.hi = min(c.lo, lo), max(c.hi, hi)
	return twice
}

// AddSeries adds the ranges of a series in the window that begins at an offset, and returns the first offset
// that was there before, or -1.
func (c *Coverage) AddSeries(window int64, s Series) (twice int64) {
	twice = -1
	at, n, stride := int(s.Off-window), int(s.N), int(s.Stride)
	for range s.Count {
		if at%64+n > 64 {
			if i := c.Add(at, at+n); i >= 0 && twice < 0 {
				twice = window + int64(i)
			}
		} else {
			mask, word := ^uint64(0)>>(64-n)<<(at%64), &c.words[at/64]
			if both := *word & mask; both != 0 && twice < 0 {
				twice = window + int64(at/64*64+bits.TrailingZeros64(both))
			}
			*word |= mask
		}
		at += stride
	}
	c.lo, c.hi = min(c.lo, int(s.Off-window)), max(c.hi, at-stride+n)
	return twice
}

// Ranges yields the contiguous parts of the set. Parts with gaps of fewer than gap bytes between them count
// as one; 1 keeps all apart.
func (c *Coverage) Ranges(gap int, yield func(lo, hi int) bool) {
	lo := c.find(c.lo, 0)
	for lo < c.hi {
		hi := c.find(lo, ^uint64(0))
		next := c.find(hi, 0)
		for next < c.hi && next-hi < gap {
			hi = c.find(next, ^uint64(0))
			next = c.find(hi, 0)
		}
		if !yield(lo, hi) {
			return
		}
		lo = next
	}
}

// find returns the first bit from at on that differs from those of same, or hi.
func (c *Coverage) find(at int, same uint64) int {
	for at < c.hi {
		if differ := (c.words[at/64] ^ same) >> (at % 64); differ != 0 {
			return min(at+bits.TrailingZeros64(differ), c.hi)
		}
		at = (at/64 + 1) * 64
	}
	return c.hi
}
