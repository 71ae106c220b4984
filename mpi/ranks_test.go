package mpi_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/endpointtest"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// bodies are the programs by name.
var bodies = map[string]mpitest.Body{}

// body registers a program, whose world lives on another endpoint where endpointtest.Variable says so. Inlined
// into the hundreds of variables it would take the compiler ten seconds: for each call it reads all others.
//
//go:noinline
func body(name string, run mpitest.Body) string { return worldBody(name, endpointtest.Body(run)) }

// worldBody registers a program for which only the world itself will do: it relies on what the world is
// called and has, counts connections, or chooses endpoints.
//
//go:noinline
func worldBody(name string, run mpitest.Body) string {
	bodies[name] = run
	return launchertest.Body(name, func() error { return mpi.Run(context.Background(), run) })
}

func TestMain(m *testing.M) { launchertest.Main(m) }

var (
	launch        = launchertest.Launch
	ranks         = launchertest.Succeed
	fabricsInTurn = launchertest.OnFabrics
)

// polling has ranks poll before they sleep, as where each has a core for itself.
const polling = "WEFT_CORES_PER_RANK=1"

// onFabrics runs a test of jobs over both fabrics at the same time, as ranks mostly wait for each other. It is
// the last thing that its caller does. In short half of the tests have the one fabric, half the other.
func onFabrics(t *testing.T, test func(t *testing.T, fabric string)) {
	one := []string{"WEFT_FABRIC=shm", "WEFT_FABRIC=tcp"}[len(t.Name())%2]
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		if fabric != one {
			testlength.NotInShort(t)
		}
		t.Parallel()
		test(t, fabric)
	})
}

func firstError(errs ...error) error { return cmp.Or(errs...) }

// together runs a body that must succeed on ranks that share this process, and its environment. The variables
// are as for launch. It is not for parallel tests.
func together(t *testing.T, n int, name string, env ...string) {
	t.Helper()
	values, fabric := map[string]string{"WEFT_CHECK": "off"}, "auto"
	if endpoints := os.Getenv("WEFT_ENDPOINTS"); endpoints != "" {
		values["WEFT_ENDPOINTS"] = endpoints
	}
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case name == "WEFT_FABRIC":
			fabric = value
		case strings.HasPrefix(name, "WEFT_"):
			values[name] = value
		}
		t.Setenv(name, "") // which has it restored
		defer os.Unsetenv(name)
		os.Setenv(name, value)
	}
	require.NotNil(t, bodies[name], name)
	mpitest.Run(t, n, bodies[name], mpitest.Fabric(fabric), mpitest.Config(mpi.Config{Settings: values}))
}

// anywhere runs a body that must succeed, and that does not depend on where its ranks are: in processes of
// their own, or with the race detector in this one, as it sees no races between processes.
func anywhere(t *testing.T, n int, name string, env ...string) {
	t.Helper()
	if raceDetector {
		together(t, n, name, env...)
	} else {
		ranks(t, n, name, env...)
	}
}

// sameMemory compares elements without padding or pointers. The race detector checks the memory at once, not
// element by element.
func sameMemory[T any](a, b []T) bool {
	memory := func(s []T) []byte {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
	}
	return bytes.Equal(memory(a), memory(b))
}

// want fails a rank in which two values differ.
func want[T comparable](what string, got, wanted T) error {
	if got != wanted {
		return fmt.Errorf("%s: got %v, want %v", what, got, wanted)
	}
	return nil
}

// wantError fails a rank in which a call has not failed as it should.
func wantError(what string, got, wanted error) error {
	if !errors.Is(got, wanted) {
		return fmt.Errorf("%s: got %v, want %v", what, got, wanted)
	}
	return nil
}

// after calls f at the end of a time, unless stop is called before. It has a goroutine rather than a timer, as
// a hang can be proven only where a program has no function that a timer calls.
func after(d time.Duration, f func()) (stop func()) {
	stopped := make(chan struct{})
	go func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			f()
		case <-stopped:
		}
	}()
	return sync.OnceFunc(func() { close(stopped) })
}
