package live

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// suffix is the suffix of sockets that are ready for callers.
const (
	suffix   = ".sock"
	unready  = ".new"
	folderOf = "weft"
)

// folders returns the folders that may hold sockets, the best first: the user's session folder, which a
// terminal of another kind may not know, and one in the folder for temporary files.
func folders() []string {
	list := []string{filepath.Join(os.TempDir(), folderOf+"-"+strconv.Itoa(os.Getuid()))}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		list = append([]string{filepath.Join(dir, folderOf)}, list...)
	}
	return list
}

// checkFolder refuses a folder that other users own or can enter.
func checkFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", dir)
	case !ok || int(stat.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to another user", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others can enter %s: its mode is %v, and 0700 is needed", dir, info.Mode().Perm())
	}
	return nil
}

// makeFolder makes the folder for sockets, unless it is there. before is called with a folder before it is
// made or used.
func makeFolder(before func(dir string)) error {
	var all []error
	for _, dir := range folders() {
		err := checkFolder(dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			before(dir)
			if err = os.Mkdir(dir, 0o700); err == nil || errors.Is(err, os.ErrExist) {
				err = checkFolder(dir)
			}
		}
		if err == nil {
			return nil
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// sockets returns the paths of the sockets in all trusted folders.
func sockets() []string {
	var list []string
	for _, dir := range folders() {
		if checkFolder(dir) != nil {
			continue
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.Type()&os.ModeSocket != 0 {
				list = append(list, filepath.Join(dir, e.Name()))
			}
		}
	}
	return list
}

// sweep removes a socket that nobody listens on any more, since its launcher was killed. It keeps one that is
// not ready yet while its process lives.
func sweep(path string) {
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return
	}
	if name, is := strings.CutSuffix(filepath.Base(path), unready); is {
		text, _, _ := strings.Cut(name, "-")
		if pid, err := strconv.Atoi(text); err != nil || syscall.Kill(pid, 0) == nil {
			return
		}
	}
	os.Remove(path)
}
