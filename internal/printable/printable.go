// Package printable makes text safe to show that somebody else has written: a file's title, a host's name, a
// program's. On a terminal, control characters could move the cursor, change the window's title or hide what
// stands before them.
package printable

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Line is text with everything escaped, as Go writes it in a string, that does not print as itself on one
// line.
func Line(text string) string { return escape(text, "") }

// Text is Line for text of several lines, with tabs.
func Text(text string) string { return escape(text, "\n\t") }

func escape(text, keep string) string {
	var b strings.Builder
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		switch raw := rest[:size]; {
		case strings.Contains(keep, raw), strconv.IsPrint(r) && (r != utf8.RuneError || size > 1):
			b.WriteString(raw)
		default:
			quoted := strconv.Quote(raw)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		rest = rest[size:]
	}
	return b.String()
}
