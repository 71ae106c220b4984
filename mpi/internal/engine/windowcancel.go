package engine

// cancellable returns the result of do, or, if s ends first, why s has ended. In that case do goes on in its
// own goroutine, and undo is called if it succeeds. It is for steps at a target that cannot be cancelled.
func (w *Window) cancellable(s *Canceller, do func() error, undo func()) error {
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

// stepCall is a call of cancellable. The engine's lock guards it.
type stepCall struct {
	over, givenUp bool
	err           error
}

// AwaitGivenUp waits for all calls of cancellable, including the undo functions of those that were cancelled.
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
