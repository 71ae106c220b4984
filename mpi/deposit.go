package mpi

import (
	"errors"
	"runtime"
	"time"

	"github.com/weft-mpi/weft/internal/snapshot"
)

const (
	// depositPart is how much of a deposit goes into a frame.
	depositPart = 256 << 10
	// takenWithin is how long a rank that ends waits for its launcher to take what it leaves there.
	takenWithin = 5 * time.Second
)

// deposit sends the parts of a deposit.
func (r *stateReporter) deposit(what snapshot.Deposit, data []byte) error {
	data = data[:min(len(data), snapshot.MaxDeposit)]
	for {
		part := data[:min(len(data), depositPart)]
		data = data[len(part):]
		last := byte(0)
		if len(data) == 0 {
			last = 1
		}
		body := append([]byte{byte(what), last}, part...)
		if err := r.send(snapshot.Deposited, body); err != nil || last == 1 {
			return err
		}
	}
}

var errNoLauncher = errors.New("there is no launcher to send it to: weft run starts one")

// leave sends a deposit, and waits until the launcher has it: what a rank has not handed over when it ends is
// lost.
func (r *stateReporter) leave(what snapshot.Deposit, data []byte) error {
	if r == nil || !r.takes {
		return errNoLauncher
	}
	if err := r.deposit(what, data); err != nil {
		return err
	}
	select {
	case <-r.taken:
		return nil
	case <-time.After(takenWithin):
		return errors.New("the launcher has not taken it")
	}
}

// stacks are those of all goroutines, as far as they fit.
func stacks() []byte {
	trace := make([]byte, maxTrace)
	return trace[:runtime.Stack(trace, true)]
}
