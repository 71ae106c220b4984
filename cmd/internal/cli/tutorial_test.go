package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const modulePath = "github.com/weft-mpi/weft"

// A tutorial is the program of docs/tutorial.md as far as the page has come, in a folder of its own.
type tutorial struct {
	t       *testing.T
	dir     string
	program string // main.go
	hosts   bool   // the commands with --host are run, and those that make hosts; the others are not
	env     []string
}

// play goes through the page: it writes the program that a block shows, and runs the commands of a block.
func (u *tutorial) play(page string) (commands int) {
	for i, part := range strings.Split(page, "```") {
		if i%2 == 0 {
			continue // between blocks
		}
		language, text, _ := strings.Cut(part, "\n")
		switch {
		case language == "go" && strings.HasPrefix(text, "package"):
			u.program = text
		case language == "go":
			head, _, found := strings.Cut(u.program, "func rank(")
			require.True(u.t, found)
			if u.program = head + text; strings.Contains(text, "Sendrecv") {
				u.write("exchange.go.txt")
			}
		case strings.HasPrefix(text, "$ "):
			if u.hosts && strings.Contains(text, "--host ") {
				u.program = u.read("exchange.go.txt") // "Put step 5 back"
			}
			u.write("main.go")
			commands += u.run(text)
		}
	}
	return commands
}

func (u *tutorial) write(name string) {
	require.NoError(u.t, os.WriteFile(filepath.Join(u.dir, name), []byte(u.program), 0o600))
}

func (u *tutorial) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(u.dir, name))
	return string(text)
}

// run runs the commands of a block, each followed by what it prints, in any order.
func (u *tutorial) run(block string) (commands int) {
	for session := range strings.SplitSeq(strings.TrimPrefix(block, "$ "), "\n$ ") {
		command, printed, _ := strings.Cut(session, "\n")
		if ofHosts := strings.Contains(command, "--host ") || strings.HasPrefix(command, "ip "); ofHosts != u.hosts {
			continue
		}
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir, cmd.Env = u.dir, append(os.Environ(), u.env...)
		out, _ := cmd.CombinedOutput()
		got, want := comparableLines(string(out)), comparableLines(printed)
		if slices.Contains(want, "…") {
			for _, line := range want {
				require.True(u.t, line == "…" || slices.Contains(got, line), "%s\nprints\n%s\nwithout\n%s",
					command, out, line)
			}
		} else {
			require.Equal(u.t, want, got, "%s", command)
		}
		commands++
	}
	return commands
}

var (
	waited = regexp.MustCompile(`for [0-9.]+m?s`)
	bound  = regexp.MustCompile(`pid [0-9]+ on (\S+), .*`) // to which processors depends on the machine
)

func comparableLines(text string) []string {
	text = bound.ReplaceAllString(waited.ReplaceAllString(text, "for a while"), "on $1")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "weft: go build ") })
	slices.Sort(lines)
	return lines
}

// newTutorial makes a module that uses this copy of weft, where the page installs a version.
func newTutorial(t *testing.T) *tutorial {
	u := &tutorial{t: t, dir: t.TempDir()}
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	sums, err := os.ReadFile("../../../go.sum")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(u.dir, "go.sum"), sums, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(u.dir, "go.mod"), fmt.Appendf(nil, "module example.org/rod\n\n"+
		"go 1.26\n\nrequire github.com/weft-mpi/weft v0.0.0\n\nreplace github.com/weft-mpi/weft => %s\n", root),
		0o600))
	bin := t.TempDir()
	out, err := exec.Command("go", "build", "-o", bin, "../../weft").CombinedOutput()
	require.NoError(t, err, "%s", out)
	u.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "GOFLAGS=-mod=mod"}
	return u
}

// TestPage_Tutorial does what docs/tutorial.md says, from an empty folder to step 6.
func TestPage_Tutorial(t *testing.T) {
	page := readPage(t, "docs/tutorial.md")
	require.Equal(t, 6, newTutorial(t).play(page))
}

// README's commands install weft and the library, and its program prints what README says.
func TestPage_README(t *testing.T) {
	page := readPage(t, "README.md")
	_, install, found := strings.Cut(page, "```\ngo install ")
	require.True(t, found)
	install, _, _ = strings.Cut(install, "```")
	u := &tutorial{t: t, dir: t.TempDir(), env: published(t)}
	cmd := exec.Command("sh", "-ec", "go install "+install)
	cmd.Dir, cmd.Env = u.dir, append(os.Environ(), u.env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	u.dir = filepath.Join(u.dir, "hello")
	require.Equal(t, 1, u.play(page))
}

// published returns an environment for the go command in which this copy of weft is the latest version, and what
// it installs is in PATH.
func published(t *testing.T) []string {
	proxy, gopath := t.TempDir(), t.TempDir()
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	require.NoError(t, err)
	cache, others, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	dir := filepath.Join(proxy, modulePath, "@v")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	write := func(name string, text []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	version := module.Version{Path: modulePath, Version: "v0.1.0"}
	var archive bytes.Buffer
	require.NoError(t, zip.CreateFromDir(&archive, version, "../../.."))
	write(version.Version+".zip", archive.Bytes())
	write(version.Version+".mod", []byte(text(t, "go.mod")))
	write(version.Version+".info", []byte(`{"Version": "v0.1.0", "Time": "2026-01-01T00:00:00Z"}`))
	write("list", []byte(version.Version+"\n"))
	return []string{
		"GOPATH=" + gopath, "GOMODCACHE=", "GOBIN=", "PATH=" + filepath.Join(gopath, "bin") + ":" + os.Getenv("PATH"),
		"GOPROXY=file://" + proxy + ",file://" + cache + "/cache/download," + others, "GOSUMDB=off",
		"GOFLAGS=-modcacherw -pgo=off", // so that the test can remove the cache, and for a shorter build
	}
}

// TestHosts_Tutorial does step 7 of docs/tutorial.md.
func TestHosts_Tutorial(t *testing.T) {
	c := newCluster(t, 2)
	page, err := os.ReadFile("../../../docs/tutorial.md")
	require.NoError(t, err)
	u := newTutorial(t)
	u.hosts = true
	u.env[0] = "PATH=" + c.dir + ":" + os.Getenv("PATH")
	text := strings.ReplaceAll(string(page), "weft run --host hostA:2,hostB:2", "ip netns exec "+c.head+
		" weft run --starter 'ssh -F "+c.dir+"/ssh_config {host}' --host 10.77.0.1:2,10.77.0.2:2")
	for _, name := range []string{"rod1", "rod2"} {
		own := fmt.Sprintf("%s-%d", name, os.Getpid())
		text = strings.ReplaceAll(text, name, own)
		t.Cleanup(func() { exec.Command("ip", "netns", "del", own).Run() }) // where the page did not come so far
	}
	require.Equal(t, 11, u.play(text))
}
