//go:build !linux

package sys

import (
	"errors"
	"net"
	"runtime"
	"time"
)

var errShared = errors.New("shared memory between ranks needs Linux, not " + runtime.GOOS)

func SharedMemory(int64) (int, error)                                { return -1, errShared }
func CheckShared(int, int64) error                                   { return errShared }
func SharedID(int) (id, fs uint64, err error)                        { return 0, 0, errShared }
func OpenShared(int, int, uint64, uint64) (int, int64, error)        { return -1, 0, errShared }
func CloseShared(int)                                                {}
func MapShared(int, int) ([]byte, error)                             { return nil, errShared }
func UnmapShared([]byte) error                                       { return errShared }
func MapAgain([]byte) ([]byte, error)                                { return nil, errShared }
func Reserve(int, int64, int64) error                                { return errShared }
func Fill(int, int64, int64) error                                   { return errShared }
func Punch(int, int64, int64) error                                  { return errShared }
func JoinBarrier() bool                                              { return false }
func Barrier() error                                                 { return errShared }
func Joined() bool                                                   { return false }
func LetBeRead()                                                     {}
func CanCollapse() bool                                              { return false }
func Collapse(uintptr, uintptr) error                                { return errShared }
func PeerOf(*net.UnixConn) (pid, uid int, err error)                 { return 0, 0, errShared }
func SendDescriptors(*net.UnixConn, []byte, ...int) error            { return errShared }
func RecvDescriptors(*net.UnixConn, []byte, int) (int, []int, error) { return 0, nil, errShared }
func TotalMemory() (int64, error)                                    { return 0, errShared }

func UnlimitedAddresses() error { return errShared }

// Foreign is the memory of another process.
type Foreign struct {
	Pid    int
	Proof  uint64
	Secret [32]byte
}

func (*Foreign) Prove() error               { return errShared }
func (*Foreign) Read([]byte, uint64) error  { return errShared }
func (*Foreign) Write([]byte, uint64) error { return errShared }
func (*Foreign) Call() uint64               { return 0 }

func (*Foreign) TimeCall(int) (call, each time.Duration, err error) { return 0, 0, errShared }
func TimeOwnCall() (call, each time.Duration, err error)            { return 0, 0, errShared }

const TimedBytes, TimedRounds = 32, 1

func (*Foreign) Blocked() bool { return false }

// TokenSize is the length of the token of a WakeAddress in bytes.
const TokenSize = 16

// WakeAddress is the address at which another process ends the waits of a Poller.
type WakeAddress struct{}

func NewWakeAddress(string, [TokenSize]byte) (*WakeAddress, error) { return nil, errShared }

func (*Poller) Open(*WakeAddress) error { return errShared }
func (*Poller) Signal(*WakeAddress)     {}

// Prober finds out whether wake sockets are still there.
type Prober struct{}

func NewProber() (*Prober, error)      { return nil, errShared }
func (*Prober) Gone(*WakeAddress) bool { return false }
func (*Prober) Close()                 {}

// WakeSocket is where another process wakes a goroutine.
type WakeSocket struct{}

func NewWakeSocket(*WakeAddress) (*WakeSocket, error) { return nil, errShared }
func (*WakeSocket) Wait(time.Duration) error          { return errShared }
func (*WakeSocket) Signal(*WakeAddress)               {}
func (*WakeSocket) Close() error                      { return nil }
