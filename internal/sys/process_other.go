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

// Reaper cannot be had on this system.
type Reaper struct{}

// NewReaper fails: this system does not tell the order in which processes end.
func NewReaper() (*Reaper, error) { return nil, errNeedsLinux }

func (r *Reaper) Watch(int) error                { return errNeedsLinux }
func (r *Reaper) Next(pids []int) ([]int, error) { return pids, errNeedsLinux }
func (r *Reaper) Close() error                   { return nil }

// SignalName is the number of a signal, in words.
func SignalName(sig syscall.Signal) string { return fmt.Sprintf("signal %d", int(sig)) }

func StreamPair() (ours, theirs int, err error)          { return -1, -1, errNeedsLinux }
func Pipe() (reader, writer int, err error)              { return -1, -1, errNeedsLinux }
func WaitReadable(fd, other int) (first bool, err error) { return false, errNeedsLinux }
func IsTerminal(int) bool                                { return false }
func InForeground(int) bool                              { return true }
