package placement

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/topology"
)

func TestCoreLocks(t *testing.T) {
	prefix := fmt.Sprintf("@weft-test-%d-", os.Getpid())
	a, b := newLocks(prefix), newLocks(prefix)
	defer a.Release()
	defer b.Release()
	require.Empty(t, a.hold([]int{1, 2}))
	require.Empty(t, a.hold([]int{1, 2}), "what it has it keeps")
	require.Equal(t, []int{2}, b.hold([]int{2, 3}))
	require.Equal(t, []int{3}, a.hold([]int{2, 3}))
	b.Release()
	require.Empty(t, a.hold([]int{2, 3}))
	require.Empty(t, b.hold([]int{1}), "what is no longer wanted is given up")
	a.Release()
	require.Empty(t, b.hold([]int{1, 2, 3}))
}

func TestCoreLocks_OfOtherUsersAreHints(t *testing.T) {
	prefix := fmt.Sprintf("@weft-test-others-%d-", os.Getpid())
	own := newLocks(prefix)
	other := newLocks(prefix)
	other.user++
	defer own.Release()
	defer other.Release()
	require.Empty(t, own.hold([]int{1}))
	require.Empty(t, other.hold([]int{1, 2, 3}), "what another user has is not taken")
	require.Equal(t, map[int]bool{1: true, 2: true, 3: true}, own.ofOthers())
	require.Equal(t, map[int]bool{1: true}, other.ofOthers())
	other.Release()
	require.Empty(t, own.ofOthers())

	for _, nonsense := range []string{"", "\n", "x", prefix, prefix + "1", prefix + "1-", prefix + "1-x",
		prefix + "1-99999999"} {
		require.Empty(t, own.parseOthers("0000: 00000002 00000000 00010000 0001 01 123 "+nonsense+"\n"),
			"%q", nonsense)
	}
}

// squatVariable has this test's binary take names as another user would.
const squatVariable = "PLACEMENT_TEST_SQUAT"

func TestMain(m *testing.M) {
	if prefix := os.Getenv(squatVariable); prefix != "" {
		c := newLocks(prefix)
		c.user = 0 // the victim, whose names these are
		c.hold([]int{0, 1})
		fmt.Println("the names are taken")
		select {}
	}
	os.Exit(m.Run())
}

// Another user holds the names of this user's locks: they are no locks, for the kernel tells whose they are.
func TestCoreLocks_NamesThatAnotherUserHolds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be two users")
	}
	prefix := fmt.Sprintf("@weft-test-squat-%d-", os.Getpid())
	squatter := exec.Command(testBinaryForAll(t))
	squatter.Env = append(os.Environ(), squatVariable+"="+prefix)
	squatter.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := squatter.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, squatter.Start())
	defer func() { squatter.Process.Kill(); squatter.Wait() }()
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)

	mine := newLocks(prefix)
	defer mine.Release()
	_, err = net.Listen("unix", mine.name(0))
	require.ErrorIs(t, err, syscall.EADDRINUSE, "the other user has the name")
	require.Equal(t, 65534, mine.ownerOf(mine.name(0)))
	require.Empty(t, mine.hold([]int{0, 1, 2}))
}

// testBinaryForAll is a copy of the test's binary that any user can execute.
func testBinaryForAll(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "squat")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	self, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	file := filepath.Join(dir, "test")
	require.NoError(t, os.WriteFile(file, self, 0o600))
	require.NoError(t, os.Chmod(file, 0o755))
	return file
}

// Jobs that start at the same time place their ranks apart.
func TestJobsAvoidEachOthersCores(t *testing.T) {
	m, err := topology.Read()
	require.NoError(t, err)
	if len(m.Cores) < 2 {
		t.Skip("needs two cores")
	}
	prefix := fmt.Sprintf("@weft-jobs-%d-", os.Getpid())
	var placed []Placement
	for range 3 {
		locks := newLocks(prefix)
		defer locks.Release()
		p, err := locks.Place(Request{Machine: m, Ranks: 1, Binding: Binding{To: BindCore}})
		require.NoError(t, err)
		placed = append(placed, p)
	}
	require.Equal(t, m.Cores[0], placed[0].CPUs[0])
	require.Equal(t, m.Cores[1], placed[1].CPUs[0])
	if len(m.Cores) == 2 {
		require.Nil(t, placed[2].CPUs)
		require.Equal(t, []string{"other weft jobs use 2 of 2 cores: the ranks are not bound"},
			placed[2].Notes)
	}
}
