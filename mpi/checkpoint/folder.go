package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// unfinished is the beginning of the names of files that are being written.
const unfinished = ".weft-checkpoint-"

// names are those of a checkpoint's files; what is called otherwise is not touched.
var names = regexp.MustCompile(`^step-\d+-[0-9a-f]{16}-\d+\.of\.\d+\.(state|copy)$`)

// prefix begins the names of the files of a set.
func (id setID) prefix() string { return fmt.Sprintf("step-%012d-%016x-", id.Step, id.Run) }

// name is that of the file of a rank's state, or of its copy.
func (h *header) name(isCopy bool) string {
	end := "state"
	if isCopy {
		end = "copy"
	}
	return fmt.Sprintf("%s%d.of.%d.%s", h.Set.prefix(), h.Rank, h.Set.Size, end)
}

// writeFile writes a file that is there whole or not at all, whatever happens meanwhile. Its name is safe
// when the folder is synced.
func writeFile(dir, name string, parts ...[]byte) (err error) {
	f, err := os.CreateTemp(dir, unfinished)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	for _, b := range parts {
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// tryFolder finds out whether files can be written, before anything is computed.
func tryFolder(dir string) error {
	f, err := os.CreateTemp(dir, unfinished)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// removeUnfinished removes what killed ranks have left. What cannot be removed does no harm.
func removeUnfinished(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, unfinished+"*"))
	for _, file := range left {
		os.Remove(file)
	}
}

// sweep removes all files of checkpoints but those of these sets.
func sweep(dir string, keep ...setID) {
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		kept := !names.MatchString(e.Name())
		for _, id := range keep {
			kept = kept || strings.HasPrefix(e.Name(), id.prefix())
		}
		if !kept {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// discard removes the files of a set.
func discard(dir string, id setID) {
	files, _ := filepath.Glob(filepath.Join(dir, id.prefix()+"*"))
	for _, file := range files {
		os.Remove(file)
	}
}

// A part is a file of a checkpoint, as its header describes it.
type part struct {
	Header header
	Host   int
	Name   string
}

// list finds the parts in a folder of a host whose headers are right, and which are as long as these say.
func list(dir string, host int) ([]part, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var parts []part
	for _, e := range entries {
		if !names.MatchString(e.Name()) {
			continue
		}
		if h, err := readHeader(filepath.Join(dir, e.Name())); err == nil {
			parts = append(parts, part{h, host, e.Name()})
		}
	}
	return parts, nil
}

func readHeader(file string) (header, error) {
	f, err := os.Open(file)
	if err != nil {
		return header{}, err
	}
	defer f.Close()
	b := make([]byte, maxHeader)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return header{}, err
	}
	h, _, err := parseHeader(b[:n])
	if err != nil {
		return header{}, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != h.bytes() {
		err = fmt.Errorf("%d bytes instead of %d", info.Size(), h.bytes())
	}
	return h, err
}
