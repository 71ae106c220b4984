package mpi

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/pprof"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/snapshot"
)

// How often events are sampled: a blocking event for each blockRate nanoseconds of blocking, and one of
// mutexRate contentions.
const (
	blockRate = 10_000
	mutexRate = 10
)

// startProfile begins the profile that a setting asks for, and returns what ends it and has its bytes; nil
// where none is asked for.
func startProfile(kind setting.Value) (func() ([]byte, error), error) {
	var b bytes.Buffer
	lookup := func() ([]byte, error) {
		err := pprof.Lookup(kind.String()).WriteTo(&b, 0)
		return b.Bytes(), err
	}
	switch kind.String() {
	case "":
		return nil, nil
	case "cpu":
		if err := pprof.StartCPUProfile(&b); err != nil {
			return nil, fmt.Errorf("%s=cpu: %w", kind.Name, err)
		}
		return func() ([]byte, error) {
			pprof.StopCPUProfile()
			return b.Bytes(), nil
		}, nil
	case "heap":
		return func() ([]byte, error) {
			runtime.GC() // the profile is that of the latest collection
			return lookup()
		}, nil
	case "block":
		runtime.SetBlockProfileRate(blockRate)
		return lookup, nil
	case "mutex":
		runtime.SetMutexProfileFraction(mutexRate)
		return lookup, nil
	}
	return nil, fmt.Errorf("%s=%q: %s", kind.Name, kind, kind.Meaning)
}

// leaveProfile ends the profile, and hands it over.
func (j *job) leaveProfile(end func() ([]byte, error)) {
	data, err := end()
	if err == nil {
		err = j.reporter.leave(snapshot.Profile, data)
	}
	if err != nil {
		j.log.Warn("the profile of this rank is lost", "error", err)
	}
}
