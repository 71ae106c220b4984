package observe

import (
	"runtime/metrics"
	"time"

	"github.com/weft-mpi/weft/internal/snapshot"
)

// sample describes the state of the rank, with its counters. From Finalize on, it repeats the counters of the
// latest sample.
func (r *Reporter) sample() *snapshot.Sample {
	s := r.latest
	s.State, s.Up = *r.Snapshot(), time.Since(r.began)
	state := &s.State
	if n := len(state.Waits); n > snapshot.MaxSampleWaits {
		state.Waits = state.Waits[:snapshot.MaxSampleWaits]
		state.MoreWaits += n - snapshot.MaxSampleWaits
	}
	state.Unexpected, state.More, state.Locks, state.Channels = nil, 0, nil, nil
	for i := range state.Comms {
		state.Comms[i].Ranks = nil
	}
	s.Memory = memoryInUse()
	if state.Phase == snapshot.Running {
		r.count(&s)
	}
	r.latest = s
	return &s
}

// count copies the engine's counters.
func (r *Reporter) count(s *snapshot.Sample) {
	st := r.observer.Load().rank.Hub.Stats()
	s.Asleep, s.Registered = st.Asleep, uint64(st.Registered+st.Collective)
	s.Sent, s.SentBytes, s.SentBy, s.Lanes, s.LanesLost, s.Phases = 0, 0, nil, 0, 0, nil
	if last := st.Endpoints[len(st.Endpoints)-1].Number; last > 0 {
		s.SentBy = make([]uint64, last+1)
	}
	for i := range st.Endpoints {
		e := &st.Endpoints[i]
		s.Sent += e.EagerSent + e.Announced
		if s.SentBy != nil {
			s.SentBy[e.Number] = e.EagerSent + e.Announced
		}
	}
	for i := range st.Channels {
		c := &st.Channels[i]
		s.SentBytes += c.EagerBytes + c.RendezvousBytes
		s.Lanes, s.LanesLost = s.Lanes+c.Lanes.Lanes, s.LanesLost+c.Lanes.Down
		for len(s.Phases) <= c.Phase {
			s.Phases = append(s.Phases, 0)
		}
		s.Phases[c.Phase]++
	}
}

// memoryInUse returns the number of bytes that the Go runtime has from the system.
func memoryInUse() uint64 {
	m := []metrics.Sample{{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(m)
	return m[0].Value.Uint64() - m[1].Value.Uint64()
}
