package chaostest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// The variables that have the test's binary play a rank that only starts, an unauthenticated caller, or the test itself where
// it may flood.
const (
	starterVariable = "CHAOS_STARTER"
	callerVariable  = "CHAOS_UNAUTHENTICATED"
	insideVariable  = "CHAOS_INSIDE"
)

func playStarts() {
	if os.Getenv(starterVariable) != "" {
		err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
			return mpi.Barrier(world)
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if kind := os.Getenv(callerVariable); kind != "" {
		beUnauthenticated(kind == "tls", os.Getenv(notesVariable))
	}
}

// TestManyRanksStart starts jobs of 128 and 256 ranks, alone and while processes of another user connect to
// every socket that they find, over and over. WEFT_TEST_STARTS is the number of jobs of each kind.
func TestManyRanksStart(t *testing.T) {
	jobs, _ := strconv.Atoi(os.Getenv("WEFT_TEST_STARTS"))
	switch {
	case jobs < 1:
		t.Skip("set WEFT_TEST_STARTS to the number of jobs")
	case os.Geteuid() != 0:
		t.Skip("only root can act for another user")
	case os.Getenv(insideVariable) == "":
		insideOfItsOwn(t)
		return
	}
	require.NoError(t, upLoopback())
	h := newTestHarness(t)
	var summary strings.Builder
	for _, c := range []struct {
		ranks           int
		unauthenticated string
		options         []string
	}{
		{128, "", nil}, {256, "", nil}, {128, "plain", nil}, {256, "plain", nil},
		{32, "plain", []string{"--fabric", "tcp"}}, {32, "tls", []string{"--fabric", "tcp"}},
		{32, "plain", []string{"--fabric", "tcp", "--tls"}}, {32, "tls", []string{"--fabric", "tcp", "--tls"}},
	} {
		name := fmt.Sprintf("%d ranks", c.ranks)
		if len(c.options) > 0 {
			name += " " + strings.Join(c.options, " ")
		}
		if c.unauthenticated != "" {
			name += ", " + c.unauthenticated + " unauthenticated callers"
		}
		t.Run(name, func(t *testing.T) {
			calls := h.unauthenticated(t, c.unauthenticated)
			failed, longest := 0, time.Duration(0)
			for job := range jobs {
				began := time.Now()
				if err := h.start(c.ranks, c.options); err != nil {
					failed++
					t.Errorf("job %d: %v", job, err)
				}
				longest = max(longest, time.Since(began))
			}
			if c.unauthenticated != "" {
				require.Greater(t, calls(), jobs, "the unauthenticated callers called")
			}
			fmt.Fprintf(&summary, "%d jobs of %-46s %d failed; the longest took %4.1f s; %d unauthenticated calls\n",
				jobs, name+":", failed, longest.Seconds(), calls())
		})
	}
	fmt.Print(summary.String())
}

// insideOfItsOwn runs the test in a network of its own, where nobody else is flooded.
func insideOfItsOwn(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestManyRanksStart$", "-test.v", "-test.timeout=0")
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("no network of its own: ", err)
	}
	require.NoError(t, err)
}

func upLoopback() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var request struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], "lo")
	request.flags = syscall.IFF_UP
	_, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS,
		uintptr(unsafe.Pointer(&request)))
	if e != 0 {
		return e
	}
	return nil
}

// maxWarnings is how many lines about unauthenticated a job may print: each rank says a few, and how many it left
// out.
const maxWarnings = 40

// start runs a job that has to end well.
func (h Harness) start(ranks int, options []string) error {
	args := append([]string{"run", "-n", strconv.Itoa(ranks), "--bind-to", "none", "--timeout", "4m"}, options...)
	cmd := exec.Command(h.Weft, append(args, h.Program)...)
	cmd.Env = append(os.Environ(), starterVariable+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	text := out.String()
	if err != nil {
		return fmt.Errorf("%w\n%.4000s", err, text)
	}
	if n := strings.Count(text, "\n"); n > maxWarnings*ranks {
		return fmt.Errorf("%d lines of output\n%.4000s", n, text)
	}
	return nil
}

// unauthenticated starts processes of another user that call until the test is over, and counts their calls.
func (h Harness) unauthenticated(t *testing.T, kind string) (calls func() int) {
	notes := t.TempDir()
	for dir := notes; dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o777))
	}
	const nobody, processes = 65534, 3
	for range processes {
		if kind == "" {
			break
		}
		cmd := exec.Command(h.Program)
		cmd.Env = []string{callerVariable + "=" + kind, notesVariable + "=" + notes}
		cmd.Dir, cmd.Stderr = "/", os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
			Pdeathsig: syscall.SIGKILL}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	}
	return func() (sum int) {
		files, _ := filepath.Glob(filepath.Join(notes, "*[0-9]"))
		for _, file := range files {
			text, _ := os.ReadFile(file)
			n, _ := strconv.Atoi(string(text))
			sum += n
		}
		return sum
	}
}

// beUnauthenticated calls everybody, and notes how often.
func beUnauthenticated(encrypted bool, notes string) {
	file := filepath.Join(notes, strconv.Itoa(os.Getpid()))
	note := func(calls int) { // as a whole, for it is read meanwhile
		os.WriteFile(file+".new", []byte(strconv.Itoa(calls)), 0o666)
		os.Rename(file+".new", file)
	}
	for calls := 0; ; {
		for _, at := range listeners() {
			c, err := net.DialTimeout(at.network, at.address, time.Second)
			if err != nil {
				continue
			}
			calls++
			c.SetDeadline(time.Now().Add(20 * time.Millisecond))
			if encrypted {
				tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake()
			} else if calls%2 == 0 {
				c.Write([]byte("let me in"))
				c.Read(make([]byte, 100))
			}
			c.Close()
			if calls%20 == 0 {
				note(calls)
			}
		}
		note(calls)
		time.Sleep(time.Millisecond)
	}
}

type listener struct{ network, address string }

// listeners are the sockets of ranks that anybody can see.
func listeners() (list []listener) {
	for _, s := range abstractSockets() {
		if strings.HasPrefix(s.name, "@weft-") {
			list = append(list, listener{"unixpacket", s.name})
		}
	}
	text, _ := os.ReadFile("/proc/net/tcp")
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[3] != "0A" { // LISTEN
			continue
		}
		_, port, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(port, 16, 16); err == nil {
			list = append(list, listener{"tcp", fmt.Sprintf("127.0.0.1:%d", n)})
		}
	}
	return list
}
