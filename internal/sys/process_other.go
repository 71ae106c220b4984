//go:build !linux

package sys

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

var errNeedsLinux = errors.New("starting ranks needs Linux, not " + runtime.GOOS)

func (c *Child) tie(*syscall.SysProcAttr) error {
	if c.DiesWithThread {
		return errNeedsLinux
	}
	return nil
}

func (c *Child) mark() (undo func()) { return func() {} }

// PreferAsVictim is left to the system here.
func PreferAsVictim(int) {}

// Marked cannot be known on this system.
func Marked(int, uint64) bool { return false }

// Watcher cannot be had on this system.
type Watcher struct{}

type (
	Watched struct {
		ID   int
		Kind WatchedKind
	}
	WatchedKind uint8
	JobControl  uint8
)

const (
	WatchedProcess WatchedKind = iota
	WatchedReader
)

const (
	Unchanged JobControl = iota
	Stopped
	Continued
)

// NewWatcher fails: this system does not tell the order in which processes end.
func NewWatcher() (*Watcher, error) { return nil, errNeedsLinux }

func (w *Watcher) WatchProcess(int, int) error            { return errNeedsLinux }
func (w *Watcher) WatchReader(int, int) error             { return errNeedsLinux }
func (w *Watcher) Forget(int)                             {}
func (w *Watcher) Next(seen []Watched) ([]Watched, error) { return seen, errNeedsLinux }
func (w *Watcher) Close() error                           { return nil }
func ChildChange(int) (JobControl, syscall.Signal)        { return Unchanged, 0 }
func AwaitEnd(int) error                                  { return errNeedsLinux }
func AdoptOrphans() error                                 { return errNeedsLinux }
func Children() []int                                     { return nil }
func ReapEnded(int) bool                                  { return false }
func PipeCapacity(int) int                                { return 64 << 10 }
func WaitWritable(fd, other int) (first bool, err error)  { return false, errNeedsLinux }

func MoveAbove(fd, _ int) int { return fd }

// PipeAtomic is the number of bytes that are written to a pipe atomically.
const PipeAtomic = 512

// SignalName is the number of a signal, in words.
func SignalName(sig syscall.Signal) string { return fmt.Sprintf("signal %d", int(sig)) }

func StreamPair() (ours, theirs int, err error)          { return -1, -1, errNeedsLinux }
func Pipe() (reader, writer int, err error)              { return -1, -1, errNeedsLinux }
func WaitReadable(fd, other int) (first bool, err error) { return false, errNeedsLinux }
func Unread(int) int                                     { return 0 }
func IsTerminal(int) bool                                { return false }
func TerminalWidth(int) int                              { return 0 }
func InForeground(int) bool                              { return true }
