package cli

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pagePatience bounds what a block of the page takes on a machine that does much else; it turns a hang into a
// failure.
const pagePatience = 5 * time.Minute

// A pageBlock is a console block of a page: what is typed, and what is printed. A line ^C stands for Ctrl-C.
type pageBlock struct {
	line     int // where it begins
	commands []string
	printed  []string // up to ^C
	stopped  bool     // by ^C
	after    []string // of which all have to come after it
}

// looser are blocks of which two runs differ. All others are compared line by line, but for durations, process
// ids and the name of the host.
var looser = []struct {
	command  string // a part of it
	anyOrder bool   // ranks write at the same time
	figures  bool   // numbers differ, but for source lines, tags and ranks; lines may come in any order
	rows     bool   // of a rank's line only its number and its host are the same each time
}{
	{command: "mpiexec.hydra", anyOrder: true},
	{command: "./ring", anyOrder: true},
	{command: "solver input", figures: true},
	{command: "solver log", figures: true},
	{command: "weft show", figures: true},
	{command: "--report", figures: true},
	{command: "--profile", figures: true},
	{command: "--trace", figures: true},
	{command: "--stats", figures: true},
	{command: "WEFT_METRICS", figures: true},
	{command: "solver steps 100000", figures: true, rows: true},
	{command: "weft top", figures: true},
}

// pageBlocks are the blocks of a page that begin with a command.
func pageBlocks(page string) (list []*pageBlock) {
	var b *pageBlock
	fenced := false
	for i, line := range strings.Split(page, "\n") {
		command, is := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			fenced, b = !fenced, nil
		case fenced && is && b == nil:
			b = &pageBlock{line: i + 1, commands: []string{command}}
			list = append(list, b)
		case b == nil:
		case is:
			b.commands = append(b.commands, command)
		case line == "^C":
			b.stopped = true
		case b.stopped:
			b.after = append(b.after, line)
		default:
			b.printed = append(b.printed, line)
		}
	}
	return list
}

func (b *pageBlock) has(part string) bool {
	return slices.ContainsFunc(b.commands, func(c string) bool { return strings.Contains(c, part) })
}

// lacks reports whether the block needs a program that is not installed here.
func (b *pageBlock) lacks(program string) bool {
	_, err := exec.LookPath(program)
	return err != nil && b.has(program)
}

// partly reports whether the page leaves out some of what is printed.
func (b *pageBlock) partly() bool { return slices.Contains(b.printed, "…") }

// background reports whether a command goes on when the block is over.
func (b *pageBlock) background() bool { return b.has(" &") }

// settled waits until the job that runs in the background has come so far that every rank is in the program.
const settled = "until weft top --once $! 2>/dev/null | grep -Eq '^[0-9]+ w[a-z]+(, [0-9]+ w[a-z]+)?;'; do :; done"

// script is what the shell is given.
func (b *pageBlock) script() string {
	var s strings.Builder
	for _, c := range b.commands {
		s.WriteString(c + "\n")
		if strings.HasSuffix(c, " &") {
			s.WriteString(settled + "\n")
		}
	}
	if b.background() && b.partly() {
		s.WriteString("echo " + pageEnd + "\n")
	}
	return s.String()
}

// pageEnd is printed where the commands are over that are not in the background.
const pageEnd = "end of the block"

// run runs the commands in a new folder, and returns what they print, up to ^C and after it.
func (b *pageBlock) run(dir, solver string) (printed, after []string, err error) {
	env, err := pageEnviron(dir, solver)
	if err != nil {
		return nil, nil, err
	}
	script, err := withFreePort(b.script())
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, env, &syscall.SysProcAttr{Setpgid: true}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = in, in
	err = cmd.Start()
	in.Close()
	if err != nil {
		return nil, nil, err
	}
	group := -cmd.Process.Pid
	late := time.AfterFunc(pagePatience, func() { syscall.Kill(group, syscall.SIGKILL) })
	defer late.Stop()
	defer cmd.Wait() // every process that can write has ended, or all have been killed
	ended := false
	end := func(s syscall.Signal) {
		ended = true
		syscall.Kill(group, s)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		switch {
		case ended:
			after = append(after, line)
			continue
		case line != pageEnd:
			printed = append(printed, line)
		}
		all := len(printed) == len(b.printed) && !b.partly()
		switch {
		case b.background() && (all || line == pageEnd):
			end(syscall.SIGTERM)
		case b.stopped && all:
			end(syscall.SIGINT)
		}
	}
	return printed, after, err
}

// pageEnviron makes the folder of a block: with the program, and where no jobs of others are seen.
func pageEnviron(dir, solver string) ([]string, error) {
	run := filepath.Join(dir, "run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		return nil, err
	}
	// A command built with the race detector would sleep for a second at its end.
	return append(os.Environ(), "XDG_RUNTIME_DIR="+run, "TMPDIR="+run, "GORACE=atexit_sleep_ms=0"),
		os.Symlink(solver, filepath.Join(dir, "solver"))
}

