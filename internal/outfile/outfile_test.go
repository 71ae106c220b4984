package outfile

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrite_ReplacesAFileAsAWhole(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o640))
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, os.Symlink(path, link))
	require.NoError(t, Check(link))
	before, err := os.Open(path)
	require.NoError(t, err)
	defer before.Close()
	require.ErrorIs(t, Write(link, func(w io.Writer) error { w.Write([]byte("half")); return fs.ErrInvalid }),
		fs.ErrInvalid)
	require.Equal(t, "old", read(t, path))
	require.NoError(t, Write(link, func(w io.Writer) error { _, err := w.Write([]byte("new")); return err }))
	require.Equal(t, "new", read(t, path))
	old := make([]byte, 8)
	n, err := before.Read(old)
	require.NoError(t, err)
	require.Equal(t, "old", string(old[:n]), "who reads the old file reads on in it")
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&fs.ModeSymlink, "a link stays one")
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o640), info.Mode().Perm())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "no temporary file")
}

// What is no regular file is written in place, and its error is told.
func TestWrite_ADeviceInPlace(t *testing.T) {
	fill := func(w io.Writer) error { _, err := w.Write(make([]byte, 1<<16)); return err }
	require.NoError(t, Check("/dev/null"))
	require.NoError(t, Write("/dev/null", fill))
	require.NoError(t, Check("/dev/full"))
	require.ErrorIs(t, Write("/dev/full", fill), syscall.ENOSPC)

	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, Check(pipe), "it waits for no reader")
}

func TestCheck_NamesThePath(t *testing.T) {
	dir := t.TempDir()
	require.EqualError(t, Check(dir), dir+" is a directory")
	missing := filepath.Join(dir, "none", "file")
	require.EqualError(t, Check(missing), missing+": no such file or directory")
	require.EqualError(t, Write(missing, nil), missing+": no such file or directory")

	require.NoError(t, Check(filepath.Join(dir, "new")))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "it leaves nothing behind")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
