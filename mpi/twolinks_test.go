package mpi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// island is a process that does nothing, in a network of its own. With it the network goes, and its end of
// each cable.
var island = launchertest.Body("island", func() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
})

// links are two machines with two cables between them, each of a limited rate: two networks of this one. The
// addresses are 10.77.CABLE+1.MACHINE+1.
type links struct {
	t        testing.TB
	machines [2]int // process ids of the islands
}

// newLinks lays cables that carry so many Mbit/s. It skips a test for which something is missing.
func newLinks(t testing.TB, mbit int) *links {
	t.Helper()
	for _, tool := range []string{"ip", "tc", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing (Debian: iproute2 and util-linux), by which networks are made", tool)
		}
	}
	n := &links{t: t}
	self, err := os.Executable()
	require.NoError(t, err)
	for i := range n.machines {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), launchertest.Environ(island)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		if err := start(t, cmd); err != nil {
			t.Skipf("a network of its own for a process needs the capability CAP_SYS_ADMIN: %v", err)
		}
		t.Cleanup(func() { in.Close(); cmd.Wait() })
		n.machines[i] = cmd.Process.Pid
	}
	for c := range 2 {
		lay := fmt.Sprintf("ip link add cable%d type veth peer name cable%[1]d netns %d", c, n.machines[1])
		if out, err := n.command(0, strings.Fields(lay)...).CombinedOutput(); err != nil {
			t.Skipf("a pair of interfaces needs CONFIG_VETH and the capability CAP_NET_ADMIN: %s", out)
		}
	}
	for m := range n.machines {
		n.run(m, "ip link set lo up")
		for c := range 2 {
			n.run(m, "ip address add 10.77.%d.%d/24 dev cable%d", c+1, m+1, c)
			n.run(m, "ip link set cable%d up", c)
			limit := fmt.Sprintf("tc qdisc add dev cable%d root tbf rate %dmbit burst 256kb latency 200ms",
				c, mbit)
			if out, err := n.command(m, strings.Fields(limit)...).CombinedOutput(); err != nil {
				t.Skipf("a limited rate needs CONFIG_NET_SCH_TBF: %s", out)
			}
		}
	}
	return n
}

// within are the words before a command that is to run on a machine.
func (n *links) within(machine int) []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", n.machines[machine])}
}

func (n *links) command(machine int, words ...string) *exec.Cmd {
	words = append(n.within(machine), words...)
	return exec.Command(words[0], words[1:]...)
}

func (n *links) run(machine int, text string, args ...any) {
	n.t.Helper()
	out, err := n.command(machine, strings.Fields(fmt.Sprintf(text, args...))...).CombinedOutput()
	require.NoError(n.t, err, "%s: %s", fmt.Sprintf(text, args...), out)
}

// carried is how many bytes a cable has carried, both ways.
func (n *links) carried(cable int) int {
	n.t.Helper()
	out, err := n.command(0, "ip", "-s", "-j", "link", "show", "dev", "cable"+strconv.Itoa(cable)).Output()
	require.NoError(n.t, err)
	var list []struct {
		Stats struct {
			RX, TX struct{ Bytes int }
		} `json:"stats64"`
	}
	require.NoError(n.t, json.Unmarshal(out, &list))
	return list[0].Stats.RX.Bytes + list[0].Stats.TX.Bytes
}

// plug connects a cable or disconnects it, at both its ends.
func (n *links) plug(cable int, state string) {
	n.t.Helper()
	for m := range n.machines {
		n.run(m, "ip link set cable%d %s", cable, state)
	}
}

// both are the settings by which lanes use both cables.
var both = []string{"WEFT_FABRIC=tcp", "WEFT_IFACE=10.77.0.0/16", "WEFT_LANES=2"}

