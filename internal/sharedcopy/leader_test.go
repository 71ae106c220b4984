package sharedcopy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLeader_CopiesWhatTheHelperDoesNot: pages that a helper has claimed are the leader's where the helper
// refuses them, or is late and not waited for; they are the helper's where it has copied them.
func TestLeader_CopiesWhatTheHelperDoesNot(t *testing.T) {
	const length = 300*Page + 5
	for name, of := range map[string]struct {
		end                     func(h *Helper, o *Offer)
		helped, refuses, broken bool
	}{
		"copied":         {func(h *Helper, o *Offer) { h.Copied(o) }, true, false, false},
		"refused":        {func(h *Helper, o *Offer) { h.Failed(o, false) }, false, true, false},
		"always refused": {func(h *Helper, o *Offer) { h.Failed(o, true) }, false, true, true},
		"late":           {func(*Helper, *Offer) {}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := In(aligned(Size))
			h, l := Helper{Claims: c}, Leader{Claims: c}
			byLeader, byHelper := make([]int, length), uint64(0)
			ok := l.Copy(&Part{ID: 1, Key: 2, At: 3, Length: length}, func(from, to uint64) bool {
				for i := from; i < to; i++ {
					byLeader[i]++
				}
				if o, ok := h.Next(); ok && byHelper == 0 {
					require.Equal(t, Part{ID: 1, Key: 2, At: 3, Length: length}, o.Part)
					_, byHelper = h.Claim(&o)
					of.end(&h, &o)
					_, more := h.Next()
					require.Equal(t, !of.refuses, more, "of the same turn")
				}
				return true
			}, givesUp)
			require.True(t, ok)
			require.NotZero(t, byHelper, "the helper has claimed nothing")
			require.Equal(t, of.broken, l.Broken)
			copied := uint64(0)
			for i, times := range byLeader {
				if times > 1 { // without require, which takes seconds for a million bytes
					t.Fatalf("the leader has copied byte %d %d times", i, times)
				}
				copied += uint64(times)
			}
			if of.helped {
				require.Equal(t, uint64(length), copied+byHelper)
			} else {
				require.Equal(t, uint64(length), copied)
			}
			_, again := h.Next()
			require.False(t, again, "the turn is over")
		})
	}
}

func TestPart_Within(t *testing.T) {
	for _, c := range []struct {
		at, length, n uint64
		want          bool
	}{
		{0, 10, 10, true}, {4, 6, 10, true}, {4, 7, 10, false}, {11, 0, 10, false}, {10, 0, 10, true},
		{^uint64(0), 2, 10, false}, {2, ^uint64(0), 10, false},
	} {
		p := Part{At: c.at, Length: c.length}
		require.Equal(t, c.want, p.Within(c.n), "%+v", c)
	}
}
