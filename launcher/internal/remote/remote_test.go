package remote

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

var commands = []agent.Command{
	agent.Start{Secret: []byte{0, 1, 255}, TimerSlack: time.Millisecond, Ranks: []agent.Rank{{
		ID: 3, Name: "x", Path: "/bin/x", Args: []string{"a b", "é", "caf\xe9", `\x41\`}, Env: []string{"A=1"}, Dir: "/",
		CPUs:  []int{0, 5},
		Stdin: agent.StdinFed, Files: [agent.Streams]string{"o", "e"},
	}}},
	agent.Halt{},
	agent.Signal{Signal: syscall.SIGTERM},
	agent.Signal{Ranks: []int{1, 2}, Signal: syscall.SIGKILL},
	agent.Release{},
	agent.Found{Rank: 1, Key: "weft-card-7", Value: "tcp=10.0.0.7:4000\xff", OK: true},
	agent.TellWaits{},
	agent.HangUp{Rank: 7},
	agent.Input{Rank: 0, Data: []byte{0, 10, 200}},
	agent.Input{Rank: 0, Data: []byte{}},
	agent.Pause{Stream: agent.Stderr, On: true},
}

var events = []agent.Event{
	agent.Started{Rank: 1, PID: 99},
	agent.NotStarted{Rank: 1, Status: 127, Reason: "not there"},
	agent.AllStarted{},
	agent.Exited{Rank: 1, Status: 9},
	agent.Stopped{Rank: 1, Signal: syscall.SIGSTOP},
	agent.Continued{Rank: 1},
	agent.Output{Rank: 1, Stream: agent.Stderr, Data: []byte("a\n\x00b")},
	agent.OutputEnd{Rank: 1},
	agent.Arrived{Rank: 1, Puts: []string{"weft-card-1", "tcp=10.0.0.1:4000"}},
	agent.Arrived{Rank: 1, More: true},
	agent.Find{Rank: 1, Key: "weft-card-7"},
	agent.Waits{Rank: 1, Barrier: 2},
	agent.Aborts{Rank: 1, Status: 7},
	agent.LostPeer{Rank: 1, Peer: 3},
	agent.Disturbs{Rank: 1, What: "an empty line"},
	agent.PMIClosed{Rank: 1, State: pmi.Finalized},
	agent.InputTaken{Rank: 1, Closed: true},
}

func TestFramesCarryEveryCommandAndEvent(t *testing.T) {
	for _, c := range commands {
		b, err := commandForms.append(nil, c)
		require.NoError(t, err)
		k, body, err := readFrame(bytes.NewReader(b), maxCommand)
		require.NoError(t, err)
		got, _, err := commandForms.parse(k, body)
		require.NoError(t, err)
		require.Equal(t, c, got)
	}
	for _, e := range events {
		b, err := eventForms.append(nil, e)
		require.NoError(t, err)
		k, body, err := readFrame(bytes.NewReader(b), maxEvent)
		require.NoError(t, err)
		got, _, err := eventForms.parse(k, body)
		require.NoError(t, err)
		require.Equal(t, e, got)
	}
}

// The kinds are those of docs/internals/spec/agent.md.
func TestKindsAreTheSpecifications(t *testing.T) {
	require.EqualValues(t, 10, kindAlive)
	require.EqualValues(t, 11, kindStage)
	require.EqualValues(t, 65, kindHello)
	require.EqualValues(t, 78, kindClosed)
	require.EqualValues(t, 79, kindStaged)
}

// Whatever comes over the stream, the parsers return an error or a message, and never take more memory than
// the limit.
func FuzzFrames(f *testing.F) {
	var all []byte
	for _, c := range commands {
		all, _ = commandForms.append(all, c)
	}
	for _, e := range events {
		all, _ = eventForms.append(all, e)
	}
	f.Add(all)
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			k, body, err := readFrame(r, maxEvent)
			if err != nil {
				return
			}
			commandForms.parse(k, body)
			e, rank, err := eventForms.parse(k, body)
			if err == nil && rank >= 0 && e == nil {
				t.Fatalf("kind %d gives nothing", k)
			}
			switch e := e.(type) {
			case agent.Arrived:
				for i := 0; err == nil && i < len(e.Puts); i += 2 {
					checkPair(t, e.Puts[i], e.Puts[i+1])
				}
			case agent.Find:
				if err == nil {
					checkPair(t, e.Key, "")
				}
			}
		}
	})
}

// checkPair fails where a key and its value would not fit into a line for a rank.
func checkPair(t *testing.T, key, value string) {
	if key == "" || len(key) >= pmi.MaxKey || len(value) > pmi.MaxValue ||
		strings.ContainsAny(key+value, " \x00\r\n") {
		t.Fatalf("a pair %q %q was taken", key, value)
	}
}

// The launcher takes no key or value from an agent that a rank could not have put.
func TestPutsThatNoRankCanHaveSent(t *testing.T) {
	for _, c := range []struct{ key, value, says string }{
		{"", "v", "a key is empty"},
		{strings.Repeat("k", pmi.MaxKey), "v", "a key of 64 bytes is longer than the 63"},
		{"k", strings.Repeat("v", pmi.MaxValue+1), "a value of 1025 bytes is longer than the 1024"},
		{"k", "v\ncmd=finalize_ack", "has a space, newline or NUL in it"},
		{"k\x00", "v", "has a space, newline or NUL in it"},
	} {
		b, err := eventForms.append(nil, agent.Arrived{Rank: 1, Puts: []string{"good", "", c.key, c.value}})
		require.NoError(t, err)
		k, body, err := readFrame(bytes.NewReader(b), maxEvent)
		require.NoError(t, err)
		_, _, err = eventForms.parse(k, body)
		require.ErrorIs(t, err, errProtocol)
		require.ErrorContains(t, err, c.says)
	}
}

// What a login shell prints is not taken for an agent, not even when it looks like one.
func TestGreetingAfterABanner(t *testing.T) {
	const token = "0123456789abcdef"
	us := fmt.Sprintf("weft-agent %d ", Version)
	for text, banner := range map[string]string{
		us + token + "\n": "",
		"Welcome!\nweft-agent 1 ffff\n" + us + token + "\n": "Welcome!\nweft-agent 1 ffff\n",
		"no newline: " + us + token + "\n":                  "no newline: ",
	} {
		got, version, err := skipToGreeting(bufio.NewReader(strings.NewReader(text)), token)
		require.NoError(t, err)
		require.Equal(t, Version, version)
		require.Equal(t, banner, got)
	}
	_, _, err := skipToGreeting(bufio.NewReader(strings.NewReader("Welcome!\n")), token)
	require.ErrorIs(t, err, io.EOF)
	_, _, err = skipToGreeting(bufio.NewReader(strings.NewReader(strings.Repeat("spam\n", maxBanner))), token)
	require.ErrorIs(t, err, errProtocol)
}

// fakeAgent starts nothing; it tells the test what it was asked to do.
type fakeAgent struct {
	done   chan agent.Command
	events chan agent.Event
	closed chan struct{}
}

func (f *fakeAgent) Do(c agent.Command)         { f.done <- c }
func (f *fakeAgent) Events() <-chan agent.Event { return f.events }
func (f *fakeAgent) Close()                     { close(f.closed) }

// farSide is the test's own process, started as a starter would start an agent.
func farSide(in io.Reader, out io.Writer) {
	fake := &fakeAgent{done: make(chan agent.Command, 16), events: make(chan agent.Event, 16),
		closed: make(chan struct{})}
	go func() {
		for c := range fake.done {
			switch c := c.(type) {
			case agent.Start:
				for _, r := range c.Ranks {
					fake.events <- agent.Started{Rank: r.ID, PID: 1000 + r.ID}
				}
				fake.events <- agent.AllStarted{}
			case agent.Input:
				if string(c.Data) == "die" {
					os.Exit(7)
				}
				fake.events <- agent.Output{Rank: c.Rank, Data: c.Data}
			case agent.HangUp: // a rank that is not of this host
				fake.events <- agent.PMIClosed{Rank: 99}
			}
		}
	}()
	var content bytes.Buffer
	err := Serve(in, out, ServerConfig{
		Hello: Hello{Version: "v", Host: "far", Cores: 3, Processors: "0-2"},
		Open:  func(string) (agent.Agent, error) { return fake, nil },
		Prepare: func(request []byte) ([]byte, error) {
			if string(request) == "1234" { // it takes longer than a host may be silent
				time.Sleep((agentSilence + 2) * period)
			}
			return json.Marshal("planned " + string(request))
		},
		Stage: func(program int, part []byte) ([]byte, error) {
			content.Write(part)
			if len(part) > 0 {
				return nil, nil
			}
			return json.Marshal(fmt.Sprint(program, " ", crc32.ChecksumIEEE(content.Bytes())))
		},
	})
	select {
	case <-fake.closed:
	default:
		os.Exit(3)
	}
	if err != nil {
		os.Exit(4)
	}
}

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "far":
		farSide(os.Stdin, os.Stdout)
		os.Exit(0)
	case len(os.Args) == 3 && os.Args[1] == "leaves-behind":
		leaveBehind(os.Args[2])
		farSide(os.Stdin, os.Stdout)
		os.Exit(0)
	case len(os.Args) == 2 && os.Args[1] == "left-behind":
		time.Sleep(10 * time.Minute)
		os.Exit(0)
	case len(os.Args) == 3 && os.Args[1] == "far":
		n, _ := strconv.Atoi(os.Args[2])
		farTrunk(n)
		os.Exit(0)
	}
	testlength.MoreAtOnce()
	os.Exit(m.Run())
}

func connect(t *testing.T) *Agent {
	a, err := Connect(t.Context(), "far", "job", []string{os.Args[0], "far"})
	require.NoError(t, err)
	require.Equal(t, Hello{"v", "far", 3, "0-2"}, a.Hello)
	return a
}

func next(t *testing.T, a *Agent) agent.Event {
	select {
	case e := <-a.Events():
		return e
	case <-time.After(2 * time.Minute):
		t.Fatal("no event")
		return nil
	}
}

// leaveBehind starts a process with this one's standard error in a session of its own, as ssh does with
// ControlPersist, and writes its id to a file.
func leaveBehind(file string) {
	child := exec.Command(os.Args[0], "left-behind")
	child.Stderr = os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		os.Exit(5)
	}
	os.WriteFile(file, []byte(strconv.Itoa(child.Process.Pid)), 0o600)
}

// A starter that leaves a process behind that keeps its standard error open is over when it has ended.
func TestStarterThatLeavesAProcessBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	a, err := Connect(t.Context(), "far", "job", []string{os.Args[0], "leaves-behind", file})
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(text))
	require.NoError(t, err)
	defer syscall.Kill(pid, syscall.SIGKILL)
	closed := make(chan struct{})
	go func() {
		a.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		<-closed
		t.Fatal("Close has waited for the process")
	}
	require.NoError(t, syscall.Kill(pid, 0), "it is still there")
}

func startTwo(t *testing.T, a *Agent) {
	a.Do(agent.Start{Ranks: []agent.Rank{{ID: 5}, {ID: 4}}})
	require.Equal(t, agent.Started{Rank: 5, PID: 1005}, next(t, a))
	require.Equal(t, agent.Started{Rank: 4, PID: 1004}, next(t, a))
	require.Equal(t, agent.AllStarted{}, next(t, a))
}

func TestAgentBehindAStream(t *testing.T) {
	a := connect(t)
	var reply string
	require.NoError(t, a.Prepare(t.Context(), 42, &reply))
	require.Equal(t, "planned 42", reply)
	startTwo(t, a)
	a.Do(agent.Input{Rank: 4, Data: []byte("echo")})
	require.Equal(t, agent.Output{Rank: 4, Data: []byte("echo")}, next(t, a))
	a.Close()
	select {
	case <-a.ended: // the far side has answered Closed, which it does after it has closed its agent
	default:
		t.Fatal("the far side has not closed its agent")
	}
}

// An agent that takes long to plan, as where the names of hosts are slow to look up, is not lost.
func TestAgentThatPlansForLongIsNotLost(t *testing.T) {
	t.Parallel()
	a := connect(t)
	var reply string
	require.NoError(t, a.Prepare(t.Context(), 1234, &reply))
	require.Equal(t, "planned 1234", reply)
	a.Close()
}

// stop stops an agent's process. Until the system says so its threads may go on.
func stop(t *testing.T, a *Agent) {
	pid := a.process.cmd.Process.Pid
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped())
}

// What a request says of an agent that is gone is why it is.
func TestRequestToAnAgentThatIsSilent(t *testing.T) {
	t.Parallel()
	a := connect(t)
	stop(t, a)
	require.ErrorContains(t, a.Prepare(t.Context(), 42, new(string)),
		"host far: nothing was heard from it for 1.75s")
	a.Close()
}

// A program is copied whole, however long it is.
func TestStage(t *testing.T) {
	a := connect(t)
	content := bytes.Repeat([]byte("program "), 1<<20)
	var reply string
	require.NoError(t, a.Stage(t.Context(), 3, bytes.NewReader(content), &reply))
	require.Equal(t, fmt.Sprint("3 ", crc32.ChecksumIEEE(content)), reply)
	a.Close()
}

// The end of an agent is an event that names its ranks.
func TestAgentThatEndsIsLost(t *testing.T) {
	a := connect(t)
	startTwo(t, a)
	a.Do(agent.Input{Rank: 4, Data: []byte("die")})
	lost := next(t, a).(agent.Lost)
	require.Equal(t, []int{4, 5}, lost.Ranks)
	require.Equal(t, "host far is lost: the connection to its agent has ended", lost.Reason)
	a.Close()
}

// One that is stopped is lost, too: a host whose network is gone says nothing either.
func TestAgentThatIsSilentIsLost(t *testing.T) {
	t.Parallel()
	a := connect(t)
	startTwo(t, a)
	stop(t, a)
	lost := next(t, a).(agent.Lost)
	require.Contains(t, lost.Reason, "nothing was heard from it for 1.75s")
	a.Close()
}

// An agent is not believed about ranks that it does not have.
func TestAgentSpeaksOnlyOfItsRanks(t *testing.T) {
	a := connect(t)
	startTwo(t, a)
	a.Do(agent.HangUp{Rank: 4})
	lost := next(t, a).(agent.Lost)
	require.Contains(t, lost.Reason, "an event of rank 99, which is not of this host")
	a.Close()
}

// A command that cannot be sent is not dropped: the agent is lost, for which the error names the reason.
func TestCommandThatCannotBeSent(t *testing.T) {
	for want, c := range map[string]agent.Command{
		"*agent.Halt has no frame": &agent.Halt{},
		"the command to it is too long (agent.Input of 67108869 bytes; 67108864 are allowed)": agent.Input{
			Rank: 4, Data: make([]byte, maxCommand)},
	} {
		a := connect(t)
		startTwo(t, a)
		a.Do(c)
		a.Do(c)
		lost := next(t, a).(agent.Lost)
		require.Equal(t, []int{4, 5}, lost.Ranks)
		require.Contains(t, lost.Reason, "host far is lost: ")
		require.Contains(t, lost.Reason, want)
		a.Close()
	}
}

// A process that was stopped itself has not missed anything.
func TestSilenceCountsOnlyPeriodsThatWereSeen(t *testing.T) {
	var s keepalive
	now := time.Now()
	for i := 1; i <= 3; i++ {
		now = now.Add(period)
		require.Equal(t, i, s.tick(now))
	}
	now = now.Add(time.Hour)
	require.Equal(t, 3, s.tick(now))
	s.received()
	require.Equal(t, 1, s.tick(now.Add(period)))
}
