package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// output is a file that a run ends with. It is replaced as a whole: whoever reads it finds what was there
// before, or all of the new.
type output struct {
	what string // the plot, the report
	path string
	mode fs.FileMode // of a file that is there already; 0 else
	real bool        // it is, or will be, a regular file, not a device or a pipe
}

// newOutput makes sure, before anything is measured, that the file can be written. An error is an
// *OptionError. It leaves nothing behind.
func newOutput(what, path string) (*output, error) {
	o := &output{what: what, path: path, real: true}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, o.refusal(err)
	case info.IsDir():
		return nil, o.refusal(fmt.Errorf("%s is a directory", path))
	case !info.Mode().IsRegular():
		o.real = false
		return o, nil
	default:
		o.mode = info.Mode().Perm()
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, o.refusal(err)
		}
		if err := f.Close(); err != nil {
			return nil, o.refusal(err)
		}
		if o.path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, o.refusal(err)
		}
	}
	f, err := o.temporary()
	if err != nil {
		return nil, o.refusal(fmt.Errorf("%s: %w", path, reason(err)))
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return nil, o.refusal(err)
	}
	return o, nil
}

func (o *output) refusal(err error) error {
	return optionErrorf("the %s cannot be written: %v", o.what, err)
}

// reason is an error without the name of the temporary file, which says nothing to the user.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// temporary is a new file beside the one that it is to become.
func (o *output) temporary() (*os.File, error) {
	dir, name := filepath.Split(o.path)
	return os.OpenFile(filepath.Join(dir, fmt.Sprintf(".%s.%x", name, rand.Uint64())),
		os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
}

// write fills the file, if there is to be one.
func (o *output) write(fill func(w io.Writer) error) error {
	if o == nil {
		return nil
	}
	var content bytes.Buffer
	err := fill(&content)
	if err == nil && o.real {
		err = o.replace(content.Bytes())
	} else if err == nil {
		err = os.WriteFile(o.path, content.Bytes(), 0)
	}
	if err != nil {
		return fmt.Errorf("the %s cannot be written: %w", o.what, err)
	}
	return nil
}

func (o *output) replace(content []byte) error {
	f, err := o.temporary()
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && o.mode != 0 {
		err = f.Chmod(o.mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), o.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
