package program

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// PanicStack begins where the program panicked, whether it called panic or the runtime did.
func TestPanicStack(t *testing.T) {
	for name, body := range map[string]func(){
		"panic":       func() { panic("lost") },
		"nil pointer": func() { var p *struct{ a int }; p.a++ },
	} {
		var stack string
		func() {
			defer func() {
				require.NotNil(t, recover(), name)
				stack = PanicStack(debug.Stack())
			}()
			body()
		}()
		lines := strings.Split(stack, "\n")
		require.Regexp(t, `^goroutine \d+ `, lines[0], name)
		require.Contains(t, lines[1], "TestPanicStack.func", name)
		require.NotContains(t, stack, "debug.Stack", name)
		require.Contains(t, stack, "testing.tRunner", name)
	}
	whole := string(debug.Stack())
	require.Equal(t, whole, PanicStack([]byte(whole)))
}