// TestLanes_H5_LinkGoesDown: one of two links is cut while messages are on it. The job goes on over the other
// one, with every byte right; when the link is there again it is used again.
func TestLanes_H5_LinkGoesDown(t *testing.T) {
	n := newLinks(t, 400)
	j := beginAs(t, 2, lossy, manner{within: n.within}, append(both, "LOSSY_SEED=3",
		"WEFT_PEER_TIMEOUT=4s")...)
	j.until("both lanes are there", func(s laneSums) bool { return s.lanes >= 4 })
	const some = 1 << 20
	carries := func(cable int) {
		from := n.carried(cable)
		j.until(fmt.Sprintf("link %d is used", cable),
			func(laneSums) bool { return n.carried(cable)-from > some })
	}
	for {
		carries(0)
		carries(1)
		n.plug(1, "down")
		j.until("both ends have lost the lane", func(s laneSums) bool { return s.lanes == 2 && s.down >= 2 })
		carries(0)
		n.plug(1, "up")
		s := j.until("the lane is back", func(s laneSums) bool { return s.lanes >= 4 })
		carries(1)
		if s.resent > 0 { // something was on it
			break
		}
	}
	j.finish()
}

// bulk sends messages from rank 0 to rank 1, several at a time, and tells how many MB/s that were.
var bulk = body("bulk", func(_ context.Context, world *mpi.Comm) error {
	count, err := strconv.Atoi(os.Getenv("BULK_MESSAGES"))
	if err != nil {
		return err
	}
	const size, window = 4 << 20, 4
	peer := 1 - world.Rank()
	buffers, open := make([][]byte, window), make([]mpi.Request, window)
	for i := range buffers {
		buffers[i] = make([]byte, size)
	}
	var start time.Time
	for i := -window; i < count; i += window {
		if i == 0 {
			start = time.Now()
		}
		for w, buf := range buffers {
			if world.Rank() == 0 {
				fill(buf, 0, w, i)
				open[w], err = mpi.Isend(world, buf, peer, w)
			} else {
				open[w], err = mpi.Irecv(world, buf, peer, w)
			}
			if err != nil {
				return err
			}
		}
		if err := mpi.Waitall(open); err != nil {
			return err
		}
		want := make([]byte, size)
		for w, buf := range buffers {
			if fill(want, 0, w, i); string(want) != string(buf) {
				return fmt.Errorf("message %d is not what was sent", i+w)
			}
		}
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Printf("rate %.1f\n", float64(count*size)/1e6/time.Since(start).Seconds())
	}
	return nil
})

// rate is that of bulk over the links, in MB/s.
func (n *links) rate(t testing.TB, messages int, env ...string) float64 {
	t.Helper()
	j := beginAs(t, 2, bulk, manner{within: n.within}, append(env,
		"BULK_MESSAGES="+strconv.Itoa(messages))...)
	rate, err := strconv.ParseFloat(j.says(0, "rate "), 64)
	require.NoError(t, err)
	j.ended()
	return rate
}

// TestLanes_H1_BothLinksCarry: a message goes over both links, which are so slow that ranks fill them on a loaded
// machine, too.
func TestLanes_H1_BothLinksCarry(t *testing.T) {
	n := newLinks(t, 100)
	n.rate(t, 4, both...)
	for cable := range 2 {
		require.Greater(t, n.carried(cable), 8<<20, "of 32 MiB in all")
	}
}

// BenchmarkLanes_TwoLinks tells how many times as much two links carry as one, and how many times as much as
// the one alone if the other has a quarter of its rate:
//
//	go test ./mpi -run '^$' -bench TwoLinks -benchtime 1x
func BenchmarkLanes_TwoLinks(b *testing.B) {
	const mbit = 200
	for name, other := range map[string]int{"equal": mbit, "unequal": mbit / 4} {
		b.Run(name, func(b *testing.B) {
			n := newLinks(b, mbit)
			for m := range n.machines {
				n.run(m, "tc qdisc change dev cable1 root tbf rate %dmbit burst 256kb latency 200ms", other)
			}
			var one, two float64
			for b.Loop() {
				one += n.rate(b, 40, "WEFT_FABRIC=tcp", "WEFT_IFACE=cable0")
				two += n.rate(b, 40, both...)
			}
			b.ReportMetric(one/float64(b.N), "MB/s-one")
			b.ReportMetric(two/float64(b.N), "MB/s-two")
			b.ReportMetric(two/one, "times")
			b.ReportMetric(0, "ns/op")
		})
	}
}
