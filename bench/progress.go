package bench

import "fmt"

// eraseLine brings the cursor to the beginning of a terminal's line and empties that.
const eraseLine = "\r\x1b[K"

// progress tells on the terminal, if there is one, which size is being measured; of size 0, that none is any
// more.
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
	// What cannot be told does not keep from measuring.
	_, _ = fmt.Fprint(s.by.Progress, text)
}
