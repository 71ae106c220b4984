// Package build finds the program that a user names, and builds it if it is a Go package. Builds are kept in
// the user's cache folder.
package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/printable"
	"github.com/weft-mpi/weft/internal/sys"
)

// buildGrace is the time that a cancelled go command has to end.
const buildGrace = 5 * time.Second

// An Error reports a program that cannot be started, with the exit status that a shell would give.
type Error struct {
	Status int // 127: not found; 126: found, and cannot be executed; 1: a Go package that does not build
	What   string
}

func (e *Error) Error() string { return e.What }

// Program finds the file to execute for the program that the user named: a command in PATH, a file, or a Go
// package, which is built into the folder that tempDir returns. A relative name counts from where the
// launcher runs, not from the ranks' folder.
func Program(ctx context.Context, name string, stderr *os.File, tempDir func() (string, error)) (string,
	error) {
	if IsGo(name) {
		return build(ctx, name, stderr, tempDir)
	}
	info, err := os.Stat(name)
	if isBare(name) {
		path, lookErr := exec.LookPath(name)
		if lookErr == nil {
			return filepath.Abs(path)
		}
		if err == nil {
			return "", &Error{127,
				fmt.Sprintf("%s: not found in PATH; for the one in this folder write ./%s", name, name)}
		}
		return "", &Error{127, fmt.Sprintf("%s: not found in PATH", name)}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "", &Error{127, name + ": no such file"}
	case err != nil:
		return "", &Error{126, err.Error()}
	case info.IsDir():
		return "", &Error{126, name + ": a folder without Go files"}
	case info.Mode()&0o111 == 0:
		return "", &Error{126, fmt.Sprintf("%s: not executable; if it is a program: chmod +x %s",
			name, name)}
	}
	return filepath.Abs(name)
}

// isBare reports whether a name is that of a command, as it is for a shell.
func isBare(name string) bool {
	return !strings.ContainsRune(name, filepath.Separator) && name != "." && name != ".."
}

// IsGo reports whether the name is that of a Go file or of a folder with Go files.
func IsGo(name string) bool {
	info, err := os.Stat(name)
	if err != nil {
		return false
	}
	if !info.IsDir() {
		return strings.HasSuffix(name, ".go")
	}
	if isBare(name) {
		return false
	}
	files, _ := os.ReadDir(name)
	return slices.ContainsFunc(files, func(f fs.DirEntry) bool { return strings.HasSuffix(f.Name(), ".go") })
}

// build compiles a Go file or folder and returns the program's file. The compiler writes its messages to
// stderr. The program lies in the user's build cache, where a later build of the same source finds it, or
// where there can be no such cache, in tempDir.
func build(ctx context.Context, name string, stderr *os.File, tempDir func() (string, error)) (string,
	error) {
	tool, err := exec.LookPath("go")
	if err != nil {
		return "", &Error{127,
			fmt.Sprintf("%s is Go source, and there is no go command in PATH to build it with", name)}
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return "", &Error{126, err.Error()}
	}
	compile := func(out string) error { return compile(ctx, tool, path, out, name, stderr) }
	base := strings.TrimSuffix(filepath.Base(path), ".go")
	if cache, err := userBuildCache(); err == nil {
		file, err := cache.build(path, base, compile)
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EROFS) &&
			!errors.Is(err, syscall.EDQUOT) {
			return file, err
		}
	}
	temp, err := tempDir()
	if err != nil {
		return "", &Error{126, fmt.Sprintf("no folder to build %s in: %v", name, err)}
	}
	file := filepath.Join(temp, base)
	return file, compile(file)
}

// quiet is the time after which a build is announced. Most take less, as the go command has a cache.
const quiet = 3 * time.Second

// compile builds the package or Go file at path into out with the go command.
func compile(ctx context.Context, tool, path, out, name string, stderr *os.File) error {
	dir, target := path, "."
	if strings.HasSuffix(path, ".go") {
		dir, target = filepath.Split(path)
	}
	// Build in the package's folder, so that its module applies.
	cmd := exec.CommandContext(ctx, tool, "build", "-o", out, target)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, stderr, stderr
	// A build that is cancelled ends with its compilers, and the go command removes its temporary files.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return sys.SignalGroup(cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = buildGrace
	notice := time.AfterFunc(quiet, func() {
		fmt.Fprintln(stderr, printable.Text("weft: go build "+name+
			" is under way; the first build takes longest"))
	})
	defer notice.Stop()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &Error{1, fmt.Sprintf("%s does not build", name)}
	}
	if info, err := os.Stat(out); err != nil || info.Mode()&0o111 == 0 {
		return &Error{126, fmt.Sprintf("%s is not a program: its package is not main", name)}
	}
	return nil
}
