//go:build !linux

package sys

import (
	"errors"
	"net"
	"runtime"
)

var errShared = errors.New("shared memory between ranks needs Linux, not " + runtime.GOOS)

func SharedMemory(int64) (int, error)                                { return -1, errShared }
func CheckShared(int, int64) error                                   { return errShared }
func MapShared(int, int) ([]byte, error)                             { return nil, errShared }
func UnmapShared([]byte) error                                       { return errShared }
func Reserve(int, int64, int64) error                                { return errShared }
func Fill(int, int64, int64) error                                   { return errShared }
func Punch(int, int64, int64) error                                  { return errShared }
func JoinBarrier() bool                                              { return false }
func Barrier() error                                                 { return errShared }
func Joined() bool                                                   { return false }
func LetBeRead()                                                     {}
func PeerOf(*net.UnixConn) (pid, uid int, err error)                 { return 0, 0, errShared }
func SendDescriptors(*net.UnixConn, []byte, ...int) error            { return errShared }
func RecvDescriptors(*net.UnixConn, []byte, int) (int, []int, error) { return 0, nil, errShared }
func Signal(int)                                                     {}
func (*Poller) Event() int                                           { return -1 }
func CheckEvent(int) error                                           { return errShared }
func TotalMemory() (int64, error)                                    { return 0, errShared }

func UnlimitedAddresses() error { return errShared }

// Foreign is the memory of another process.
type Foreign struct {
	Pid    int
	Proof  uint64
	Secret [32]byte
}

func (*Foreign) Read([]byte, uint64) error { return errShared }
