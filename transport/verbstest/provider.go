// Package verbstest is the conformance suite for providers of package transport.
//
// Each check is named for the rule that it tests and, where it tests part of one, for the requirement. A
// check returns an error, so that a test can also show that a broken provider does not pass.
package verbstest

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// Provider makes the devices that the suite tests.
type Provider interface {
	// Devices returns n new devices that can reach each other and no others. The suite closes them.
	Devices(n int) ([]transport.Device, error)
}

// Faults is implemented by a Provider that can inject faults. Checks that need a fault are skipped if the
// Provider does not implement it or returns errors.ErrUnsupported.
type Faults interface {
	// Cut cuts the connection between two devices silently, as a reset does. It returns nil once it has done
	// so.
	Cut(a, b transport.Device) error

	// Vanish removes a device silently, as when its process is killed: its connections are cut, its methods
	// fail. The suite only closes it then. It returns nil once it has done so.
	Vanish(d transport.Device) error
}

// Collider is implemented by a Provider that can make two connects collide reliably.
type Collider interface {
	// Collide makes the next connects of two listening devices to each other collide: neither is decided
	// before both have reached Acceptor.Prepare.
	Collide(a, b transport.Device)
}

// Check is one rule and its test.
type Check struct {
	Name string
	run  func(*trial)
}

// needing returns checks of optional abilities.
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

func atomics(a transport.DeviceAttr) (bool, string) { return a.Atomics, "Atomics" }

// Patience bounds how long Run lets a check wait. It only turns a hang into a failure; no check depends on
// how long anything takes.
const Patience = 2 * time.Minute

// Verify runs the check, and ends each of its waits after the timeout. It returns the failure, or an error
// that wraps errors.ErrUnsupported if the provider cannot inject the fault that the check needs.
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

// Run tests that a provider keeps the contracts of package transport, with a subtest for each check.
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

// Checks returns all checks, by subject.
func Checks() []Check {
	var all []Check
	for _, group := range [][]Check{
		deviceChecks, memoryChecks, needing(views, viewChecks), needing(atomics, atomicChecks),
		cqChecks, handlerChecks, requestChecks,
		transferChecks, pollQPChecks, orderChecks, errorChecks, closeChecks,
		faultChecks, tickChecks, connectChecks, streamChecks, randomChecks, limitChecks, flushChecks,
		teardownChecks,
	} {
		all = append(all, group...)
	}
	return all
}
