package launcher

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/remote"
)

func init() {
	reconnectTimeout = patience // no host of these tests is silent for ever
	modes["fails-until"] = func() {
		c := joinPMI()
		fmt.Printf("rank %d of %d, start %s\n", c.Rank(), c.Size(), os.Getenv("WEFT_RESTARTED"))
		startFamily()
		check(c.Barrier(context.Background()))
		restarts, err := strconv.Atoi(os.Getenv("WEFT_RESTARTED"))
		check(err)
		until, err := strconv.Atoi(os.Getenv("LAUNCHER_TEST_UNTIL"))
		check(err)
		if c.Rank() == 1 && restarts < until {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		check(c.Barrier(context.Background()))
		check(c.Finalize(context.Background()))
	}
}

func failsUntil(start int, change func(*Job)) func(*Job) {
	return func(j *Job) {
		j.Env = append(j.Env, fmt.Sprint("LAUNCHER_TEST_UNTIL=", start))
		change(j)
	}
}

// A rank is killed in the first two starts. Each start is whole, and what the earlier one has left behind is
// gone.
func TestRestart(t *testing.T) {
	for name, hosts := range map[string]func(*Job){
		"here": func(*Job) {}, "agents": onHosts(Host{"a", 2}, Host{"b", 1}),
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, 3, "fails-until", failsUntil(2, func(j *Job) { j.Restarts = 2; hosts(j) }))
			text, err := io.ReadAll(b.out)
			require.NoError(t, err)
			require.NoError(t, <-b.done)
			for start := range 3 {
				for rank := range 3 {
					require.Equal(t, 1, strings.Count(string(text), fmt.Sprintf("rank %d of 3, start %d\n", rank, start)), string(text))
				}
			}
			require.Empty(t, marked(b.mark), "processes are left behind")
			require.Regexp(t, `^weft: rank 1 on \w+ \(pid .*\) was killed by signal 9 \(SIGKILL\)
weft: the job starts again: restart 1 of 2
weft: rank 1 on \w+ \(pid .*\) was killed by signal 9 \(SIGKILL\)
weft: the job starts again: restart 2 of 2
$`, b.stderr())
		})
	}
}

// The restarts end, and the status is that of the last failure.
func TestRestart_NotForEver(t *testing.T) {
	b := start(t, 2, "fails-until", failsUntil(9, func(j *Job) { j.Restarts = 1 }))
	text, err := io.ReadAll(b.out)
	require.NoError(t, err)
	err = <-b.done
	require.Equal(t, 137, ExitStatus(err))
	require.NotContains(t, string(text), "start 2")
	require.Contains(t, b.stderr(), "weft: the job has been started again 1 time, as often as --restarts allows\n")
	require.Empty(t, marked(b.mark), "processes are left behind")
}

func TestRestart_OutputOfEachStart(t *testing.T) {
	dir := t.TempDir()
	b := start(t, 2, "fails-until", failsUntil(1, func(j *Job) { j.Restarts, j.OutputDir = 1, dir }))
	require.NoError(t, <-b.done)
	for start, file := range []string{"rank.1.out", "restart.1/rank.1.out"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		require.Regexp(t, fmt.Sprintf("^rank 1 of 2, start %d\n", start), string(text))
	}
}

// The timeout is that of the job with all its starts, and holds while it is being started, too.
func TestRestart_Timeout(t *testing.T) {
	t.Parallel()
	b := start(t, 2, "fails-until", failsUntil(1_000_000, func(j *Job) {
		j.Restarts, j.Timeout = 1_000_000, time.Second
	}))
	go io.Copy(io.Discard, b.out)
	err := <-b.done
	require.Equal(t, 124, ExitStatus(err), err)
	require.Contains(t, b.stderr(), "weft: the job was not over after 1s (--timeout)")
}

