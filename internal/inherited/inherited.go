// Package inherited hands open files from a launcher to the ranks that it starts. A rank gets the number and
// the identity of each, because a program between launcher and rank, such as a script, may have put another
// file at the number.
package inherited

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Variable is the environment variable with a rank's inherited files: NAME=NUMBER:DEVICE:INODE for each file,
// separated by commas.
const Variable = "WEFT_INHERITED"

// The names of the files.
const (
	PMI           = "pmi"           // the connection for PMI, also named by PMI_FD
	Secret        = "secret"        // a pipe with the job's secret
	Snapshots     = "snapshots"     // the connection for snapshots of the rank's state
	Recorder      = "recorder"      // memory for the rank's latest events
	FirstMessages = "firstmessages" // memory of the host's ranks: see package firstmessage
)

// ErrReplaced means that another file, or none, is at the number of one of the launcher's files.
var ErrReplaced = errors.New("a program between launcher and rank has closed it, or put another file there")

// file is an entry of the variable. No two open files of a system have the same device and inode, unless they
// are the same file.
type file struct {
	number        int
	device, inode uint64
}

// Append adds a file to the text of Variable: the launcher's descriptor, and its number in the rank.
func Append(list, name string, descriptor, number int) (string, error) {
	f, err := identify(descriptor)
	if err != nil {
		return list, err
	}
	if list != "" {
		list += ","
	}
	return fmt.Sprintf("%s%s=%d:%d:%d", list, name, number, f.device, f.inode), nil
}

// Take returns the descriptor of a file, or -1 if the launcher has not handed it over. From then on, the
// programs that this process starts do not inherit it.
func Take(name string) (int, error) {
	f, ok := find(name)
	if !ok {
		return -1, nil
	}
	now, err := identify(f.number)
	if err != nil || now.device != f.device || now.inode != f.inode {
		return -1, fmt.Errorf("descriptor %d (%s): %w", f.number, name, ErrReplaced)
	}
	syscall.CloseOnExec(f.number)
	return f.number, nil
}

// find looks up a file in the variable. The variable concerns this process only if PMI_FD is from the same
// launcher, since another launcher may have been started within the job of the first.
func find(name string) (file, bool) {
	list := parse(os.Getenv(Variable))
	f, ok := list[name]
	return f, ok && os.Getenv("PMI_FD") == strconv.Itoa(list[PMI].number)
}

func parse(text string) map[string]file {
	list := make(map[string]file)
	for item := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(item, "=")
		fields := strings.Split(value, ":")
		if len(fields) != 3 {
			continue
		}
		number, err := strconv.ParseUint(fields[0], 10, 31)
		device, err2 := strconv.ParseUint(fields[1], 10, 64)
		inode, err3 := strconv.ParseUint(fields[2], 10, 64)
		if errors.Join(err, err2, err3) == nil && number > 2 {
			list[name] = file{int(number), device, inode}
		}
	}
	return list
}

func identify(descriptor int) (file, error) {
	var st syscall.Stat_t
	err := syscall.Fstat(descriptor, &st)
	return file{descriptor, uint64(st.Dev), uint64(st.Ino)}, err
}
