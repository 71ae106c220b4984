package mpi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/reference/from-mpi.md names, for each procedure of MPI, what stands for it here: all names on the page exist, and
// the counts are right.
func TestFromMPI(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/from-mpi.md")
	require.NoError(t, err)
	known := map[string]map[string]bool{}
	for _, name := range []string{"", "file", "pool"} {
		known[name] = exported(t, filepath.Join(".", name))
	}
	name := regexp.MustCompile("`(?:(file|pool)\\.)?([A-Z]\\w*(?:\\.[A-Z]\\w*)?)`")
	type count struct{ procedures, named int }
	said, found, all := map[string]count{}, map[string]count{}, count{}
	chapter := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			chapter = title
			continue
		}
		for _, m := range name.FindAllStringSubmatch(line, -1) {
			require.True(t, known[m[1]][m[2]], "%s: package mpi/%s has no %s", line, m[1], m[2])
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		switch {
		case len(cells) == 3 && cells[0] != "chapter":
			procedures, err := strconv.Atoi(cells[1])
			require.NoError(t, err, line)
			named, err := strconv.Atoi(cells[2])
			require.NoError(t, err, line)
			said[cells[0]] = count{procedures, named}
		case len(cells) == 2 && strings.HasPrefix(cells[0], "MPI_") &&
			chapter != "Constants, types and operators":
			n, c := strings.Count(cells[0], "MPI_"), found[chapter]
			c.procedures += n
			if !strings.HasPrefix(cells[1], "none") {
				c.named += n
			}
			found[chapter] = c
		}
	}
	for _, c := range found {
		all.procedures += c.procedures
		all.named += c.named
	}
	found["all"] = all
	require.Equal(t, found, said)
}

// exported are the names that the package in a folder exports, methods with their type's.
func exported(t *testing.T, dir string) map[string]bool {
	names := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = receiver(d.Recv.List[0].Type) + "." + name
				}
				names[name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names[s.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range s.Names {
							names[n.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
