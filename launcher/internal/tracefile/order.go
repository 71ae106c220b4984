package tracefile

import "time"

const (
	// maxWindows is the maximum number of windows into which the time of a job is divided, and minWindow
	// their minimum length.
	maxWindows = 64
	minWindow  = int64(time.Millisecond)
)

// clockPair is a pair of clocks, by their numbers.
type clockPair struct{ from, to int }

// order corrects clocks until no message arrives before it was sent, if possible. A clock comparison is only
// as exact as its fastest message. It begins with one window, the whole job. If messages still arrive before
// they were sent, it divides the job into more windows, each with its own corrections.
func order(clocks []*clock, messages []message) {
	number := map[*clock]int{}
	var distinct []*clock
	for _, c := range clocks {
		if _, ok := number[c]; !ok {
			number[c] = len(distinct)
			distinct = append(distinct, c)
		}
	}
	if len(distinct) == 1 || len(messages) == 0 {
		return
	}
	begin, end := int64(1<<62), int64(-1<<62)
	for i := range messages {
		m := &messages[i]
		begin = min(begin, clocks[m.from].compared(m.earliest))
		end = max(end, clocks[m.to].compared(m.received))
	}
	best := make([]correction, len(distinct))
	wrong := len(messages) + 1 // messages that arrive before they are sent, with the best corrections
	for windows := 1; windows <= maxWindows && wrong > 0; windows *= 2 {
		step := (end - begin) / int64(windows)
		if windows > 1 && step < minWindow {
			break
		}
		correct(clocks, distinct, number, messages, begin, max(step, 1), windows)
		if n := tooEarly(clocks, messages); n < wrong {
			wrong = n
			for i, c := range distinct {
				best[i] = c.late
			}
		}
	}
	for i, c := range distinct {
		c.late = best[i]
	}
}

// tooEarly returns the number of messages that arrived before they were sent.
func tooEarly(clocks []*clock, messages []message) (n int) {
	for i := range messages {
		if m := &messages[i]; clocks[m.from].convert(m.earliest) >= clocks[m.to].convert(m.received) {
			n++
		}
	}
	return n
}

// correct sets every clock's corrections at the ends of windows. A message's constraint holds at both ends of
// its window, so it holds between them. At each end, the corrections are the smallest that satisfy every
// message: longest paths in the graph of clocks, by Bellman-Ford.
func correct(clocks, distinct []*clock, number map[*clock]int, messages []message, begin, step int64,
	windows int) {
	asked := make([]map[clockPair]int64, windows)
	for i := range messages {
		m := &messages[i]
		from, to := clocks[m.from], clocks[m.to]
		if from == to {
			continue
		}
		earliest, received := from.compared(m.earliest), to.compared(m.received)
		w := max(0, min(int((max(received, begin)-begin)/step), windows-1)) // times may be wrong
		if asked[w] == nil {
			asked[w] = map[clockPair]int64{}
		}
		p := clockPair{number[from], number[to]}
		if by, ok := asked[w][p]; !ok || earliest+1-received > by {
			asked[w][p] = earliest + 1 - received
		}
	}
	for _, c := range distinct {
		c.late = correction{begin, step, make([]int64, windows+1)}
	}
	for k := range windows + 1 {
		for range distinct {
			changed := false
			for w := max(k-1, 0); w <= min(k, windows-1); w++ {
				for p, by := range asked[w] {
					from, to := &distinct[p.from].late.by[k], &distinct[p.to].late.by[k]
					if *from+by > *to {
						*to, changed = *from+by, true
					}
				}
			}
			if !changed {
				break
			}
		}
	}
	for _, c := range distinct { // a clock never goes back
		for k := 1; k < len(c.late.by); k++ {
			c.late.by[k] = max(c.late.by[k], c.late.by[k-1]-step/2)
		}
	}
}