// On the hosts that are left there are as many ranks as before, or where the user allows it, fewer.
func TestRestart_HostsThatAreLeft(t *testing.T) {
	for _, c := range []struct {
		minRanks, perNode int
		ranks             int
		says              string
	}{
		{0, 0, 4, "weft: 4 ranks on 2 slots: more ranks than slots on host a"},
		{1, 0, 2, "weft: 2 ranks in place of 4, for there are 2 slots"},
		{3, 0, 3, "weft: 3 ranks in place of 4, for there are 2 slots"},
		{0, 2, 4, "weft: 4 ranks on 2 slots: more ranks than slots on host a"},
	} {
		t.Run(fmt.Sprintf("min=%d,ppn=%d", c.minRanks, c.perNode), func(t *testing.T) {
			down := t.TempDir()
			b := start(t, 4, "", func(j *Job) {
				onHosts(Host{"a", 2}, Host{"b", 2})(j)
				j.Starter = []string{"sh", "-c", `[ -e ` + down + `/{host} ] && exit 1; exec env ` + modeVariable + `=agent "$@"`, "sh"}
				j.Restarts, j.Min, j.MapBy.PerNode = 1, c.minRanks, c.perNode
				j.Apps = []App{{Ranks: 4, Program: "sh", Args: []string{"-c",
					`echo pid $$ rank $WEFT_RANK of $WEFT_SIZE; [ $WEFT_RESTARTED = 1 ] || exec sleep 60`}}}
			})
			var pid int
			for range 4 {
				line, err := b.out.ReadString('\n')
				require.NoError(t, err)
				var p, rank int
				_, err = fmt.Sscanf(line, "pid %d rank %d of 4", &p, &rank)
				require.NoError(t, err, line)
				if rank == 3 {
					pid = p
				}
			}
			require.NoError(t, os.WriteFile(filepath.Join(down, "b"), nil, 0o666))
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			require.NoError(t, err)
			parent, err := strconv.Atoi(regexp.MustCompile(`(?m)^PPid:\s+(\d+)`).FindStringSubmatch(string(stat))[1])
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(parent, syscall.SIGKILL))
			text, err := io.ReadAll(b.out)
			require.NoError(t, err)
			require.NoError(t, <-b.done, b.stderr())
			require.Equal(t, c.ranks, strings.Count(string(text), fmt.Sprintf(" of %d\n", c.ranks)), string(text))
			require.Contains(t, b.stderr(), "weft: host b is lost: ")
			require.Contains(t, b.stderr(), "weft: host b is left out\n")
			require.Contains(t, b.stderr(), c.says)
			require.Empty(t, marked(b.mark), "processes are left behind")
		})
	}
}

// Where every host is lost there is nothing to start on. The restarts are used up, for one may come back.
func TestRestart_NoHostIsLeft(t *testing.T) {
	t.Parallel()
	down := t.TempDir()
	b := start(t, 1, "", func(j *Job) {
		onHosts(Host{"a", 1})(j)
		j.Starter = []string{"sh", "-c", `[ -e ` + down + `/{host} ] && exit 1; exec env ` + modeVariable + `=agent "$@"`, "sh"}
		j.Restarts = 2
		j.Apps = []App{{Ranks: 1, Program: "sh", Args: []string{"-c", `echo > ` + down + `/a; kill -9 $$`}}}
	})
	err := <-b.done
	require.ErrorContains(t, err, "no host is left")
	require.Equal(t, 1, ExitStatus(err))
	require.Contains(t, b.stderr(), "restart 2 of 2\n")
}

// One command that starts all agents would fail for a host that is lost.
func TestRestart_StarterOfAllAgents(t *testing.T) {
	p := past{history: new(history),
		spec: &Job{Hosts: []Host{{"a", 1}, {"b", 1}, {"c", 1}}, Starter: []string{"srun", "{hosts}"}}}
	require.Equal(t, p.spec.Hosts, p.hostsToAsk())
	p.lostHost(time.Now(), "c", agent.Lost{Ranks: []int{2}}, nil) // its ranks had ended: the job goes on
	p.lostHost(time.Now(), "b", agent.Lost{Ranks: []int{1}}, []int{1})
	p.lostHost(time.Now(), "a", agent.Lost{Ranks: []int{0}}, []int{0}) // a consequence
	require.Equal(t, []Host{{"a", 1}}, p.hostsToAsk())
	p.spec.Starter = []string{"ssh", "{host}"}
	require.Equal(t, p.spec.Hosts, p.hostsToAsk(), "a host may come back")
}

