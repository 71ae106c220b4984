// Package verbstest holds the one conformance suite that every provider of package transport passes.
//
// Each check is named for the rule that it proves and, where it proves part of one, for the requirement. A
// check is a function that returns an error, so that a test can also show that a broken provider does not
// pass.
package verbstest

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// Provider makes what the suite runs on.
type Provider interface {
	// Devices makes n fresh devices that can reach each other and nobody else's. The suite closes them.
	Devices(n int) ([]transport.Device, error)
}

// Faults are the faults that a provider can inject. A Provider that has them implements this too; where it
// has not, or answers errors.ErrUnsupported, the checks that need them are skipped.
type Faults interface {
	// Cut cuts the connection between two devices without a word, as a reset does. It returns nil once it has
	// struck.
	Cut(a, b transport.Device) error

	// Vanish takes a device away without a word, as when its process is killed: its connections are cut, its
	// methods fail. The suite only closes it then. It returns nil once it has struck.
	Vanish(d transport.Device) error
}

// Collider is implemented by a Provider that can have two connects collide for sure, not only by chance.
type Collider interface {
	// Collide has the next connects of two listening devices to each other collide: neither is decided before
	// both have got as far as Acceptor.Prepare.
	Collide(a, b transport.Device)
}

// Check is one rule and how it is proved.
type Check struct {
	Name string
	run  func(*trial)
}

// needing are checks of optional abilities.
func needing(has func(transport.DeviceAttr) (bool, string), checks []Check) []Check {
	checks = append([]Check(nil), checks...)
	for i, c := range checks {
		checks[i].run = func(t *trial) {
			t.has = has
			c.run(t)
		}
	}
	return checks
}

func windows(a transport.DeviceAttr) (bool, string) { return a.Windows, "memory windows" }
func atomics(a transport.DeviceAttr) (bool, string) { return a.Atomics, "Atomics" }

// Patience is how long Run lets a check wait. It only turns a hang into a failure; no check depends on how
// long anything takes.
const Patience = 2 * time.Minute

// Verify runs the check, which waits for nothing longer than patience. It returns what was found wrong, or an
// error that wraps errors.ErrUnsupported if the provider cannot inject the fault that the check needs.
func (c Check) Verify(p Provider, timeout time.Duration) (err error) {
	t := &trial{provider: p, timeout: timeout}
	defer t.closeAll()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.err
		default:
			buf := make([]byte, 16<<10)
			err = fmt.Errorf("panic: %v\n%s", r, buf[:runtime.Stack(buf, false)])
		}
	}()
	c.run(t)
	return nil
}

// Run proves that a provider keeps the contracts of package transport: one subtest for each check.
func Run(t *testing.T, p Provider) {
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			switch err := c.Verify(p, Patience); {
			case errors.Is(err, errors.ErrUnsupported):
				t.Skip(err)
			case err != nil:
				t.Error(err)
			}
		})
	}
}

// Checks are all the checks, by subject.
func Checks() []Check {
	var all []Check
	for _, group := range [][]Check{
		deviceChecks, memoryChecks, needing(views, viewChecks), needing(atomics, atomicChecks),
		needing(windows, windowChecks),
		cqChecks, handlerChecks, requestChecks,
		transferChecks, pollQPChecks, orderChecks, errorChecks, closeChecks,
		faultChecks, tickChecks, connectChecks, streamChecks, randomChecks, limitChecks, flushChecks,
		teardownChecks,
	} {
		all = append(all, group...)
	}
	return all
}
