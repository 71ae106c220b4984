package bench

import "fmt"

// eraseLine moves the cursor to the beginning of a terminal's line and clears the line.
const eraseLine = "\r\x1b[K"

// progress shows on the terminal, if there is one, which size is being measured; 0 clears the line.
func (s *session) progress(n, low, high int) {
	if s.by.Progress == nil || s.world.Rank() != 0 {
		return
	}
	text := eraseLine
	if n > 0 {
		done, all := 0, 0
		for size := low; size <= high; size *= 2 {
			if size < n {
				done++
			}
			all++
		}
		text += fmt.Sprintf("%s: %d of %d sizes, now %d bytes", s.Name, done, all, n)
	}
	// An error does not prevent the measurement.
	_, _ = fmt.Fprint(s.by.Progress, text)
}
