package wireup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCard(t *testing.T) {
	c := Card{"tcp": "127.0.0.1:4711", "shm": "@a/b:c"}
	require.Equal(t, "shm=@a/b:c;tcp=127.0.0.1:4711", c.String())
	again, err := ParseCard(c.String())
	require.NoError(t, err)
	require.Equal(t, c, again)
	for _, text := range []string{"", "tcp", "=x", "tcp=", "tcp=a;", "tcp=a;tcp=b"} {
		_, err := ParseCard(text)
		require.ErrorContains(t, err, "invalid card", text)
	}
}

func FuzzCard(f *testing.F) {
	f.Add("shm=@a/b:c;tcp=127.0.0.1:4711")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCard(text)
		if err != nil {
			return
		}
		again, err := ParseCard(c.String())
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}
