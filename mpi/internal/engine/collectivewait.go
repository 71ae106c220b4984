package engine

// Run executes a collective: it is Start and Wait, with a fast path for short messages.
func (cs *Collectives) Run(c *Collective) error {
	e := cs.e
	start := e.hook.beginCollective(c)
	err := cs.run(c)
	e.hook.endLong(CallCollective, start)
	return err
}

func (cs *Collectives) run(c *Collective) error {
	e := cs.e
	cs.pinBuffers(c)
	c.prepare()
	if c.Canceller == nil && !e.failures.noted.Load() {
		done, err := cs.shortRounds(c)
		if done || err != nil {
			if c.pooled || c.pinned != [2]*Memory{} {
				e.mu.Lock()
				cs.unpinBuffersLocked(c)
				cs.recycleLocked(c)
				e.mu.Unlock()
			}
			return err
		}
	}
	e.mu.Lock()
	c.hasWaiter = true
	r, err := cs.beginLocked(c)
	if err != nil {
		e.mu.Unlock()
		return err
	}
	h := r.handle()
	e.mu.Unlock()
	_, err = cs.wait(r, h)
	return err
}

// wait waits for a collective, and executes those of its local steps that must not run under the lock.
func (cs *Collectives) wait(r *request, h Request) (st Status, err error) {
	at := func(int) Request { return h }
	for {
		var work *Collective
		var done bool
		cs.e.waiting.waitUntil(1, at, func() bool {
			if done || work != nil {
				return true
			}
			if cs.e.Requests.find(h) != r {
				done, err = true, errUsed
				return true
			}
			if r.completed() {
				done = true
				st, err = cs.e.Requests.collect(h, r)
				return true
			}
			c := r.collective
			c.hasWaiter = true
			if c.state == collectiveStepsDue {
				c.state, work = collectiveWorking, c
			}
			return work != nil
		})
		if done {
			return st, err
		}
		cs.runSteps(work)
	}
}

// waitsForWork reports whether the request is a collective whose local steps its waiter is to execute.
func (r *request) waitsForWork() bool {
	return r.kind == kindCollective && r.collective != nil && r.collective.state == collectiveStepsDue
}
