package live

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// alone gives a test folders of its own for sockets.
func alone(t *testing.T) (session, temporary string) {
	t.Helper()
	session, temporary = t.TempDir(), t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", session)
	t.Setenv("TMPDIR", temporary)
	return session, temporary
}

func serve(t *testing.T, name string) *Server {
	t.Helper()
	s, err := Listen(Job{PID: os.Getpid(), Name: name, Size: 2}, func(string) {})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// find returns the only job.
func find(t *testing.T) *Watcher {
	t.Helper()
	all, err := Find()
	require.NoError(t, err)
	require.Len(t, all, 1)
	t.Cleanup(all[0].Close)
	return all[0]
}

func TestWatch(t *testing.T) {
	session, _ := alone(t)
	s := serve(t, "solver")
	w := find(t)
	require.Equal(t, "solver", w.Job.Name)
	require.Zero(t, s.Watchers(), "whoever only lists jobs watches none")
	require.NoError(t, w.Start())
	for s.Watchers() == 0 {
		<-s.Changed()
	}
	require.NoError(t, s.Publish(&Job{Size: 2, Ranks: []Rank{{Rank: 0}, {Rank: 1, Call: "Recv"}}}))
	j, err := w.Next()
	require.NoError(t, err)
	require.Equal(t, "Recv", j.Ranks[1].Call)
	s.Close()
	_, err = w.Next()
	require.ErrorIs(t, err, io.EOF)
	left, err := os.ReadDir(session)
	require.NoError(t, err)
	require.Empty(t, left, "neither the socket nor its folder is left")
}

func TestWatcherThatGoesIsForgotten(t *testing.T) {
	alone(t)
	s := serve(t, "solver")
	w := find(t)
	require.NoError(t, w.Start())
	for s.Watchers() == 0 {
		<-s.Changed()
	}
	w.Close()
	for s.Watchers() > 0 {
		<-s.Changed()
	}
}

// A watcher that does not read gets the latest frame in place of all others, and holds nobody up.
func TestSlowWatcher(t *testing.T) {
	alone(t)
	s := serve(t, "solver")
	w := find(t)
	require.NoError(t, w.Start())
	for s.Watchers() == 0 {
		<-s.Changed()
	}
	big := &Job{Size: 1, Ranks: []Rank{{Call: strings.Repeat("x", 1<<19)}}}
	for range 20 {
		require.NoError(t, s.Publish(big))
	}
	require.NoError(t, s.Publish(&Job{Size: 1, Ranks: []Rank{{Call: "last"}}}))
	for n := 0; ; n++ {
		j, err := w.Next()
		require.NoError(t, err)
		if j.Ranks[0].Call == "last" {
			require.Less(t, n, 20)
			return
		}
	}
}

func TestTooManyWatchers(t *testing.T) {
	alone(t)
	serve(t, "solver")
	for range MaxWatchers {
		find(t)
	}
	all, err := Find()
	require.Empty(t, all)
	require.ErrorContains(t, err, "8 others watch job")
}

// A launcher that was killed leaves its socket behind: whoever looks for jobs next removes it, and so does
// the next job.
func TestStaleSocketsAreRemoved(t *testing.T) {
	session, _ := alone(t)
	dir := filepath.Join(session, folderOf)
	require.NoError(t, os.Mkdir(dir, 0o700))
	stale := func(name string) string {
		path := filepath.Join(dir, name)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(t, err)
		l.SetUnlinkOnClose(false)
		l.Close()
		return path
	}
	path := stale("4711-00000000.sock")
	all, err := Find()
	require.NoError(t, err)
	require.Empty(t, all)
	require.NoFileExists(t, path)

	path = stale("4711-00000001.sock")
	gone := stale("999999999-00000002.new")
	coming := stale("1-00000003.new") // of a process that lives
	serve(t, "solver")
	require.NoFileExists(t, path)
	require.NoFileExists(t, gone)
	require.FileExists(t, coming)
	find(t)
}

// Who is to remove what a killed launcher leaves knows of a socket, and of its folder, before it is there.
func TestPathsAreToldBeforeTheyAreMade(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", t.TempDir())
	var told []string
	s, err := Listen(Job{PID: os.Getpid()}, func(path string) {
		require.NoFileExists(t, path)
		if len(told) == 0 {
			require.NoDirExists(t, filepath.Dir(path))
		}
		told = append(told, path)
	})
	require.NoError(t, err)
	defer s.Close()
	require.Contains(t, told, s.path)
	require.Len(t, told, 2, "and the name that it has until it listens")
}

func TestFolderThatOthersCanEnter(t *testing.T) {
	session, temporary := alone(t)
	open := filepath.Join(session, folderOf)
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o755))
	serve(t, "solver")
	in, err := os.ReadDir(open)
	require.NoError(t, err)
	require.Empty(t, in)
	find(t)

	require.ErrorContains(t, checkFolder(open), "others can enter")
	link := filepath.Join(temporary, "link")
	require.NoError(t, os.Symlink(temporary, link))
	require.ErrorContains(t, checkFolder(link), "is no folder")
}

func TestNoFolder(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", "/nonexistent")
	_, err := Listen(Job{}, func(string) {})
	require.Error(t, err)
	all, err := Find()
	require.NoError(t, err)
	require.Empty(t, all)
	var none *Server
	require.Zero(t, none.Watchers())
	none.Close()
}

// Whatever a launcher says, reading it ends without a panic.
func FuzzReadJob(f *testing.F) {
	frame, err := encode(&Job{Size: 1, Ranks: []Rank{{Call: "Recv"}}})
	require.NoError(f, err)
	f.Add(frame)
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := readJob(bytes.NewReader(b))
		if err == nil && len(j.Ranks) > 0 {
			require.Len(t, j.Ranks, j.Size)
		}
	})
}
