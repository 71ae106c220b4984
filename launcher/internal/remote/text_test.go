package remote

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type message struct {
	One   string
	Many  []string
	Files [2]string
	Inner *message
}

// FuzzText: every string arrives as it was, and the sender's value does not change.
func FuzzText(f *testing.F) {
	f.Add("plain", "caf\xe9")
	f.Add(`\`, "\\x41\xff\\")
	f.Add("\x00\u2028<", "\xed\xb2\x80")
	f.Fuzz(func(t *testing.T, a, b string) {
		sent := message{One: a, Many: []string{b, a}, Files: [2]string{a, b}, Inner: &message{One: b}}
		body, err := Marshal(sent)
		require.NoError(t, err)
		require.Equal(t, message{a, []string{b, a}, [2]string{a, b}, &message{One: b}}, sent)
		var got message
		require.NoError(t, Unmarshal(body, &got))
		require.Equal(t, sent, got)
	})
}

// FuzzUnescape: what is no escaped string is an error.
func FuzzUnescape(f *testing.F) {
	for _, bad := range []string{`\`, `\x`, `\x4`, `\xgg`, `\n`, `a\\\`} {
		_, err := unescape(bad)
		require.ErrorIs(f, err, errProtocol, bad)
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if plain, err := unescape(s); err == nil {
			again, err := unescape(escape(plain))
			require.NoError(t, err)
			require.Equal(t, plain, again)
		}
	})
}
