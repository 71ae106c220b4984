package build

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what has to come.
const patience = 5 * time.Minute

// privateDir is a folder that only this user can use, below folders that nobody else can write to.
func privateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cache")
	require.NoError(t, os.Mkdir(dir, 0o700))
	return dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

// newPackage makes a Go package whose program prints a word. The go command has never compiled it before.
func newPackage(t *testing.T, word string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.org/speaker\n\ngo 1.26\n")
	text := fmt.Sprintf("package main\n\n// %d\nfunc main() { println(%q) }\n", time.Now().UnixNano(), word)
	write(t, filepath.Join(dir, "main.go"), text)
	return dir
}

// setCacheHome sets the folder of the user's caches, and leaves the go command the cache that it has.
func setCacheHome(t *testing.T, dir string) {
	t.Helper()
	goCache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Skip("there is no go command")
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(goCache)))
	t.Setenv("XDG_CACHE_HOME", dir)
}

func noTempDir() (string, error) { return "", errors.New("the job's temporary folder was asked for") }

func says(t *testing.T, file string) string {
	t.Helper()
	out, err := exec.Command(file).CombinedOutput()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// The linker is the go command's own tool: with -toolexec, a script sees each call.
func TestBuildLinksAnUnchangedPackageOnce(t *testing.T) {
	source := newPackage(t, "one")
	log := filepath.Join(t.TempDir(), "tools")
	script := filepath.Join(t.TempDir(), "exec")
	require.NoError(t, os.WriteFile(script,
		[]byte("#!/bin/sh\nfor a in \"$@\"; do case $a in -V=full) exec \"$@\";; esac; done\n"+
			"basename $1 >> "+log+"\nexec \"$@\"\n"), 0o700))
	t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -toolexec="+script)
	setCacheHome(t, t.TempDir())
	links := func() int {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		return strings.Count(string(text), "link\n")
	}

	first, err := build(t.Context(), source, os.Stderr, noTempDir)
	require.NoError(t, err)
	require.Equal(t, "one", says(t, first))
	require.Equal(t, 1, links())
	again, err := build(t.Context(), source, os.Stderr, noTempDir)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, 1, links(), "an unchanged package is not linked again")

	write(t, filepath.Join(source, "main.go"), "package main\n\nfunc main() { println(\"two\") }\n")
	changed, err := build(t.Context(), source, os.Stderr, noTempDir)
	require.NoError(t, err)
	require.Equal(t, "two", says(t, changed))
	require.Equal(t, "one", says(t, first), "a job that runs the older program keeps it")
}

func TestBuildsAtOnceAreEachRight(t *testing.T) {
	setCacheHome(t, t.TempDir())
	sources := []string{newPackage(t, "red"), newPackage(t, "red"), newPackage(t, "blue")}
	words := []string{"red", "red", "blue"}
	var all sync.WaitGroup
	files := make([]string, 6)
	errs := make([]error, len(files))
	for i := range files {
		all.Go(func() { files[i], errs[i] = build(t.Context(), sources[i%3], os.Stderr, noTempDir) })
	}
	all.Wait()
	for i, file := range files {
		require.NoError(t, errs[i])
		require.Equal(t, words[i%3], says(t, file))
	}
	left, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "weft", "build", buildPrefix+"*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A spoiled program is not run: it does not have the hash that its folder is named after.
func TestBuildReplacesASpoiledProgram(t *testing.T) {
	c, err := openBuildCache(privateDir(t))
	require.NoError(t, err)
	compile := func(out string) error { return os.WriteFile(out, []byte("#!/bin/sh\necho good\n"), 0o700) }
	file, err := c.build("/src", "prog", func(out string) error { os.Remove(out); return compile(out) })
	require.NoError(t, err)
	write(t, file, "#!/bin/sh\necho bad\n")
	again, err := c.build("/src", "prog", func(out string) error { os.Remove(out); return compile(out) })
	require.NoError(t, err)
	require.Equal(t, file, again)
	require.Equal(t, "good", says(t, again))
}

func TestBuildCacheIsTheUsersAlone(t *testing.T) {
	dir := privateDir(t)
	c, err := openBuildCache(dir)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o750))
	_, err = openBuildCache(dir)
	require.ErrorContains(t, err, "chmod 700")
	require.NoError(t, os.Chmod(dir, 0o700))

	parent := filepath.Dir(dir)
	require.NoError(t, os.Chmod(parent, 0o777))
	_, err = openBuildCache(dir)
	require.ErrorContains(t, err, "where others can write")
	require.NoError(t, os.Chmod(parent, 0o777|os.ModeSticky))
	_, err = openBuildCache(dir)
	require.NoError(t, err, "nobody else can rename the folder")

	require.NoError(t, os.WriteFile(filepath.Join(parent, "file"), nil, 0o700))
	require.Error(t, checkPrivate(filepath.Join(parent, "file")))
	if os.Geteuid() != 0 {
		return
	}
	require.NoError(t, os.Chown(dir, 1234, -1))
	_, err = openBuildCache(dir)
	require.ErrorContains(t, err, "belongs to user 1234")
	require.NoError(t, os.Chown(dir, 0, -1))
	require.NoError(t, os.Chown(parent, 1234, -1))
	_, err = openBuildCache(dir)
	require.ErrorContains(t, err, "belongs to user 1234")
	require.NotNil(t, c)
}

