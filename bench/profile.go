package bench

import (
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
)

// profile writes a CPU profile of a rank to path.RANK, for "go tool pprof" and for builds with a profile,
// until stop is called. Without a path it does nothing.
func profile(path string, rank int) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(fmt.Sprintf("%s.%d", path, rank))
	if err != nil {
		return nil, fmt.Errorf("rank %d: its profile: %w", rank, err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("rank %d: its profile: %w", rank, err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