// withFreePort puts a port that nobody has in the place of the page's.
func withFreePort(script string) (string, error) {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return strings.ReplaceAll(script, ":5711", ":"+port), err
}

var (
	durations = regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?(ns|µs|ms|s)\b`)
	processes = regexp.MustCompile(`(pid|-CONT) \d+`)
	addresses = regexp.MustCompile(`0x[0-9a-f]+`)
	numbers   = regexp.MustCompile(`solver\.go:\d+|tag \d+|(rank|size)=\d+|rank="\d+"|` +
		`-?\d([-\d.,:/T]*\d)?[kMGTZ]?%?`)
	rowOfARank  = regexp.MustCompile(`^(\d+) (\S+) (waiting|working) .*, at solver\.go:\d+$`)
	statesOfAll = regexp.MustCompile(`^\d+ (waiting|working)(, \d+ working)?; `)
	channels    = regexp.MustCompile(`\b(NxN )+`)
	choices     = regexp.MustCompile(`\S+, chosen of .*`)
	manyRanks   = regexp.MustCompile(`^ranks? N: `)
)

// comparable are lines in the form that is compared.
func (b *pageBlock) comparable(lines []string) (list []string) {
	host, _ := os.Hostname()
	hosts := regexp.MustCompile(`\b` + regexp.QuoteMeta(host) + `\b`)
	anyOrder, figures, rows := b.partly(), false, false
	for _, l := range looser {
		if b.has(l.command) {
			anyOrder, figures, rows = anyOrder || l.anyOrder || l.figures, figures || l.figures, rows || l.rows
		}
	}
	for _, line := range lines {
		line = strings.Join(strings.Fields(hosts.ReplaceAllString(line, "vm")), " ")
		if rows {
			line = statesOfAll.ReplaceAllString(rowOfARank.ReplaceAllString(line, "row of a rank on $2"), "states; ")
		}
		line = processes.ReplaceAllString(durations.ReplaceAllString(line, "T"), "$1 N")
		line = addresses.ReplaceAllString(line, "0xN")
		if figures {
			line = numbers.ReplaceAllStringFunc(line, func(s string) string {
				if s[0] == 's' || s[0] == 't' || s[0] == 'r' {
					return s
				}
				return "N"
			})
			// A time that is known roughly, an algorithm that suits the machine, channels, of which there may
			// be none yet, and ranks that say it alike.
			line = strings.NewReplacer(" ~ ", " ", "( ", "(").Replace(line)
			line = choices.ReplaceAllString(line, "an algorithm")
			line = manyRanks.ReplaceAllString(channels.ReplaceAllString(line, ""), "")
		}
		if line != "" {
			list = append(list, line)
		}
	}
	if anyOrder {
		slices.Sort(list)
	}
	if figures {
		list = slices.Compact(list)
	}
	return list
}

// differs says how what is printed differs from the page; empty if it does not.
func (b *pageBlock) differs(printed []string) string {
	want, got := b.comparable(b.printed), b.comparable(printed)
	if !b.partly() {
		if slices.Equal(want, got) {
			return ""
		}
		return fmt.Sprintf("the page has\n%s\n\nprinted was\n%s\n", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	return absent(want, got)
}

// absent says which lines are not there.
func absent(want, got []string) string {
	for _, line := range want {
		if line != "…" && !slices.Contains(got, line) {
			return fmt.Sprintf("the page has\n%s\n\nwhich is not in\n%s\n", line, strings.Join(got, "\n"))
		}
	}
	return ""
}

// check runs a block, and says what is wrong with it; empty if nothing is.
func (b *pageBlock) check(dir, solver string) string {
	printed, after, err := b.run(dir, solver)
	wrong := b.differs(printed)
	if wrong == "" {
		wrong = absent(b.comparable(b.after), b.comparable(after))
	}
	if err != nil {
		wrong += err.Error()
	}
	if wrong == "" {
		return ""
	}
	return fmt.Sprintf("%d: %s\n%s\nas it was printed:\n%s", b.line,
		strings.Join(b.commands, "\n"), wrong, strings.Join(append(printed, after...), "\n"))
}

// Every command of docs/guide/debugging.md prints what the page says.
func TestPage_Debugging(t *testing.T) {
	page := readPage(t, "docs/guide/debugging.md")
	solver := filepath.Join(t.TempDir(), "solver")
	out, err := exec.Command("go", "build", "-o", solver, "./testdata/debugging").CombinedOutput()
	require.NoError(t, err, "%s", out)
	blocks := pageBlocks(page)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		t.Run(fmt.Sprintf("line %d", b.line), func(t *testing.T) {
			if b.lacks("mpiexec.hydra") || b.lacks("curl") {
				t.Skip("a program is not installed")
			}
			if wrong := b.check(t.TempDir(), solver); wrong != "" {
				t.Fatal("docs/guide/debugging.md:" + wrong)
			}
		})
	}
}