// A host that is only silent may run its ranks until its agent ends them.
func TestRestart_WaitsForRanksThatAreCutOff(t *testing.T) {
	p := past{history: new(history)}
	now := time.Now()
	p.lostHost(now, "a", agent.Lost{Ranks: []int{0}}, []int{0})
	require.NoError(t, p.waitUntilFree(t.Context()))
	p.lostHost(now, "a", agent.Lost{Ranks: []int{0}, Silent: true}, []int{0})
	require.Equal(t, now.Add(remote.EndsWithin), p.freeAt)
	p.freeAt = now.Add(100 * time.Millisecond)
	require.NoError(t, p.waitUntilFree(t.Context()))
	require.False(t, time.Now().Before(p.freeAt))
	p.freeAt = time.Now().Add(startPause)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.waitUntilFree(ctx), context.Canceled)
}

// The slots of all hosts together may be more than a job can have ranks.
func TestSize_AsManyRanksAsSlots(t *testing.T) {
	hosts := []Host{{"a", maxRanks - 1}, {"b", 1}}
	p := past{history: new(history), spec: &Job{Hosts: hosts}}
	n, err := p.size(hosts, 0)
	require.NoError(t, err)
	require.Equal(t, maxRanks, n)
	hosts[1].Slots = 2
	_, err = p.size(hosts, 0)
	require.EqualError(t, err, "more than 65536 ranks")
	require.Equal(t, 2, ExitStatus(err))
}

// A caller that cancels the job while a restart is being prepared wants no other restart.
func TestRestart_NotAfterCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	spec := Job{Apps: []App{{Program: "true", Ranks: 1}}, Restarts: 3}
	earlier := &history{restarts: 1, freeAt: time.Now().Add(time.Hour)}
	cancel()
	again, err := runOnce(ctx, spec, earlier, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, again)
	require.Equal(t, 1, earlier.restarts)
}

func TestRestart_Nonsense(t *testing.T) {
	for want, change := range map[string]func(*Job){
		"-1 restarts: the number is below zero":                                    func(j *Job) { j.Restarts = -1 },
		"a least number of ranks after a restart, and no restarts":                 func(j *Job) { j.Min = 1 },
		"or starts all of them again: not both":                                    func(j *Job) { j.Restarts, j.Survive = 1, true },
		"at least 3 ranks after a restart: the job has 2":                          func(j *Job) { j.Restarts, j.Min = 1, 3 },
		"standard input for rank 1, and after a restart there may be only 1 ranks": func(j *Job) { j.Restarts, j.Min, j.Stdin = 1, 1, 1 },
		"of 2 programs it is not known which": func(j *Job) {
			j.Restarts, j.Min = 1, 1
			j.Apps = append(j.Apps, App{Program: "true", Ranks: 1})
		},
	} {
		job := Job{Apps: []App{{Program: "true", Ranks: 2}}}
		change(&job)
		err := Run(t.Context(), job)
		require.ErrorContains(t, err, want)
		require.Equal(t, 2, ExitStatus(err))
	}
}

// A host that does not answer is no way to others any more: the launcher starts their agents itself. The host
// gives up when these are being started.
func TestRestart_WithoutAHostThatOthersAreReachedThrough(t *testing.T) {
	defer func(before time.Duration) { aroundTimeout = before }(aroundTimeout)
	aroundTimeout = 100 * time.Millisecond
	down := t.TempDir()
	b := start(t, 3, "", func(j *Job) {
		onHosts(Host{"a", 1}, Host{"b", 1}, Host{"c", 1})(j)
		j.FanOut = 1
		j.Starter = []string{"sh", "-c", `d=` + down + `; [ ! -e $d/a ] || echo > $d/{host}.again
			if [ -e $d/{host} ]; then for i in $(seq 600); do [ -e $d/b.again ] && exit 1; sleep .1; done; fi
			exec env ` + modeVariable + `=agent "$@"`, "sh"}
		j.Restarts = 1
		j.Apps = []App{{Ranks: 3, Program: "sh", Args: []string{"-c", `[ $WEFT_RESTARTED = 1 ] || { [ $WEFT_RANK = 0 ] && echo > ` +
			down + `/a && kill -9 $PPID; exec sleep 60; }`}}}
	})
	require.NoError(t, <-b.done, b.stderr())
	require.Contains(t, b.stderr(), "weft: host a is left out\n")
	require.NotContains(t, b.stderr(), "weft: host b is left out\n")
	require.NotContains(t, b.stderr(), "weft: host c is left out\n")
	require.Empty(t, marked(b.mark), "processes are left behind")
}
