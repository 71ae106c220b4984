package remote

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// A relay is the stream of an agent that another agent has started: it is carried by that agent's stream, in
// frames with the relay's number. This is the launcher's side.
type relay struct {
	via    *Agent
	number int
	in     *io.PipeWriter // what comes from the agent
	end    *process       // what the agent's own Agent takes for its starter
	over   func()         // closes end.ended
}

// A viaError is the loss of the agent through which another one is reached.
type viaError struct {
	reason   string
	isSilent bool // it is only not heard
}

func (e *viaError) Error() string { return e.reason }

// ConnectThrough makes this agent start the agent of another host by a starter's command; see Connect.
func (a *Agent) ConnectThrough(ctx context.Context, host, job string, command []string) (*Agent, error) {
	body, err := Marshal(command)
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	ended := make(chan struct{})
	l := &relay{via: a, in: w, over: sync.OnceFunc(func() { close(ended) })}
	l.end = &process{
		cmd: &exec.Cmd{Args: command}, stderr: new(tail), ended: ended, said: ended, stdin: l,
		stdout: r, leave: sync.OnceFunc(l.leave),
	}
	a.mu.Lock()
	l.number = a.nextRelay
	a.nextRelay++
	a.relays[l.number] = l
	isOver := a.relaysOver
	a.mu.Unlock()
	if isOver != nil {
		l.cut(isOver)
	}
	a.out.put(appendFrame(nil, kindRelay, rankOf(l.number), body))
	return connectStream(ctx, host, job, l.end, a)
}

// Write sends what is for the agent behind the relay.
func (l *relay) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		if !l.via.out.room() {
			return 0, syscall.EPIPE
		}
		n := min(len(rest), partLen)
		l.via.out.put(appendFrame(nil, kindRelayData, rankOf(l.number), rest[:n]))
		rest = rest[n:]
	}
	return len(data), nil
}

// Close tells the agent behind the relay the end of its stream.
func (l *relay) Close() error {
	l.via.out.put(appendFrame(nil, kindRelayData, rankOf(l.number)))
	return nil
}

// leave ends the starter. Later data of the relay is ignored.
func (l *relay) leave() {
	l.via.out.put(appendFrame(nil, kindRelayStop, rankOf(l.number)))
	l.via.mu.Lock()
	delete(l.via.relays, l.number)
	l.via.mu.Unlock()
}

// cut closes the stream because the stream of the relaying agent has ended.
func (l *relay) cut(err error) {
	l.in.CloseWithError(err)
	l.over()
}

// relayed handles a frame of a relay.
func (a *Agent) relayed(f frame) error {
	number, data, err := splitRank(f.kind, f.body)
	if err != nil {
		return err
	}
	a.mu.Lock()
	l := a.relays[number]
	known := number < a.nextRelay
	a.mu.Unlock()
	switch {
	case l == nil && known: // it is not used any more
	case l == nil:
		return fmt.Errorf("%w: relay %d, which does not exist", errProtocol, number)
	case f.kind == kindRelayEnd:
		l.end.stderr.Write(data)
		l.cut(io.EOF)
	default:
		l.in.Write(data)
	}
	return nil
}

// cutRelays ends the streams of all relays.
func (a *Agent) cutRelays(err error) {
	a.mu.Lock()
	a.relaysOver = err
	var list []*relay
	for _, l := range a.relays {
		list = append(list, l)
	}
	a.mu.Unlock()
	for _, l := range list {
		l.cut(err)
	}
}

// isMissed reports whether the agent is so unresponsive that silence of the agents behind it means nothing.
func (a *Agent) isMissed() bool {
	select {
	case <-a.ended:
		return true
	default:
		return a.missed.Load() > 2
	}
}

// A relayed is the relaying agent's side of a relay: the starter, which runs here.
type relayed struct {
	process *process
	in      *queue
}

// openRelay runs a starter for the launcher.
func (s *server) openRelay(f frame) error {
	number, body, err := splitRank(f.kind, f.body)
	if err != nil {
		return err
	}
	command, err := parseJSON[[]string](f.kind, body)
	if err != nil {
		return err
	}
	if len(command) == 0 || s.relays[number] != nil {
		return fmt.Errorf("%w: relay %d without a command, or twice", errProtocol, number)
	}
	end := func(text string) { s.out.put(appendFrame(nil, kindRelayEnd, rankOf(number), []byte(text))) }
	p, err := startProcess(command)
	if err != nil {
		end(err.Error())
		return nil
	}
	r := &relayed{process: p, in: newQueue()}
	s.relays[number] = r
	go func() {
		r.in.run(p.stdin)
		p.stdin.Close()
	}()
	go func() {
		part := make([]byte, 64<<10)
		for {
			n, err := p.stdout.Read(part)
			if n > 0 && s.out.room() {
				s.out.put(appendFrame(nil, kindRelayed, rankOf(number), part[:n]))
			}
			if err != nil {
				break
			}
		}
		p.waitForLastWords()
		end(p.stderr.last())
	}()
	return nil
}

// relay passes data on to a starter, unless it has ended.
func (s *server) relay(f frame) error {
	number, data, err := splitRank(f.kind, f.body)
	if err != nil {
		return err
	}
	r := s.relays[number]
	switch {
	case r == nil:
	case f.kind == kindRelayStop:
		delete(s.relays, number)
		r.in.close()
		s.stops.Go(r.process.stop)
	case len(data) == 0:
		r.in.close()
	default:
		r.in.put(data)
	}
	return nil
}

// closeRelays ends the agents behind the relays, for which it waits up to closeTimeout, and their starters.
func (s *server) closeRelays() {
	for _, r := range s.relays {
		r.in.close()
		s.stops.Go(func() {
			r.process.wait(closeTimeout)
			r.process.stop()
		})
	}
	s.stops.Wait()
}
