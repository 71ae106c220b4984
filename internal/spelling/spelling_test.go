package spelling

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearest(t *testing.T) {
	words := []string{"bind-to", "report-bindings", "fabric", "lanes", "timeout", "n", "np", "tls"}
	for word, want := range map[string]string{
		"bindto": "bind-to", "bind_to": "bind-to", "Bind-To": "bind-to", "fabrci": "fabric",
		"lane": "lanes", "time-out": "timeout",
		"report-binding": "report-bindings", "tsl": "tls", "": "", "m": "", "hostlist": "", "quux": "",
		strings.Repeat("lanes", 1000): "",
	} {
		require.Equal(t, want, Nearest(word, words), "%.40q", word)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"kitten", "sitting", 3},
		{"ca", "abc", 3}} {
		require.Equal(t, c.want, distance(c.a, c.b), "%q %q", c.a, c.b)
		require.Equal(t, c.want, distance(c.b, c.a), "%q %q", c.b, c.a)
	}
}
