// Package spelling finds the word that was meant by a mistyped one.
package spelling

import "strings"

// Nearest returns the most similar of words, or "" if none is similar. It ignores case and the characters
// that join parts of a name.
func Nearest(word string, words []string) string {
	target := plain(word)
	best, smallest := "", 0
	for _, candidate := range words {
		text := plain(candidate)
		d := distance(target, text)
		// A third of the letters may differ. Words of fewer than three letters are all similar.
		if d > min(len(target), len(text))/3 {
			continue
		}
		if best == "" || d < smallest {
			best, smallest = candidate, d
		}
	}
	return best
}

func plain(word string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(word))
}

// maxWord bounds the length of compared words.
const maxWord = 64

// distance returns how many letters must be added, removed, replaced or swapped with their neighbor to turn a
// into b (the optimal string alignment distance).
func distance(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return max(len(a), len(b))
	}
	var d [maxWord + 1][maxWord + 1]int
	for i := range len(a) + 1 {
		d[i][0] = i
	}
	for j := range len(b) + 1 {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := d[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			d[i][j] = min(replace, d[i-1][j]+1, d[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
