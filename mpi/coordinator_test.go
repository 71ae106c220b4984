package mpi_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// ringBody passes a token around and adds the ranks up.
var ringBody = body("ring without a launcher", func(ctx context.Context, world *mpi.Comm) error {
	next, before := (world.Rank()+1)%world.Size(), (world.Rank()+world.Size()-1)%world.Size()
	token := []int{world.Rank()}
	request, err := mpi.Isend(world, token, next, 1)
	if err != nil {
		return err
	}
	got := make([]int, 1)
	if _, err := mpi.Recv(world, got, before, 1); err != nil {
		return err
	}
	if _, err := request.Wait(); err != nil {
		return err
	}
	if err := want("token", got[0], before); err != nil {
		return err
	}
	sum := make([]int, 1)
	if err := mpi.Allreduce(world, token, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: sum %d\n", world.Rank(), world.Size(), sum[0])
	return nil
})

// waitBody says that it is ready, and waits for a message of a rank that sends none: 0 and 1 for each other,
// the others for rank 0. Rank 1 ends the job when it is told to.
var waitBody = worldBody("wait without a launcher", func(ctx context.Context, world *mpi.Comm) error {
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	fmt.Println("ready")
	if os.Getenv("MPI_TEST_ABORT") != "" && world.Rank() == 1 {
		world.Abort(7)
	}
	from := 0
	if world.Rank() == 0 {
		from = 1
	}
	_, err := mpi.Recv(world, make([]int, 1), from, 5)
	return err
})

// direct is a job without a launcher: where its rank 0 listens, and its secret.
type direct struct {
	t            *testing.T
	address      string
	secret, body string
}

func newDirect(t *testing.T, body string) *direct {
	t.Helper()
	return &direct{t: t, address: freePort(t), secret: secretFile(t, 's'), body: body}
}

func secretFile(t *testing.T, content byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(name, bytes.Repeat([]byte{content}, 32), 0o600))
	return name
}

// freePort is below those that the system gives to whoever asks for any.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(10000))))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// directRank is a process of such a job.
type directRank struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   *bufio.Reader
	errs  output
	ended func() error
}

// output is what a process has written so far.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// awaitText returns when a process has written a text.
func (o *output) awaitText(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(o.String(), text) }, 2*time.Minute,
		time.Millisecond, text)
}

// start starts a process with one rank number. It is killed at the end of the test.
func (d *direct) start(rank, size int, env ...string) *directRank {
	d.t.Helper()
	return d.startAs(append([]string{"WEFT_RANK=" + strconv.Itoa(rank), "WEFT_SIZE=" + strconv.Itoa(size),
		"WEFT_COORDINATOR=" + d.address, "WEFT_SECRET_FILE=" + d.secret, "WEFT_CORES_PER_RANK=0"}, env...)...)
}

func (d *direct) startAs(env ...string) *directRank {
	d.t.Helper()
	self, err := os.Executable()
	require.NoError(d.t, err)
	r := &directRank{t: d.t, cmd: exec.Command(self)}
	r.cmd.Env = append(append(os.Environ(), launchertest.Environ(d.body)...), env...)
	r.cmd.Stderr = &r.errs
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := r.cmd.StdoutPipe()
	require.NoError(d.t, err)
	r.out = bufio.NewReader(out)
	require.NoError(d.t, start(d.t, r.cmd))
	r.ended = sync.OnceValue(r.cmd.Wait)
	stop := after(2*time.Minute, func() { r.cmd.Process.Kill() })
	d.t.Cleanup(func() {
		stop()
		r.cmd.Process.Kill()
		r.ended()
	})
	return r
}

// succeeds waits for the end of a rank that must succeed, and gives what it has written.
func (r *directRank) succeeds() string {
	r.t.Helper()
	out, _ := io.ReadAll(r.out)
	require.NoError(r.t, r.ended(), "%s%s", out, r.errs.String())
	return string(out)
}

// fails waits for the end of a rank that must fail with a status and a text.
func (r *directRank) fails(status int, text string) {
	r.t.Helper()
	out, _ := io.ReadAll(r.out)
	r.ended()
	require.Contains(r.t, r.errs.String(), text, "%s", out)
	require.Equal(r.t, status, r.cmd.ProcessState.ExitCode(), "%s", r.errs.String())
	require.Equal(r.t, 1, strings.Count(strings.TrimSpace(r.errs.String()), "\n")+1, "one line:\n%s",
		r.errs.String())
}

func (r *directRank) says(want string) {
	r.t.Helper()
	line, err := r.out.ReadString('\n')
	require.NoError(r.t, err, "%v", r.ended)
	require.Equal(r.t, want+"\n", line)
}

func TestDirect_Ring(t *testing.T) {
	d := newDirect(t, ringBody)
	var all []*directRank
	for rank := range 4 {
		all = append(all, d.start(rank, 4))
	}
	for rank, r := range all {
		require.Equal(t, fmt.Sprintf("rank %d of 4: sum 6\n", rank), r.succeeds())
	}
}

