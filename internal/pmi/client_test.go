package pmi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("PMI_TEST_RANK") != "" {
		if err := beRank(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// beRank is a rank under a real launcher: every rank learns every other's value.
func beRank() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := FromEnv()
	if err != nil || c == nil {
		return fmt.Errorf("no launcher found: %v", err)
	}
	if err := c.Init(ctx); err != nil {
		return err
	}
	if !c.OnThisMachine() {
		return fmt.Errorf("rank %d takes its launcher for one on another machine", c.Rank())
	}
	if err := c.Put(ctx, fmt.Sprintf("k%d", c.Rank()), strings.Repeat("v",
		500)+fmt.Sprint(c.Rank())); err != nil {
		return err
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	for r := range c.Size() {
		v, err := c.Get(ctx, fmt.Sprintf("k%d", r))
		if err != nil || v != strings.Repeat("v", 500)+fmt.Sprint(r) {
			return fmt.Errorf("rank %d got %q of rank %d: %v", c.Rank(), v, r, err)
		}
	}
	if err := c.Finalize(ctx); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d\n", c.Rank(), c.Size())
	return nil
}

// The client works under MPICH's own launcher, by an inherited descriptor and by a port.
func TestClientUnderHydra(t *testing.T) {
	hydra, err := exec.LookPath("mpiexec.hydra")
	if err != nil {
		t.Skip("mpiexec.hydra is not installed (Debian: mpich)")
	}
	for _, options := range [][]string{nil, {"-pmi-port"}} {
		t.Run(strings.Join(options, ""), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, hydra, append(options, "-n", "3", os.Args[0])...)
			cmd.Env = append(os.Environ(), "PMI_TEST_RANK=1")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			for r := range 3 {
				require.Contains(t, string(out), fmt.Sprintf("rank %d of 3\n", r))
			}
		})
	}
}

// What is said over a connection that stays on this machine is heard by nobody else.
func TestSameMachine(t *testing.T) {
	at := func(text string) net.Addr {
		a, err := net.ResolveTCPAddr("tcp", text)
		require.NoError(t, err)
		return a
	}
	require.True(t, sameMachine(at("127.0.0.1:1"), at("127.0.1.1:2")))
	require.True(t, sameMachine(at("[::1]:1"), at("[::1]:2")))
	require.True(t, sameMachine(at("10.0.0.1:1"), at("10.0.0.1:2")))
	require.True(t, sameMachine(at("[fe80::1%eth0]:1"), at("[fe80::1%eth0]:2")))
	require.False(t, sameMachine(at("10.0.0.1:1"), at("10.0.0.2:1")))
	require.False(t, sameMachine(at("[fe80::1%1]:1"), at("[fe80::1%2]:2")))
	require.False(t, sameMachine(&net.UnixAddr{Name: "x"}, &net.UnixAddr{Name: "x"}))
}

// connected is n clients whose connections a Service serves; wait returns how the serving of each ended.
func connected(t *testing.T, n int) (clients []*Client, wait func() []error) {
	return connectedWith(t, n, func() {})
}

// connectedWith tells when a rank has come to a barrier or finalized.
func connectedWith(t *testing.T, n int, changed func()) (clients []*Client, wait func() []error) {
	conns := make([]net.Conn, n)
	for r := range n {
		ours, theirs := net.Pipe()
		conns[r] = ours
		c := &Client{rank: r, size: n}
		c.use(theirs)
		clients = append(clients, c)
		t.Cleanup(func() { ours.Close(); theirs.Close() })
	}
	service := NewService(testConfig(n), conns)
	errs := make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() { errs[r] = service.Serve(r, changed) })
	}
	return clients, func() []error { all.Wait(); return errs }
}

