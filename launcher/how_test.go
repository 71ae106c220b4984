package launcher

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A caller of Run can tell every way in which a job fails, each of which is described.
func TestHow_EveryOneIsExported(t *testing.T) {
	code, err := os.ReadFile("internal/supervisor/failure.go")
	require.NoError(t, err)
	exported, err := os.ReadFile("run.go")
	require.NoError(t, err)
	_, constants, _ := strings.Cut(string(code), "const (\n")
	constants, _, _ = strings.Cut(constants, "\n)")
	ways := regexp.MustCompile(`(?m)^\t([A-Z]\w+)`).FindAllStringSubmatch(constants, -1)
	require.Len(t, ways, int(RanksLost)+1)
	for _, way := range ways {
		is := `\t` + way[1] + ` += supervisor\.` + way[1]
		require.Regexp(t, is+` +//|//.*\n`+is+`\n`, string(exported))
	}
	for field := range reflect.TypeFor[Failure]().Fields() { // go doc does not show the fields of an alias
		kind := strings.TrimPrefix(field.Type.String(), "supervisor.")
		require.Regexp(t, `//\t`+field.Name+` +`+kind+`\n|//\t`+field.Name+` +`+kind+` +//`, string(exported))
	}
}
