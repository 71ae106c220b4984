package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// partLen is how much of a staged program goes in one frame.
const partLen = 256 << 10

// Stage copies a program of the job to the far side, which has said that it does not have it. What it answers
// is not this package's. Programs are staged one after the other.
func (a *Agent) Stage(ctx context.Context, program int, content io.Reader, reply any) error {
	part := make([]byte, partLen)
	for {
		n, err := content.Read(part)
		if n > 0 {
			a.out.put(appendFrame(nil, kindStage, rankOf(program), part[:n]))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := a.drain(ctx); err != nil {
			return err
		}
	}
	a.session.ask(kindStaged)
	a.out.put(appendFrame(nil, kindStage, rankOf(program)))
	select {
	case body := <-a.staged:
		return Unmarshal(body, reply)
	case <-a.ended:
		return a.gone()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drain waits until little is left to be written.
func (a *Agent) drain(ctx context.Context) error {
	for a.out.size() > maxUnsent {
		select {
		case <-a.out.written:
		case <-a.ended:
			return a.gone()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// gone is the error of a request that the agent does not answer any more.
func (a *Agent) gone() error {
	return fmt.Errorf("host %s: %w", a.host, a.process.explain(a.why))
}

// answered hands an answer to the goroutine that waits for it.
func (a *Agent) answered(f frame, to chan<- []byte) error {
	if err := a.session.answer(f.kind); err != nil {
		return err
	}
	select {
	case to <- f.body:
	case <-a.closing:
	}
	return nil
}

// stage takes a part of a program on the far side.
func (s *server) stage(f frame) error {
	program, part, err := splitRank(f.kind, f.body)
	if err != nil {
		return err
	}
	reply, err := s.config.Stage(program, part)
	if err == nil && reply != nil {
		s.out.put(appendFrame(nil, kindStaged, reply))
	}
	return err
}
