package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The patterns that docs/guide/failures.md teaches are parts of programs that are run.
func TestThePatternsOfTheDocsAreCode(t *testing.T) {
	unindented := func(text string) string { return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(text, "") }
	var code strings.Builder
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range append(files, "../../mpi/checkpoint/example_test.go") {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(b)
	}
	page, err := os.ReadFile("../../docs/guide/failures.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 3)
	for _, b := range blocks {
		require.Contains(t, unindented(code.String()), unindented(b[1]))
	}
}