func TestClientsExchangeThroughTheServer(t *testing.T) {
	const n = 8
	clients, wait := connected(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for r, c := range clients {
		all.Go(func() {
			check := func(err error) {
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			check(c.Init(ctx))
			check(c.Put(ctx, fmt.Sprintf("key-%d", r), strings.Repeat("x", MaxValue-8)+fmt.Sprintf("=%07d",
				r)))
			check(c.Barrier(ctx))
			for peer := range n {
				v, err := c.Get(ctx, fmt.Sprintf("key-%d", peer))
				check(err)
				if v != strings.Repeat("x", MaxValue-8)+fmt.Sprintf("=%07d", peer) {
					t.Errorf("rank %d: value of rank %d is %.20q", r, peer, v)
				}
			}
			_, err := c.Get(ctx, "nobody")
			if !strings.Contains(fmt.Sprint(err), ErrNotFound.Error()) {
				t.Errorf("rank %d: %v", r, err)
			}
			check(c.Finalize(ctx))
			if err := c.Barrier(ctx); err == nil || !strings.Contains(err.Error(), "after Finalize") {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	all.Wait()
	for r, err := range wait() {
		require.NoError(t, err, "rank %d", r)
	}
	require.Equal(t, 0, clients[3].Appnum())
}

func TestClientBarrierEndsWithItsContext(t *testing.T) {
	waits := make(chan struct{}, 1)
	clients, _ := connectedWith(t, 2, func() { waits <- struct{}{} })
	require.NoError(t, clients[0].Init(t.Context()))
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { result <- clients[0].Barrier(ctx) }()
	<-waits // the request has gone out: cancelled before, the call would do nothing
	cause := fmt.Errorf("enough")
	cancel(cause)
	err := <-result
	require.ErrorIs(t, err, cause)
	require.ErrorContains(t, err, "rank 0: barrier")
	require.Error(t, clients[0].Barrier(t.Context()), "the connection is out of step")
}

func TestClientAbortReachesTheServer(t *testing.T) {
	clients, wait := connected(t, 1)
	require.NoError(t, clients[0].Init(t.Context()))
	require.NoError(t, clients[0].Abort(t.Context(), 9))
	var a *Abort
	require.ErrorAs(t, wait()[0], &a)
	require.Equal(t, 9, a.Code)
}

func TestClientRefusesWhatALineCannotCarry(t *testing.T) {
	clients, _ := connected(t, 1)
	c := clients[0]
	require.ErrorContains(t, c.Put(t.Context(), "k", "v"), "before Init")
	require.NoError(t, c.Init(t.Context()))
	for _, bad := range []struct{ key, value string }{
		{"", "v"}, {"k", ""}, {"a b", "v"}, {"a=b", "v"}, {"k", "a b"}, {"k", "a\nb"},
		{strings.Repeat("k", MaxKey), "v"}, {"k", strings.Repeat("v", MaxValue+1)},
	} {
		require.Error(t, c.Put(t.Context(), bad.key, bad.value), "%q=%.20q", bad.key, bad.value)
	}
	require.NoError(t, c.Put(t.Context(), "k", "v"), "a refused call does no harm")
	require.ErrorContains(t, c.Put(t.Context(), "k", "v"), "duplicate key")
	require.NoError(t, c.Finalize(t.Context()))
}

// dialogue is a client whose launcher sends these answers, whatever it is asked; asked gives the requests.
func dialogue(t *testing.T, answers ...string) (c *Client, asked func() []string) {
	ours, theirs := net.Pipe()
	c = &Client{rank: 0, size: 2}
	c.use(theirs)
	var lines []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer ours.Close()
		in := bufio.NewReader(ours)
		for _, a := range answers {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			lines = append(lines, line)
			if _, err := ours.Write([]byte(a)); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { theirs.Close(); <-done })
	return c, func() []string { theirs.Close(); <-done; return lines }
}

// Calls that wait while the client finalizes are refused: the launcher would take a request for a violation.
func TestClientAsksNothingAfterFinalize(t *testing.T) {
	for range 1000 {
		ours, theirs := net.Pipe()
		c := &Client{rank: 0, size: 2, kvsName: "kvs", maxKey: 64}
		c.use(theirs)
		var calls sync.WaitGroup
		calls.Go(func() { assert.NoError(t, c.Finalize(t.Context())) })
		in := bufio.NewReader(ours)
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "cmd=finalize\n", line)
		for range 4 {
			calls.Go(func() {
				_, err := c.Get(t.Context(), "k")
				assert.ErrorContains(t, err, "used after Finalize")
			})
		}
		_, err = ours.Write([]byte("cmd=finalize_ack\n"))
		require.NoError(t, err)
		line, err = in.ReadString('\n')
		require.ErrorIs(t, err, io.EOF, "the client asks %q", line)
		calls.Wait()
	}
}

const initAnswer = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"

// Slurm's plugin gives appnum -1 and a miss without a value; its sscanf wants the init line to the space.
func TestClientUnderSlurmsDialect(t *testing.T) {
	c, asked := dialogue(t, initAnswer, "cmd=maxes rc=0 kvsname_max=1024 keylen_max=64 vallen_max=1024\n",
		"cmd=appnum rc=0 appnum=-1\n",
		"cmd=my_kvsname rc=0 kvsname=1.0\n", "cmd=get_result rc=1\n", "cmd=finalize_ack rc=0\n")
	require.NoError(t, c.Init(t.Context()))
	require.Equal(t, -1, c.Appnum())
	_, err := c.Get(t.Context(), "k")
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, c.Finalize(t.Context()))
	require.Equal(t, []string{"cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=get_maxes\n",
		"cmd=get_appnum\n", "cmd=get_my_kvsname\n",
		"cmd=get kvsname=1.0 key=k\n", "cmd=finalize\n"}, asked())
}

func TestClientNamesWhatTheLauncherDidWrong(t *testing.T) {
	for _, c := range []struct{ answer, says string }{
		{"cmd=maxes\n", `answered "maxes" where response_to_init was due`},
		{"rubbish\n", "not key=value"},
		{strings.Repeat("x", maxLine+1), "longer than"},
		{"", "connection to the launcher ended"},
		{"cmd=response_to_init pmi_version=2 rc=0\n", `version "2"`},
		{"cmd=response_to_init pmi_version=1 rc=-1\n", "refused"},
	} {
		client, _ := dialogue(t, c.answer)
		require.ErrorContains(t, client.Init(t.Context()), c.says, "%.40q", c.answer)
	}
	client, _ := dialogue(t, initAnswer, "cmd=maxes keylen_max=64 vallen_max=-5\n")
	require.ErrorContains(t, client.Init(t.Context()), `vallen_max="-5" is not a whole number`)
}

func FuzzClient(f *testing.F) {
	f.Add(initAnswer + "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\ncmd=appnum appnum=0\ncmd=my_kvsname kvsname=k\n")
	f.Fuzz(func(t *testing.T, answers string) {
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			in := bufio.NewReader(ours)
			for line := range strings.Lines(answers) {
				if _, err := in.ReadString('\n'); err != nil {
					break
				}
				if _, err := ours.Write([]byte(line)); err != nil {
					break
				}
			}
			ours.Close()
		}()
		c := &Client{rank: 0, size: 2}
		c.use(theirs)
		if c.Init(t.Context()) == nil {
			require.NotEmpty(t, c.kvsName)
			c.Get(t.Context(), "k")
		}
		theirs.Close()
		<-done
	})
}

func TestFromEnvWithoutALauncher(t *testing.T) {
	for _, name := range []string{"PMI_FD", "PMI_PORT"} {
		if _, set := os.LookupEnv(name); set {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	c, err := FromEnv()
	require.NoError(t, err)
	require.Nil(t, c)
}

func TestFromEnvNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ fd, rank, size, says string }{
		{"x", "0", "1", `PMI_FD="x"`}, {"-1", "0", "1", `PMI_FD="-1"`},
		{"3", "0", "", `PMI_SIZE=""`}, {"3", "0", "0", `PMI_SIZE="0"`},
		{"3", "2", "2", `PMI_RANK="2"`}, {"3", "-1", "2", `PMI_RANK="-1"`}, {"9999", "0", "1", "PMI_FD=9999"},
	} {
		t.Setenv("PMI_FD", c.fd)
		t.Setenv("PMI_RANK", c.rank)
		t.Setenv("PMI_SIZE", c.size)
		_, err := FromEnv()
		require.ErrorContains(t, err, c.says)
	}
}

func TestFromEnvKeepsTheDescriptorFromChildren(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer syscall.Close(fds[0])
	t.Setenv("PMI_FD", fmt.Sprint(fds[1]))
	t.Setenv("PMI_RANK", "1")
	t.Setenv("PMI_SIZE", "2")
	c, err := FromEnv()
	require.NoError(t, err)
	defer c.conn.Close()
	require.Equal(t, []int{1, 2}, []int{c.Rank(), c.Size()})
	_, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fds[1]), syscall.F_GETFD, 0)
	require.Equal(t, syscall.EBADF, errno, "the connection has moved")
	conn, err := c.conn.(*os.File).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, conn.Control(func(fd uintptr) {
		require.GreaterOrEqual(t, int(fd), firstToClose)
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFD, 0)
		require.Zero(t, errno)
		require.NotZero(t, flags&syscall.FD_CLOEXEC)
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Init(ctx), context.DeadlineExceeded, "a launcher that says nothing holds nobody up")
}

// A launcher that takes the connection and says nothing, at its beginning or later on, keeps nobody in Init.
func TestClientDoesNotWaitForASilentLauncher(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	c := &Client{port: listener.Addr().String(), id: "0", rank: -1, size: -1, timeout: 20 * time.Millisecond}
	require.ErrorContains(t, c.Init(context.Background()),
		"pmi: initack: the launcher has not answered within 20ms")
	require.NoError(t, c.Close())

	for answers, call := range []string{"init", "get_maxes", "get_appnum", "get_my_kvsname"} {
		synctest.Test(t, func(t *testing.T) { // where the answers that do come take no time
			ours, theirs := net.Pipe()
			defer ours.Close()
			go answerSome(ours, answers)
			c := &Client{rank: 0, size: 1, timeout: 2 * time.Second}
			c.use(theirs)
			require.ErrorContains(t, c.Init(context.Background()),
				call+": the launcher has not answered within 2s")
			require.NoError(t, c.Close())
		})
	}
}

// answerSome is a launcher that answers some requests and reads on.
func answerSome(conn net.Conn, answers int) {
	in := bufio.NewReader(conn)
	server := newWhole(testConfig(1))
	for range answers {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		replies, _ := server.handle(0, strings.TrimSuffix(line, "\n"))
		io.WriteString(conn, replies[0].Line)
	}
	io.Copy(io.Discard, in)
}

// A client that is out of step with its launcher, because a call was given up, still lets go of the
// connection.
func TestClientClosesABrokenConnection(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	c := &Client{rank: 0, size: 2}
	c.use(theirs)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		bufio.NewReader(ours).ReadString('\n')
		cancel()
	}()
	require.ErrorIs(t, c.Barrier(ctx), context.Canceled)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	_, err := ours.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}
