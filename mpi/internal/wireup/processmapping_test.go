package wireup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProcessMapping(t *testing.T) {
	for text, want := range map[string][]int{
		"(vector,(0,1,4))":                   {0, 0, 0, 0},
		"(vector,(0,2,2))":                   {0, 0, 1, 1},
		"(vector, (0,1,1), (2,1,2),(0,1,1))": {0, 2, 2, 0},
		"(vector,(0,2,3))":                   nil, // of 6 ranks
		"(vector,(0,1,3))":                   nil,
		"(vector,(0,1))":                     nil,
		"(vector,(0,-1,4))":                  nil,
		"(vector,(0,1,4)":                    nil,
		"(vector)":                           nil,
		"":                                   nil,
	} {
		require.Equal(t, want, parseMapping(text, 4), text)
	}
}

func FuzzProcessMapping(f *testing.F) {
	f.Add("(vector,(0,2,2),(2,1,1))", 5)
	f.Add("(vector,(0,9223372036854775807,9223372036854775807))", 4)
	f.Fuzz(func(t *testing.T, text string, size int) {
		if size < 1 || size > 1000 {
			return
		}
		if hosts := parseMapping(text, size); hosts != nil {
			require.Len(t, hosts, size)
		}
	})
}
