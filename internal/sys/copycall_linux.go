package sys

import (
	"crypto/rand"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// TimedRounds is how many calls of a kind are timed for a good measurement: the first ones of a process
	// take almost twice as long.
	TimedRounds = 24
	// TimedBytes is the length of the longer reads whose time is taken.
	TimedBytes = 16 << 10
)

// TimeCall measures how long a call takes that copies a few bytes of the process's memory, and how much
// longer for each KiB one takes that copies the TimedBytes that begin at the proof; 0 if it cannot. The least
// of some calls counts: whatever else goes on makes a call longer, none shorter.
func (f *Foreign) TimeCall(rounds int) (least, each time.Duration, err error) {
	for i := range rounds {
		start := time.Now()
		if err := f.Prove(); err != nil {
			return 0, 0, err
		}
		if t := time.Since(start); i == 0 || t < least {
			least = t
		}
	}
	long, b := time.Duration(0), make([]byte, TimedBytes)
	for i := range rounds {
		start := time.Now()
		if f.copyPiece(unix.SYS_PROCESS_VM_READV, b, f.Proof) != nil {
			return least, 0, nil
		}
		if t := time.Since(start); i == 0 || t < long {
			long = t
		}
	}
	return least, max(1, (long-least)/(TimedBytes>>10)), nil
}

// TimeOwnCall is TimeCall of this process's own memory.
func TimeOwnCall() (call, each time.Duration, err error) {
	b := make([]byte, TimedBytes)
	rand.Read(b)
	secret := (*[32]byte)(b)
	f := Foreign{Pid: os.Getpid(), Proof: uint64(uintptr(unsafe.Pointer(secret))), Secret: *secret}
	return f.TimeCall(TimedRounds)
}
