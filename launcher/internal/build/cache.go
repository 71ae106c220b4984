package build

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A buildCache is a folder of programs that were built from Go packages. Each is in a folder named after the
// hash of its bytes, so a program is never written again once it has its name, and jobs that run an older
// build of a package keep it. For each package, a file holds the hash of its latest build: the go command
// compares that program's build ID with the package's inputs and links only if they differ.
//
// The folder belongs to the user. No other user can read, write or replace it: otherwise another user could
// choose the program that this user runs. Concurrent builds need no lock. Each writes to its own folder and
// then renames it.
type buildCache struct {
	dir string
}

const (
	// maxCacheBytes bounds the cache. Beyond it, the least recently used programs are removed.
	maxCacheBytes = 1 << 30
	// minKeep is the minimum time that a program is kept after its last use: a job may be about to start its
	// ranks.
	minKeep = 10 * time.Minute
	// buildPrefix is the prefix of folders of unfinished builds, latestPrefix of files that name a latest
	// build.
	buildPrefix, latestPrefix = "build-", "latest-"
)

// userBuildCache returns the cache in the user's cache folder. The error says why there can be none.
func userBuildCache() (*buildCache, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	return openBuildCache(filepath.Join(base, "weft", "build"))
}

// openBuildCache makes the folder if it does not exist, and checks that it is the user's alone.
func openBuildCache(dir string) (*buildCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(dir); err != nil {
		return nil, err
	}
	return &buildCache{dir}, nil
}

// checkPrivate returns an error if a folder is not safe to run programs from, because other users can read,
// write or replace it.
func checkPrivate(dir string) error {
	info, owner, err := ownerOf(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case owner != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, not to user %d", dir, owner, os.Geteuid())
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s can be used by others (mode %04o): chmod 700 it", dir, info.Mode().Perm())
	}
	// A user who can write to a folder above can replace the folder below it, unless the sticky bit forbids
	// it.
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, owner, err := ownerOf(parent)
		switch {
		case err != nil:
			return err
		case owner != os.Geteuid() && owner != 0:
			return fmt.Errorf("%s is in %s, which belongs to user %d", dir, parent, owner)
		case info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
			return fmt.Errorf("%s is in %s, where others can write (mode %04o)", dir, parent,
				info.Mode().Perm())
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

func ownerOf(path string) (fs.FileInfo, int, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, 0, fmt.Errorf("%s: this system does not tell who owns it", path)
	}
	return info, int(stat.Uid), nil
}

// build calls compile to write a program to a file, and returns the path of the cached program. If there is
// an earlier build of the same source, compile is given a copy of it. source is the path of the package or Go
// file.
func (c *buildCache) build(source, name string, compile func(out string) error) (string, error) {
	temp, err := os.MkdirTemp(c.dir, buildPrefix)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	out := filepath.Join(temp, name)
	pathHash := sha256.Sum256([]byte(source))
	latest := filepath.Join(c.dir, latestPrefix+hex.EncodeToString(pathHash[:16]))
	if hash, err := os.ReadFile(latest); err == nil && isHash(string(hash)) {
		// A copy, as no build may write to a program that a job could be running.
		copyProgram(filepath.Join(c.dir, string(hash), name), out)
	}
	if err := compile(out); err != nil {
		return "", err
	}
	hash, err := hashOf(out)
	if err != nil {
		return "", err
	}
	file, err := c.store(hash, out)
	if err != nil {
		return "", err
	}
	note := filepath.Join(temp, "latest")
	if err := os.WriteFile(note, []byte(hash), 0o600); err == nil {
		os.Rename(note, latest)
	}
	c.evict(maxCacheBytes, time.Now())
	return file, nil
}

// store moves a finished program to the folder of its hash, unless it is there already.
func (c *buildCache) store(hash, built string) (string, error) {
	dir := filepath.Join(c.dir, hash)
	file := filepath.Join(dir, filepath.Base(built))
	now := time.Now()
	if have, err := hashOf(file); err == nil && have == hash {
		return file, os.Chtimes(dir, now, now)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if err := os.Chmod(built, 0o700); err != nil {
		return "", err
	}
	if err := os.Rename(built, file); err != nil {
		return "", err
	}
	return file, os.Chtimes(dir, now, now)
}

// evict removes the remains of crashed builds, and the least recently used programs until the rest takes at
// most limit bytes.
func (c *buildCache) evict(limit int64, now time.Time) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	type program struct {
		dir  string
		used time.Time
		size int64
	}
	var programs []program
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		path := filepath.Join(c.dir, e.Name())
		switch {
		case isHash(e.Name()):
			p := program{path, info.ModTime(), sizeOf(path)}
			programs, total = append(programs, p), total+p.size
		case strings.HasPrefix(e.Name(), buildPrefix) && now.Sub(info.ModTime()) > time.Hour,
			strings.HasPrefix(e.Name(), latestPrefix) && now.Sub(info.ModTime()) > 365*24*time.Hour:
			os.RemoveAll(path)
		}
	}
	slices.SortFunc(programs, func(a, b program) int { return a.used.Compare(b.used) })
	for _, p := range programs {
		if total <= limit || now.Sub(p.used) < minKeep {
			return
		}
		os.RemoveAll(p.dir)
		total -= p.size
	}
}

func sizeOf(dir string) (size int64) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			size += info.Size()
		}
	}
	return size
}

// isHash reports whether a name has the form of hashOf.
func isHash(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == 16
}

// hashOf returns the name of the folder of a program.
func hashOf(file string) (string, error) {
	hash, err := ContentHash(file)
	return hash[:min(len(hash), 32)], err
}

// ContentHash returns the hash of a file's content, to compare the programs of two hosts.
func ContentHash(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// copyProgram copies a program if it exists. After an error it leaves no file.
func copyProgram(from, to string) {
	in, err := os.Open(from)
	if err != nil {
		return
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return
	}
	_, err = io.Copy(out, in)
	if closeErr := out.Close(); err != nil || closeErr != nil {
		os.Remove(to)
	}
}
