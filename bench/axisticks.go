package bench

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// Tickers get the ends of an axis, and return positions on it, as logarithms to base 2.

// binaryTicks are powers of two, with K, M and G for those of 1024.
type binaryTicks struct{}

func (binaryTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	const maxLabels = 14 // labels of an axis
	first, last := int(math.Ceil(low)), int(math.Floor(high))
	every := max(1, (last-first+maxLabels)/maxLabels)
	for e := first; e <= last; e++ {
		t := plot.Tick{Value: float64(e)}
		if (e-first)%every == 0 {
			t.Label = binaryLabel(e)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

func binaryLabel(e int) string {
	if e < 0 || e >= 40 {
		return strconv.FormatFloat(math.Ldexp(1, e), 'g', -1, 64)
	}
	return strings.TrimSpace(strconv.Itoa(1<<(e%10)) + " KMG"[e/10:][:1])
}

// decimalTicks are 1, 2 and 5 times the powers of ten; over many of these, the powers alone.
type decimalTicks struct{}

func (decimalTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	const maxDecades = 4 // decades in which 2 and 5 have labels, too
	first, last := math.Floor(low*math.Log10(2)), math.Ceil(high*math.Log10(2))
	for e := first; e <= last; e++ {
		for _, digit := range []float64{1, 2, 5} {
			v := digit * math.Pow(10, e)
			t := plot.Tick{Value: math.Log2(v)}
			if t.Value < low || t.Value > high {
				continue
			}
			if digit == 1 || last-first <= maxDecades {
				t.Label = strconv.FormatFloat(v, 'f', int(max(0, -e)), 64)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}
