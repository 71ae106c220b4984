// Package plural puts counts into English sentences.
package plural

import "fmt"

// S returns the ending of a regular noun of which there are n.
func S(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// Count returns the number n and the noun, which is regular, as in "1 rank" and "2 ranks".
func Count(n int, noun string) string { return fmt.Sprintf("%d %s%s", n, noun, S(n)) }
