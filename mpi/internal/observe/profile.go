package observe

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

// A profiler returns the bytes of the profile so far, or the new part of a CPU profile, and ends the profile
// if it is the last call.
type profiler func(last bool) ([]byte, error)

// startProfile begins the profile that a setting selects; nil for none.
func startProfile(kind setting.Value) (profiler, error) {
	var b bytes.Buffer
	lookup := func(bool) ([]byte, error) {
		b.Reset()
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
		return func(last bool) (data []byte, err error) {
			pprof.StopCPUProfile()
			data = bytes.Clone(b.Bytes())
			if b.Reset(); !last {
				err = pprof.StartCPUProfile(&b)
			}
			return data, err
		}, nil
	case "heap":
		return func(last bool) ([]byte, error) {
			runtime.GC() // the profile describes the latest collection
			return lookup(last)
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

// leaveProfile hands over the profile.
func (o *Observer) leaveProfile(last bool) {
	data, err := o.profile(last)
	if err == nil {
		err = o.reporter.leave(snapshot.Profile, data)
	}
	if err != nil {
		o.rank.Log.Warn("the profile of this rank is lost", "error", err)
	}
}
