package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// maxUnsent is the number of unsent bytes of events at which no more are taken from the agent.
const maxUnsent = 1 << 20

// ServerConfig is what the far side serves.
type ServerConfig struct {
	Hello   Hello
	Open    func(job string) (agent.Agent, error)
	Prepare func(request []byte) (reply []byte, err error)
	// Stage takes the next part of a program, and its end where the part is empty, which it answers.
	Stage   func(program int, part []byte) (reply []byte, err error)
	Signals <-chan os.Signal // any of them ends the agent
}

// Serve connects a launcher, at the other end of in and out, with the agent of this host. It returns when the
// launcher has closed the agent or is gone, and nothing of the job is left here.
func Serve(in io.Reader, out io.Writer, config ServerConfig) error {
	r := bufio.NewReaderSize(in, 64<<10)
	version, token, job, err := readLauncherGreeting(r)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, agentGreeting(token)); err != nil {
		return err
	}
	if version != Version {
		return nil // the launcher says so
	}
	a, err := config.Open(job)
	if err != nil {
		return err
	}
	s := &server{
		config: config, agent: a, out: newQueue(), prepared: make(chan prepared, 1),
		relays: make(map[int]*relayed),
	}
	go s.out.run(out)
	err = s.serve(r)
	if len(s.relays) > 0 {
		a.Do(agent.Halt{})
		a.Do(agent.Signal{Signal: syscall.SIGKILL})
	}
	s.closeRelays()
	a.Close()
	s.out.put(appendFrame(nil, kindClosed))
	s.out.close()
	select {
	case <-s.out.done:
	case <-time.After(period):
	}
	return err
}

type server struct {
	config ServerConfig
	agent  agent.Agent
	out    *queue
	// prepared takes what the far side has planned. Planning may wait for name resolution, so it runs in its
	// own goroutine. Meanwhile the agent still sends Alive.
	prepared chan prepared
	relays   map[int]*relayed // by number
	stops    sync.WaitGroup   // starters of relays that are being ended
	// suspended says that the ranks have been stopped from the terminal, and so the launcher may be, too.
	suspended bool
}

type prepared struct {
	reply []byte
	err   error
}

func (s *server) serve(in io.Reader) error {
	hello, err := appendJSON(nil, kindHello, s.config.Hello)
	if err != nil {
		return err
	}
	s.out.put(hello)
	over := make(chan struct{})
	defer close(over)
	frames, failed := make(chan frame), make(chan error, 1)
	go readFrames(in, maxCommand, frames, failed, over)
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	var silent keepalive
	for {
		events := s.agent.Events()
		if s.out.size() > maxUnsent {
			events = nil // the ranks wait
		}
		select {
		case f := <-frames:
			silent.received()
			if f.kind == kindClose {
				return nil
			}
			if err := s.handle(f); err != nil {
				return err
			}
		case e := <-events:
			b, err := eventForms.append(nil, e)
			if err != nil {
				return err
			}
			s.out.put(b)
		case p := <-s.prepared:
			if p.err != nil {
				return p.err
			}
			s.out.put(appendFrame(nil, kindPrepared, p.reply))
		case <-s.out.written:
		case <-s.out.done:
			return errors.New("the launcher takes no more")
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil // the launcher is gone; Serve ends the ranks
			}
			return err
		case <-s.config.Signals:
			return nil
		case now := <-ticks.C:
			s.out.put(appendFrame(nil, kindAlive))
			if silent.tick(now) >= launcherSilence && !s.suspended {
				return fmt.Errorf("nothing was heard from the launcher for %v", launcherSilence*period)
			}
		}
	}
}

func (s *server) handle(f frame) error {
	switch f.kind {
	case kindAlive:
		return nil
	case kindPrepare:
		go func() {
			reply, err := s.config.Prepare(f.body)
			s.prepared <- prepared{reply, err}
		}()
		return nil
	case kindStage:
		return s.stage(f)
	case kindRelay:
		return s.openRelay(f)
	case kindRelayData, kindRelayStop:
		return s.relay(f)
	}
	c, _, err := commandForms.parse(f.kind, f.body)
	if err != nil {
		return err
	}
	if signal, is := c.(agent.Signal); is {
		switch signal.Signal {
		case syscall.SIGTSTP, syscall.SIGSTOP:
			s.suspended = true
		case syscall.SIGCONT:
			s.suspended = false
		}
	}
	s.agent.Do(c)
	return nil
}