// Without a safe cache a job builds into its own temporary folder.
func TestBuildWithoutACache(t *testing.T) {
	shared := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(shared, "weft", "build"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(shared, "weft", "build"), 0o777))
	setCacheHome(t, shared)
	temp := t.TempDir()
	file, err := build(t.Context(), newPackage(t, "here"), os.Stderr,
		func() (string, error) { return temp, nil })
	require.NoError(t, err)
	require.Equal(t, temp, filepath.Dir(file))
	require.Equal(t, "here", says(t, file))
}

func TestBuildCacheIsBounded(t *testing.T) {
	c, err := openBuildCache(privateDir(t))
	require.NoError(t, err)
	now := time.Now()
	for i := range 4 {
		file, err := c.build(fmt.Sprint("/src/", i), "prog", func(out string) error {
			return os.WriteFile(out, []byte(strings.Repeat(fmt.Sprint(i), 1000)), 0o700)
		})
		require.NoError(t, err)
		used := now.Add(time.Duration(i-4) * time.Hour)
		require.NoError(t, os.Chtimes(filepath.Dir(file), used, used))
	}
	crashed := filepath.Join(c.dir, buildPrefix+"crashed")
	require.NoError(t, os.Mkdir(crashed, 0o700))
	require.NoError(t, os.Chtimes(crashed, now.Add(-2*time.Hour), now.Add(-2*time.Hour)))
	programs := func() []string {
		files, err := filepath.Glob(filepath.Join(c.dir, "*", "prog"))
		require.NoError(t, err)
		return files
	}
	require.Len(t, programs(), 4)
	c.evict(2500, now)
	require.Len(t, programs(), 2)
	require.NoDirExists(t, crashed)
	c.evict(0, now.Add(-time.Hour))
	require.Len(t, programs(), 1, "what was used a moment ago stays")
}

// A build that takes long says what is built, on whatever standard error is.
func TestALongBuildIsTold(t *testing.T) {
	setCacheHome(t, t.TempDir())
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	tool, err := exec.LookPath("go")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), // it ends when the user has been told
		[]byte("#!/bin/sh\nuntil [ -e "+seen+" ]; do sleep 0.01; done\nexec "+tool+" \"$@\"\n"), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	told := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(r).ReadString('\n')
		told <- line
		os.WriteFile(seen, nil, 0o600)
	}()
	source := newPackage(t, "slow")
	_, err = build(t.Context(), source, w, noTempDir)
	require.NoError(t, err)
	require.Contains(t, <-told, "weft: go build "+source+" is under way")
}

// A build that is cancelled leaves no compiler behind, and no folder.
func TestCancelledBuildEnds(t *testing.T) {
	cache := t.TempDir()
	setCacheHome(t, cache)
	script := filepath.Join(t.TempDir(), "exec")
	started := filepath.Join(t.TempDir(), "pid")
	require.NoError(t, os.WriteFile(script,
		[]byte("#!/bin/sh\nfor a in \"$@\"; do case $a in -V=full) exec \"$@\";; esac; done\n"+
			"echo $$ > "+started+".tmp; mv "+started+".tmp "+started+"\nexec sleep 600\n"), 0o700))
	t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -toolexec="+script)
	ctx, cancel := context.WithCancelCause(t.Context())
	source := newPackage(t, "never")
	result := make(chan error, 1)
	go func() {
		_, err := build(ctx, source, os.Stderr, noTempDir)
		result <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(started); return err == nil }, patience,
		time.Millisecond)
	reason := errors.New("enough")
	cancel(reason)
	require.ErrorIs(t, <-result, reason)
	text, err := os.ReadFile(started)
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscan(string(text), &pid)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }, patience,
		time.Millisecond)
	left, err := filepath.Glob(filepath.Join(cache, "weft", "build", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