func TestDirect_Rank0IsLate(t *testing.T) {
	d := newDirect(t, ringBody)
	one, two := d.start(1, 3), d.start(2, 3)
	time.Sleep(300 * time.Millisecond)
	zero := d.start(0, 3)
	for _, r := range []*directRank{zero, one, two} {
		require.Contains(t, r.succeeds(), "sum 3")
	}
}

// The variables of schedulers do as well as weft's own.
func TestDirect_Schedulers(t *testing.T) {
	for _, c := range []string{"JOB_COMPLETION_INDEX=%d WEFT_SIZE=2", "OMPI_COMM_WORLD_RANK=%d OMPI_COMM_WORLD_SIZE=2",
		"SLURM_PROCID=%d SLURM_STEP_NUM_TASKS=2", "RANK=%d WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=PORT"} {
		d := newDirect(t, ringBody)
		host, port, _ := net.SplitHostPort(d.address)
		require.Equal(t, "127.0.0.1", host)
		var all []*directRank
		for rank := range 2 {
			env := strings.Fields(strings.ReplaceAll(fmt.Sprintf(c, rank), "PORT=PORT", "PORT="+port))
			env = append(env, "WEFT_SECRET_FILE="+d.secret, "WEFT_CORES_PER_RANK=0")
			if !strings.Contains(c, "MASTER") {
				env = append(env, "WEFT_COORDINATOR="+d.address)
			}
			all = append(all, d.startAs(env...))
		}
		for _, r := range all {
			require.Contains(t, r.succeeds(), "sum 1")
		}
	}
}

func TestDirect_RanksAreMissing(t *testing.T) {
	d := newDirect(t, ringBody)
	d.start(0, 3, "WEFT_START_TIMEOUT=300ms").fails(1, "ranks 1,2 of 3 have not come within 300ms")
	d.start(1, 3, "WEFT_START_TIMEOUT=300ms").fails(1, "rank 1 of 3 has not reached rank 0 at "+d.address+
		" within 300ms")
}

// Before the start is given up rank 0 tells who has not called Init.
func TestDirect_TellsWhoIsLate(t *testing.T) {
	t.Parallel()
	d := newDirect(t, ringBody)
	limits := []string{"WEFT_STUCK=200ms", "WEFT_START_TIMEOUT=10s"}
	zero, one := d.start(0, 3, limits...), d.start(1, 3, limits...)
	one.fails(1, "rank 2 of 3 has not come within 10s")
	zero.ended()
	require.Regexp(t, "^weft: ranks? (1,)?2 of 3 (has|have) not come within 200ms: the others wait in Init\n.*"+
		"ranks? (1,)?2 of 3 (has|have) not come within 10s", zero.errs.String())
}

func TestDirect_TwoProcessesWithOneNumber(t *testing.T) {
	d := newDirect(t, ringBody)
	all := []*directRank{d.start(0, 3), d.start(1, 3), d.start(1, 3)}
	for _, r := range all {
		r.fails(1, "two processes are rank 1: process ")
	}
}

func TestDirect_AnotherSize(t *testing.T) {
	d := newDirect(t, ringBody)
	all := []*directRank{d.start(0, 3), d.start(1, 4)}
	for _, r := range all {
		r.fails(1, "was told of 4 ranks, and rank 0 of 3")
	}
}

func TestDirect_PortIsTaken(t *testing.T) {
	d := newDirect(t, ringBody)
	l, err := net.Listen("tcp", d.address)
	require.NoError(t, err)
	defer l.Close()
	d.start(0, 2).fails(1, "the port is taken")
}

func TestDirect_NoSecret(t *testing.T) {
	d := newDirect(t, ringBody)
	d.start(0, 2, "WEFT_SECRET_FILE=").fails(1, "head -c 32 /dev/urandom > FILE")
}

// Who does not know the secret is refused, and the job starts all the same.
func TestDirect_Unauthenticated(t *testing.T) {
	d := newDirect(t, ringBody)
	zero := d.start(0, 2)
	d.start(1, 2, "WEFT_SECRET_FILE="+secretFile(t, 'x')).fails(1, "another secret")
	for _, rubbish := range []string{"", "GET / HTTP/1.0\r\n\r\n", "\xff\xff\xff\xff", "\x00\x00\x00\x00",
		"\x00\x00\x00\x03abc", "\x00\x00\x00\x60" + strings.Repeat("x", 0x60)} {
		conn, err := net.Dial("tcp", d.address)
		require.NoError(t, err)
		_, err = conn.Write([]byte(rubbish))
		require.NoError(t, err)
		if rubbish == "" {
			defer conn.Close() // one that says nothing
			continue
		}
		io.Copy(io.Discard, conn) // until it is closed
		conn.Close()
	}
	one := d.start(1, 2)
	require.Contains(t, zero.succeeds(), "sum 1")
	require.Contains(t, one.succeeds(), "sum 1")
}

