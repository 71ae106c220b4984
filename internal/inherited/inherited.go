// Package inherited hands open files from a launcher to the ranks that it starts. A rank is told the number
// of each, and its identity: a program between launcher and rank, such as a script, may have put a file of
// its own at the number, which nobody but that program may read or write.
package inherited

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Variable is the environment variable that tells a rank what it inherits: NAME=NUMBER:DEVICE:INODE for each
// file, separated by commas.
const Variable = "WEFT_INHERITED"

// The names of the files.
const (
	PMI       = "pmi"       // the connection for PMI, of which PMI_FD has the number, too
	Secret    = "secret"    // a pipe with the job's secret
	Snapshots = "snapshots" // the connection for snapshots of the rank's state
	Recorder  = "recorder"  // memory for the rank's latest events
)

// ErrReplaced says that another file, or none, is where a rank was to find one of the launcher's.
var ErrReplaced = errors.New("a program between launcher and rank has closed it, or put another file there")

// file is what the variable says of one file. No two open files of a system have the same device and inode,
// unless they are the same file.
type file struct {
	number        int
	device, inode uint64
}

// Append adds a file to the text of Variable: the launcher's descriptor, and the number that it has in the
// rank.
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

// Take returns the descriptor of a file, which from then on is kept from the programs that this process
// starts, or -1 if the launcher has handed over no such file.
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

// find reads the variable. It concerns this process only if PMI_FD is of the same launcher: another one may
// have been started in the job of the first.
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
