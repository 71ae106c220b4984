package engine

// unlessGivenUp returns what do returns; or, when s ends first, why that has ended. Then do goes on in a
// goroutine of its own, and what it has brought about is undone. It is for steps of which nobody can tell,
// while they are under way, whether they have taken effect at the target.
func (w *Window) unlessGivenUp(s *Canceller, do func() error, undo func()) error {
	if err := s.Err(); err != nil {
		return err
	}
	call := &stepCall{}
	w.stepCalls.Add(1)
	w.e.Go(func() {
		err := do()
		w.e.mu.Lock()
		call.err, call.over = err, true
		late := call.givenUp
		w.e.waiting.wakeConditionsLocked()
		w.e.mu.Unlock()
		if late && err == nil {
			undo()
		}
		w.stepCalls.Add(-1)
	})
	err := w.e.waiting.waitUnless(s, func() bool { return call.over })
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if call.over {
		return call.err
	}
	call.givenUp = true
	return err
}

// stepCall is a call of unlessGivenUp. The engine's lock guards it.
type stepCall struct {
	over, givenUp bool
	err           error
}

// AwaitGivenUp returns when all that was given up is undone: locks are passed on.
func (w *Window) AwaitGivenUp(s *Canceller) error {
	for try := 0; w.stepCalls.Load() > 0; try++ {
		if err := s.Err(); err != nil {
			return err
		}
		if err := w.anyFailed(); err != nil {
			return err
		}
		w.pause(try)
	}
	return nil
}