// The survivors have no connection to the rank that is killed: rank 0 tells them.
func TestDirect_Kill(t *testing.T) {
	for victim := range 3 {
		d := newDirect(t, waitBody)
		var all []*directRank
		for rank := range 3 {
			all = append(all, d.start(rank, 3))
		}
		for _, r := range all {
			r.says("ready")
		}
		require.NoError(t, all[victim].cmd.Process.Kill())
		for rank, r := range all {
			if rank != victim {
				r.fails(1, fmt.Sprintf("rank %d", victim))
			}
		}
	}
}

// A job without a launcher goes on without ranks that are killed, rank 0 as well, of whom the others know each
// other's addresses.
func TestDirect_Survives(t *testing.T) {
	for i, victims := range []string{"1", "0", "3,0", "1,2"} {
		t.Run(victims, func(t *testing.T) {
			d := newDirect(t, survives)
			var all []*directRank
			for rank := range 4 {
				all = append(all, d.start(rank, 4, "WEFT_SURVIVE=1", "SURVIVE_VICTIMS="+victims,
					"SURVIVE_CALL="+[]string{"Shrink", "Allreduce"}[i%2], fmt.Sprint("SURVIVE_SEED=", i)))
			}
			for rank, r := range all {
				if !victimsOf(victims)[rank] {
					left := 4 - len(victimsOf(victims))
					require.Equal(t, fmt.Sprintf("went on with %d\n", left), r.succeeds(), "rank %d", rank)
					require.Empty(t, r.errs.String())
				}
			}
		})
	}
}

func TestDirect_Abort(t *testing.T) {
	d := newDirect(t, waitBody)
	var all []*directRank
	for rank := range 3 {
		all = append(all, d.start(rank, 3, "MPI_TEST_ABORT=1"))
	}
	for rank, r := range all {
		if rank != 1 {
			r.fails(7, "rank 1 has ended the job with status 7")
		}
	}
	all[1].ended()
	require.Equal(t, 7, all[1].cmd.ProcessState.ExitCode(), "%s", all[1].errs.String())
}

// Without a launcher it is rank 0 that tells why the job hangs, and ends it if that is wanted.
func TestDirect_Deadlock(t *testing.T) {
	d := newDirect(t, waitBody)
	var all []*directRank
	for rank := range 3 {
		all = append(all, d.start(rank, 3, "WEFT_STUCK_ACTION=abort"))
	}
	for rank, r := range all {
		io.Copy(io.Discard, r.out)
		r.ended()
		require.Equal(t, 1, r.cmd.ProcessState.ExitCode(), "%s", r.errs.String())
		require.Contains(t, r.errs.String(), "the job is ended because of the deadlock", rank)
	}
	report := all[0].errs.String()
	// Rank 2, which no other waits for, may have had no processor until the end.
	require.Regexp(t, "weft: deadlock: (no rank can ever|ranks 0-1 can never) go on\n", report)
	require.Regexp(t, "ranks? 1(-2)?: Recv from 0, tag 5, at coordinator_test.go:", report)
	for _, text := range []string{"rank 0: Recv from 1, tag 5, at coordinator_test.go:", "neither can go on"} {
		require.Contains(t, report, text)
	}
	require.NotContains(t, all[1].errs.String(), "neither can go on")
}

// What is not proven is told after the time that the setting says, and the job goes on.
func TestDirect_StandsStill(t *testing.T) {
	t.Parallel()
	d := newDirect(t, restBody)
	goOn := filepath.Join(t.TempDir(), "go on")
	zero := d.start(0, 2, "WEFT_STUCK=1s")
	one := d.start(1, 2, "WEFT_STUCK=1s", "TEST_GO_ON="+goOn)
	told := func() bool {
		return strings.Contains(zero.errs.String(), "rank 0: Barrier on world, at coordinator_test.go:")
	}
	for round, over := 0, false; !over; round++ {
		require.Eventually(t, func() bool {
			return strings.Count(zero.errs.String(), "weft: nothing has moved for 1s; what the ranks do\n") > round
		}, 2*time.Minute, time.Millisecond)
		if over = told() || round == restRounds-1; over {
			require.NoError(t, os.WriteFile(goOn+restOver, nil, 0o600))
		}
		require.NoError(t, os.WriteFile(goOn+strconv.Itoa(round), nil, 0o600))
	}
	one.succeeds()
	zero.succeeds()
	require.True(t, told(), zero.errs.String())
	require.NotContains(t, zero.errs.String(), "deadlock")
}

// restBody has one rank wait for another, which rests until a file is there, again and again until there is
// another file: on a busy machine the rank that waits may not have come to its call when a report is due, or not
// say in time what it waits for.
var restBody = worldBody("rest without a launcher", func(ctx context.Context, world *mpi.Comm) error {
	for round, over := 0, []bool{false}; !over[0]; round++ {
		if world.Rank() == 1 {
			goOn := os.Getenv("TEST_GO_ON")
			awaitFile(goOn + strconv.Itoa(round))
			_, err := os.Stat(goOn + restOver)
			over[0] = err == nil
		}
		if err := firstError(mpi.Barrier(world), mpi.Bcast(world, over, 1)); err != nil {
			return err
		}
	}
	return nil
})

const (
	restRounds = 50 // at most
	restOver   = "over"
)
