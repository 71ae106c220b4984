package engine

import (
	"time"

	"github.com/weft-mpi/weft/mpi/internal/match"
)

// Probe waits for a message that a receive with the same arguments would match, and does not take it. The
// canceller, which may be nil, ends it.
func (q *Probes) Probe(context uint32, src, tag int, canceller *Canceller) (Status, error) {
	e := q.e
	start := e.hook.begin(CallProbe, 0)
	defer e.hook.end(CallProbe, start, src, tag, 0)
	var st Status
	var ok bool
	var err error
	var since probeFailures
	e.waiting.waitUntilProbed(0, nil, func() bool {
		if ok || err != nil {
			return true // a further check: Choices has numbered the probe
		}
		st, ok, err = q.probe(context, src, tag)
		if err == nil && !ok {
			err = since.end(e, context, src, canceller)
		}
		return ok || err != nil
	}, &probed{context: context, source: src, tag: tag, canceller: canceller})
	return st, err
}

// probed describes the message for which a probe waits.
type probed struct {
	context     uint32
	source, tag int
	canceller   *Canceller
	began       time.Duration // when it first slept, since the engine was made
}

// probeFailures counts the failures that were known when a probe began.
type probeFailures struct {
	before int
	begun  bool
}

// end returns why a probe that has found nothing ends: its canceller has ended, or, as for a receive, a rank
// that might have sent the message has failed meanwhile. It returns nil if the probe goes on.
func (f *probeFailures) end(e *Engine, context uint32, src int, canceller *Canceller) error {
	if !f.begun {
		f.before, f.begun = len(e.failures.peers), true
	}
	if src == AnySource {
		if err := e.failures.since(f.before, context); err != nil {
			return err
		}
	}
	return canceller.Err()
}

// Iprobe reports whether there is such a message. It makes at most one pass.
func (q *Probes) Iprobe(context uint32, src, tag int) (Status, bool, error) {
	e := q.e
	start := e.hook.begin(CallProbe, 0)
	defer e.hook.end(CallProbe, start, src, tag, 0)
	e.mu.Lock()
	st, ok, err := q.probe(context, src, tag)
	if !ok && err == nil {
		e.progress.poll()
		st, ok, err = q.probe(context, src, tag)
	}
	e.mu.Unlock()
	if !ok {
		e.noteUnsuccessful()
	}
	return st, ok, err
}

func (q *Probes) probe(context uint32, src, tag int) (Status, bool, error) {
	var m *match.Message[*unexpectedMessage]
	if src == AnySource && q.e.Choices.decided != nil {
		m = q.e.Choices.probe(context, tag)
	} else {
		m = q.e.matching.Probe(context, int32(src), int32(tag))
	}
	if m != nil {
		return Status{Source: int(m.Source), Tag: int(m.Tag), Bytes: m.Value.bytes, Elem: 1}, true, nil
	}
	if q.e.stopped != nil {
		return Status{}, false, q.e.stopped
	}
	return Status{}, false, q.e.failures.noLiveSource(context, src)
}
