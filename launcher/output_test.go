package launcher

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func init() {
	modes["yes"] = func() {
		for {
			os.Stdout.WriteString("yes\n")
		}
	}
	modes["echo"] = func() { os.Stdout.WriteString("hello\n") }
	modes["much"] = func() {
		text := bytes.Repeat([]byte("0123456789abcde\n"), muchBytes/16)
		os.Stdout.Write(text)
	}
	modes["some"] = func() { os.Stdout.Write(bytes.Repeat([]byte("0123456789abcde\n"), 10000)) }
	modes["long lines"] = func() {
		line := bytes.Repeat([]byte(os.Getenv("WEFT_RANK")), DefaultMaxLine)
		line[len(line)-1] = '\n'
		for range longLines {
			os.Stdout.Write(line)
		}
	}
	modes["prompt"] = func() {
		os.Stdout.WriteString("name? ")
		name, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		os.Stdout.WriteString("hello " + name)
	}
}

const (
	muchBytes = 4 << 20
	longLines = 4
)

// within fails the test when a job is not over in time.
func within(t *testing.T, limit time.Duration, job func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- job() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		t.Fatal("the job is not over")
		return nil
	}
}

// ranks is a job of the test's own binary, whose standard error goes to a file.
func ranks(t *testing.T, n int, mode string) (job Job, stderr func() string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	b := &bench{t: t, errs: file}
	return Job{Apps: []App{{Ranks: n, Program: os.Args[0]}}, Env: []string{modeVariable + "=" + mode},
		Err: file}, b.stderr
}

func TestJobWhoseOutputCannotBeWrittenFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	job, stderr := ranks(t, 2, "echo")
	job.Out = full
	err = within(t, patience, func() error { return Run(t.Context(), job) })
	require.Equal(t, 1, ExitStatus(err))
	require.Equal(t, "weft: standard output cannot be written: no space left on device\n", stderr())
}

// Standard output is made non-blocking by somebody who shares it, and its reader is slow: everything arrives.
func TestOutputThatTurnsNonBlockingArrives(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	fd := int(w.Fd())
	require.NoError(t, syscall.SetNonblock(fd, false))
	job, stderr := ranks(t, 2, "much")
	job.Out = w
	read := make(chan int64)
	go func() {
		buf := make([]byte, 3000)
		n, _ := io.ReadFull(r, buf)
		syscall.SetNonblock(fd, true)
		time.Sleep(20 * time.Millisecond) // the pipe is full
		rest, _ := io.Copy(io.Discard, r)
		read <- int64(n) + rest
	}()
	err = within(t, patience, func() error { return Run(t.Context(), job) })
	require.NoError(t, err, stderr())
	w.Close()
	require.EqualValues(t, 2*muchBytes, <-read)
}

// The launcher's last line, such as the one of --verbose that the job is over, is written before the output closes,
// even if the reader is late.
func TestLastLineIsWritten(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	j, err := newJob(Job{Err: w}, new(history))
	require.NoError(t, err)
	conn, err := w.SyscallConn()
	require.NoError(t, err)
	size, page := 0, make([]byte, os.Getpagesize())
	var full error
	require.NoError(t, conn.Write(func(fd uintptr) bool {
		for n := 0; full == nil; size += max(n, 0) {
			n, full = syscall.Write(int(fd), page)
		}
		return true
	}))
	require.Equal(t, syscall.EAGAIN, full)
	read := make(chan string)
	time.AfterFunc(50*time.Millisecond, func() {
		text, _ := io.ReadAll(r)
		read <- string(text[size:])
	})
	j.output.Notice("the job is over")
	j.close()
	w.Close()
	require.Equal(t, "weft: the job is over\n", <-read)
}

