package launcher

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/internal/trace"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/output"
)

func leave(j *job, rank int, what snapshot.Artifact, data []byte) {
	half := len(data) / 2
	j.artifacts.add(agent.Artifact{Rank: rank, What: what, Data: data[:half]})
	j.artifacts.add(agent.Artifact{Rank: rank, What: what, Last: true, Data: data[half:]})
}

func jobOnTwoHosts() *job {
	a, b := &node{name: "alpha"}, &node{name: "beta"}
	j := &job{programs: programs{of: make([]int, 3)}, nodes: nodes{of: []*node{a, a, b}}}
	j.artifacts.job = j
	return j
}

func TestProfile_OfAllRanks(t *testing.T) {
	var heap bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&heap, 0))
	j := jobOnTwoHosts()
	j.ProfileFile = filepath.Join(t.TempDir(), "job.pprof")
	leave(j, 0, snapshot.Profile, heap.Bytes())
	leave(j, 2, snapshot.Profile, heap.Bytes())
	j.artifacts.add(agent.Artifact{Rank: 1, What: snapshot.Profile, Data: heap.Bytes()}) // and no end
	missing, err := j.artifacts.writeProfile()
	require.NoError(t, err)
	require.Equal(t, []int{1}, missing)
	b, err := os.ReadFile(j.ProfileFile)
	require.NoError(t, err)
	p, err := profile.ParseData(b)
	require.NoError(t, err)
	seen := map[string]string{}
	for _, s := range p.Sample {
		seen[s.Label["rank"][0]] = s.Label["host"][0]
	}
	require.Equal(t, map[string]string{"0": "alpha", "2": "beta"}, seen)
}

func TestCallReport(t *testing.T) {
	j := jobOnTwoHosts()
	of := func(sites ...snapshot.CallSite) []byte {
		b, err := json.Marshal(sites)
		require.NoError(t, err)
		return b
	}
	leave(j, 0, snapshot.CallSites, of(
		snapshot.CallSite{Call: "Send", Site: "a.go:1", Count: 2, Bytes: 16, Time: time.Second},
		snapshot.CallSite{Call: "Recv", Site: "a.go:2", Count: 3, Time: 3 * time.Second, Waiting: time.Second}))
	leave(j, 1, snapshot.CallSites, of(snapshot.CallSite{Call: "Recv", Site: "a.go:2", Time: 2 * time.Second}))
	leave(j, 2, snapshot.CallSites, []byte("}"))
	require.Equal(t, `calls by rank and place, the longest first
RANK  CALL  SITE    COUNT  BYTES  TIME  WAITING
0     Recv  a.go:2  3      0      3s    1s
1     Recv  a.go:2  0      0      2s    0s
0     Send  a.go:1  2      16     1s    0s
without rank 2`, strings.Join(j.artifacts.callReport(), "\n"))
}

// Both ends of a message whose clocks disagree have no arrow, and are told as two ends.
func TestTellTrace_CountsEndsWithoutAnArrow(t *testing.T) {
	j := jobOnTwoHosts()
	j.Trace = filepath.Join(t.TempDir(), "job.pftrace")
	told, err := os.Create(filepath.Join(t.TempDir(), "told"))
	require.NoError(t, err)
	defer told.Close()
	j.output, err = output.New(told, told)
	require.NoError(t, err)
	for rank, at := range []int64{2000, 1000} { // by one clock, received before the sender has begun
		b := trace.NewBuffer(1<<20, time.Now())
		if rank == 0 {
			b.AddAt(at, trace.CallBegin, 0, 0, 1, 7, 8)
		}
		b.AddAt(at, []trace.Kind{trace.Sent, trace.Matched}[rank], 0, 0, 1-rank, 7, 8)
		data, err := b.Encode(trace.Head{Rank: rank, Size: 3, Clock: 1, Calls: []string{"Send"}}, 64<<20)
		require.NoError(t, err)
		leave(j, rank, snapshot.Trace, data)
	}
	require.Nil(t, j.artifacts.tellTrace())
	j.output.Flush(2 * time.Minute)
	j.output.Close()
	text, err := os.ReadFile(told.Name())
	require.NoError(t, err)
	require.Contains(t, string(text), "0 messages, without rank 2;")
	require.Contains(t, string(text), "weft: the trace: 2 ends of messages without an arrow: the other ends are not "+
		"in it, or were cancelled, or clocks disagree\n")
}

func TestArtifacts_TooMuchIsDropped(t *testing.T) {
	var d artifacts
	part := make([]byte, snapshot.MaxArtifact/2)
	for range 3 {
		d.add(agent.Artifact{What: snapshot.Profile, Data: part})
	}
	d.add(agent.Artifact{What: snapshot.Profile, Data: []byte("its end"), Last: true})
	require.Nil(t, d.latest(snapshot.Profile, 0))
	require.Zero(t, d.size)
	d.add(agent.Artifact{What: snapshot.Profile, Data: []byte("another one"), Last: true})
	require.Equal(t, "another one", string(d.latest(snapshot.Profile, 0)))
	d.add(agent.Artifact{What: snapshot.Artifacts, Last: true})
	d.add(agent.Artifact{What: 0, Last: true})
	require.Nil(t, d.latest(snapshot.Stacks, 0))
}

// A rank that goes on after a signal hands over again: the latest whole one counts, but of CPU profiles all.
func TestArtifacts_ReplaceEarlierOnes(t *testing.T) {
	d := artifacts{}
	d.keepAll[snapshot.Profile] = true
	for _, what := range []snapshot.Artifact{snapshot.Trace, snapshot.Profile} {
		d.add(agent.Artifact{What: what, Data: []byte("one"), Last: true})
		d.add(agent.Artifact{What: what, Data: []byte("tw")})
		require.Equal(t, "one", string(d.latest(what, 0)))
		d.add(agent.Artifact{What: what, Data: []byte("o"), Last: true})
		d.add(agent.Artifact{What: what, Data: []byte("thr")})
	}
	require.Equal(t, [][]byte{[]byte("two")}, d.all(snapshot.Trace, 0))
	require.Equal(t, [][]byte{[]byte("one"), []byte("two")}, d.all(snapshot.Profile, 0))
	require.Equal(t, len("two")+len("thr")+len("onetwo")+len("thr"), d.size)
}
