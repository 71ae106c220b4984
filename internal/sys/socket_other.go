//go:build !linux

package sys

import (
	"errors"
	"runtime"
	"time"
)

var errLinux = errors.New("weft's TCP fabric needs Linux; it does not run on " + runtime.GOOS)

// Iovec is a piece of memory for Readv and Writev.
type Iovec struct {
	Base *byte
	Len  uint64
}

func Vec([]byte) Iovec                 { return Iovec{} }
func Read(int, []byte) (int, error)    { return 0, errLinux }
func Write(int, []byte) (int, error)   { return 0, errLinux }
func Readv(int, []Iovec) (int, error)  { return 0, errLinux }
func Writev(int, []Iovec) (int, error) { return 0, errLinux }
func CloseFD(int) error                { return errLinux }
func PrepareSocket(int) error          { return errLinux }
func Map(int) ([]byte, error)          { return nil, errLinux }
func Unmap([]byte) error               { return errLinux }
func Mapped() int64                    { return 0 }
func Yield()                           { runtime.Gosched() }

// Poller needs Linux.
type Poller struct{}

func NewPoller() (*Poller, error)                         { return nil, errLinux }
func (*Poller) Add(int, int32, bool) error                { return errLinux }
func (*Poller) Change(int, int32, bool) error             { return errLinux }
func (*Poller) Remove(int) error                          { return errLinux }
func (*Poller) Nest(*Poller, int32) error                 { return errLinux }
func (*Poller) Unnest(*Poller) error                      { return errLinux }
func (*Poller) Descriptor() int                           { return -1 }
func (*Poller) Drain()                                    {}
func (*Poller) Await([]int32, time.Duration) (int, error) { return 0, errLinux }
func (*Poller) Ready([]int32) int                         { return 0 }
func (*Poller) Wait(time.Duration) error                  { return errLinux }
func (*Poller) Park() error                               { return errLinux }
func (*Poller) Wake()                                     {}
func (*Poller) Close()                                    {}

func Dup(int) (int, error) { return -1, errLinux }

func Acknowledged(int, time.Duration) bool { return true }

func Unacknowledged(int) int { return 0 }
func ShutdownWrite(int)      {}

func SkipCongestionControl(int) {}
func LimitUnsent(int, int)      {}
