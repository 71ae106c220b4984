package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The messages on docs/guide/troubleshooting.md are messages of the code, and every error that package mpi exports
// is there.
func TestTroubleshooting(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guide/troubleshooting.md")
	require.NoError(t, err)
	code := strings.Join(messages(t), "\n")
	span := regexp.MustCompile("`([^`]+)`")
	checked := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) < 2 || cells[0] == "message" || cells[0] == "error" {
			continue
		}
		at := len(cells) - 2 // the message stands before what to do
		for _, m := range span.FindAllStringSubmatch(cells[at], -1) {
			longest := 0
			for part := range strings.SplitSeq(m[1], "…") {
				part = strings.Trim(part, " ")
				assert.True(t, strings.Contains(code, part), "no message of the code is %q", m[1])
				longest = max(longest, len(part))
			}
			require.Greater(t, longest, 7, "%q could be any message", m[1])
			checked++
		}
	}
	require.Greater(t, checked, 70)
	exported, err := os.ReadFile("../../../mpi/errors.go")
	require.NoError(t, err)
	names := regexp.MustCompile(`(?m)^\t(Err\w+) += `).FindAllStringSubmatch(string(exported), -1)
	require.Greater(t, len(names), 20)
	for _, name := range names {
		require.Contains(t, string(page), "| `"+name[1]+"` | ")
	}
}

// messages are the string constants of the programs and packages, without verbs.
func messages(t *testing.T) (texts []string) {
	verb := regexp.MustCompile(`%(\[\d+\])?[-+#.\d]*[a-zA-Z]`)
	for _, dir := range []string{"cmd", "internal", "launcher", "mpi", "transport"} {
		err := filepath.WalkDir("../../../"+dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				e, is := n.(ast.Expr)
				if !is {
					return true
				}
				if text, is := constant(e); is {
					texts = append(texts, verb.ReplaceAllString(text, "…"))
					return false
				}
				return true
			})
			return nil
		})
		require.NoError(t, err)
	}
	return texts
}

// constant is the text of a string constant that is written in one or several pieces.
func constant(e ast.Expr) (text string, is bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			x, isX := constant(e.X)
			y, isY := constant(e.Y)
			return x + y, isX && isY
		}
	}
	return "", false
}
