package printable

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		`Grüße, "C:\x" 日本 �`:      `Grüße, "C:\x" 日本 �`,
		"\x1b]0;owned\a\x1b[2J":   `\x1b]0;owned\a\x1b[2J`,
		"a\tb\nc\rd\x00\x7f":      `a\tb\nc\rd\x00\x7f`,
		"\u009b31m \u202egpj.exe": `\u009b31m \u202egpj.exe`,
		"\xff\x9b":                `\xff\x9b`,
	} {
		require.Equal(t, want, Line(text), "%q", text)
	}
	require.Equal(t, "a\tb\nc\\rd", Text("a\tb\nc\rd"))
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[0m\n\xff")
	f.Fuzz(func(t *testing.T, text string) {
		line := Line(text)
		for _, r := range line {
			if !strconv.IsPrint(r) {
				t.Fatalf("%q in %q", r, line)
			}
		}
		require.Equal(t, line, Line(line))
	})
}
