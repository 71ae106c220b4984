// Package outfile writes the files that a run ends with: reports, plots, traces, profiles.
package outfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Check returns an error if a file cannot be written, before a run that may last for hours. The error names
// the path. Check leaves nothing behind, and does not wait for the reader of a pipe.
func Check(path string) error {
	_, err := find(path)
	return err
}

// Write calls fill to write the file. A regular file is replaced atomically: a reader finds the old or the
// new contents. A device, a pipe, or a file in a folder where no file can be created is written in place.
func Write(path string, fill func(w io.Writer) error) error {
	t, err := find(path)
	if err != nil {
		return err
	}
	if t.inPlace {
		f, err := os.OpenFile(t.path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		return errors.Join(through(f, fill), f.Close())
	}
	f, err := t.temporary()
	if err != nil {
		return fmt.Errorf("%s: %w", path, reason(err))
	}
	err = through(f, fill)
	if err == nil && t.mode != 0 {
		err = f.Chmod(t.mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), t.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// through calls fill with a buffered writer to a file.
func through(f *os.File, fill func(w io.Writer) error) error {
	w := bufio.NewWriter(f)
	if err := fill(w); err != nil {
		return err
	}
	return w.Flush()
}

// target is the file of a path.
type target struct {
	path    string      // without links
	mode    fs.FileMode // of an existing file; else 0
	inPlace bool        // it cannot be replaced
}

// find returns the target of a path, or why it cannot be written.
func find(path string) (target, error) {
	t := target{path: path}
	info, err := os.Stat(path)
	exists := err == nil
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return t, err
	case info.IsDir():
		return t, fmt.Errorf("%s is a directory", path)
	case !info.Mode().IsRegular():
		t.inPlace = true
		return t, nil
	default:
		t.mode = info.Mode().Perm()
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			err = f.Close()
		}
		if err == nil {
			t.path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			return t, err
		}
	}
	f, err := t.temporary()
	switch {
	case err == nil:
		return t, errors.Join(f.Close(), os.Remove(f.Name()))
	case exists:
		t.inPlace = true
		return t, nil
	}
	return t, fmt.Errorf("%s: %w", path, reason(err))
}

// temporary creates a file in the target's folder, to be renamed to it.
func (t *target) temporary() (*os.File, error) {
	dir, name := filepath.Split(t.path)
	return os.OpenFile(filepath.Join(dir, fmt.Sprintf(".%s.%x", name, rand.Uint64())),
		os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
}

// reason returns an error without the name of the temporary file, which means nothing to the user.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