// Nobody reads what the job writes: it ends in time all the same.
func TestStalledReaderDoesNotHoldTheEndUp(t *testing.T) {
	t.Parallel()
	stalled := func(t *testing.T) *os.File {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		t.Cleanup(func() {
			r.Close()
			w.Close()
		})
		return w
	}
	t.Run("timeout", func(t *testing.T) {
		t.Parallel() // each waits for seconds
		afterStart(t, func(timeout time.Duration) bool {
			job, stderr := ranks(t, 2, "yes")
			job.Out, job.Timeout = stalled(t), timeout
			err := within(t, patience, func() error { return Run(t.Context(), job) })
			require.Equal(t, 124, ExitStatus(err))
			require.Regexp(t, `^weft: the job was not over after `, stderr())
			return strings.HasSuffix(stderr(), " bytes of standard output were dropped: nobody took them\n")
		})
	})
	t.Run("one pipe for both", func(t *testing.T) {
		t.Parallel() // each waits for seconds
		w := stalled(t)
		job, _ := ranks(t, 2, "yes")
		job.Out, job.Err, job.Timeout = w, w, 500*time.Millisecond
		err := within(t, patience, func() error { return Run(t.Context(), job) })
		require.Equal(t, 124, ExitStatus(err))
	})
	t.Run("the ranks have ended", func(t *testing.T) {
		t.Parallel() // each waits for seconds
		w := stalled(t)
		job, stderr := ranks(t, 2, "some")
		job.Out, job.Timeout = w, 2*time.Second
		err := within(t, patience, func() error { return Run(t.Context(), job) })
		require.Equal(t, 124, ExitStatus(err))
		require.Contains(t, stderr(), "its ranks have ended, and nobody reads their output\n")
	})
}

// weft run … | head -1
func TestReaderThatGoesEndsTheJobQuietly(t *testing.T) {
	for range 5 {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		job, stderr := ranks(t, 2, "yes")
		job.Out = w
		go func() {
			bufio.NewReader(r).ReadString('\n')
			r.Close()
		}()
		err = within(t, patience, func() error { return Run(t.Context(), job) })
		w.Close()
		require.Equal(t, 141, ExitStatus(err))
		require.Empty(t, stderr())
	}
}

// Lines of 1 MiB of different ranks never mix.
func TestLongLinesComeWhole(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	job, stderr := ranks(t, 3, "long lines")
	job.Out = w
	count := make(chan map[string]int)
	go func() {
		lines := map[string]int{}
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			lines[strings.Trim(line, line[:1])+line[:1]+strconv.Itoa(len(line))]++
		}
		count <- lines
	}()
	err = within(t, patience, func() error { return Run(t.Context(), job) })
	require.NoError(t, err, stderr())
	w.Close()
	want := map[string]int{}
	for rank := range 3 {
		want["\n"+strconv.Itoa(rank)+strconv.Itoa(DefaultMaxLine)] = longLines
	}
	require.Equal(t, want, <-count)
}

func TestPromptIsShownWithoutANewline(t *testing.T) {
	t.Parallel()
	inR, inW, err := os.Pipe()
	require.NoError(t, err)
	defer inR.Close()
	outR, outW, err := os.Pipe()
	require.NoError(t, err)
	defer outR.Close()
	job, stderr := ranks(t, 2, "prompt")
	job.In, job.Out = inR, outW
	done := make(chan error, 1)
	go func() {
		err := Run(t.Context(), job)
		outW.Close()
		done <- err
	}()
	// Rank 1 has no input, so says hello to nobody.
	var got []byte
	for buf := make([]byte, 100); !strings.Contains(strings.Replace(string(got), "name? hello ", "", 1),
		"name? "); {
		n, err := outR.Read(buf)
		require.NoError(t, err, "%q", got)
		got = append(got, buf[:n]...)
	}
	inW.WriteString("bob\n")
	inW.Close()
	rest, err := io.ReadAll(outR)
	require.NoError(t, err)
	require.Contains(t, string(got)+string(rest), "hello bob\n")
	require.NoError(t, <-done, stderr())
}
