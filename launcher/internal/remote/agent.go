package remote

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// closeTimeout is how long Close waits for the remote agent to end its ranks and itself.
const closeTimeout = 3 * time.Second

// Hello describes an agent and its host.
type Hello struct {
	Version string // of weft
	Host    string // the host's own name
	Cores   int    // that ranks can use
	// Processors is equal for agents with the same processors: of one machine, in namespaces or under several
	// names. It is empty if unknown.
	Processors string
}

// Agent represents an agent on another host.
type Agent struct {
	Hello
	host    string // as the user named it
	process *process
	in      *bufio.Reader
	out     *queue

	prepared chan []byte
	staged   chan []byte
	events   chan agent.Event
	unsent   chan error    // why a command could not be sent
	closing  chan struct{} // closed by Close: events are dropped
	ended    chan struct{} // closed when nothing more is received
	why      error         // nothing more is received; set before ended is closed

	session *session
	wireUp  wireUp

	via    *Agent       // through which it is reached; nil where the launcher itself has run the starter
	missed atomic.Int32 // periods in a row in which nothing was received

	mu         sync.Mutex
	relays     map[int]*relay
	nextRelay  int
	relaysOver error // set when the streams of all relays have ended
}

var _ agent.Agent = (*Agent)(nil)

// Connect starts an agent on a host with a starter's command, and returns when it has said hello. The error
// is complete, for the user: one line that names the host.
func Connect(ctx context.Context, host, job string, command []string) (*Agent, error) {
	p, err := startProcess(command)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", host, err)
	}
	return connectStream(ctx, host, job, p, nil)
}

// connectStream returns the agent behind a starter's stream, which another agent may relay.
func connectStream(ctx context.Context, host, job string, p *process, via *Agent) (*Agent, error) {
	a := &Agent{
		host: host, process: p, in: bufio.NewReaderSize(p.stdout, 64<<10), out: newQueue(),
		via: via, session: newSession(), relays: make(map[int]*relay),
		prepared: make(chan []byte, 1), staged: make(chan []byte, 1),
		events: make(chan agent.Event, 256),
		unsent: make(chan error, 1), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	go a.out.run(p.stdin)
	began := time.Now()
	var err error
	late := false
	said := make(chan error, 1)
	go func() { said <- a.greet(job) }()
	select {
	case err = <-said:
	case <-ctx.Done():
		err = context.Cause(ctx)
		if late = errors.Is(err, context.DeadlineExceeded); late {
			err = fmt.Errorf("neither %s nor weft has answered there within %v", p.cmd.Args[0],
				time.Since(began).Round(time.Second))
		}
	}
	if err != nil {
		a.out.close()
		err = p.explain(err)
		return nil, &StartError{Host: host, Err: err, Late: late, Said: p.stderr.last()}
	}
	go a.read()
	go a.live()
	return a, nil
}

// greet exchanges the greetings and receives Hello.
func (a *Agent) greet(job string) error {
	var random [16]byte
	rand.Read(random[:])
	token := hex.EncodeToString(random[:])
	a.out.put([]byte(launcherGreeting(token, job)))
	banner, version, err := skipToGreeting(a.in, token)
	if err != nil {
		if text := lastLine(banner); text != "" {
			return &NoAgentError{text}
		}
		return err
	}
	if version != Version {
		return fmt.Errorf("weft there speaks version %d of the agent protocol, and this one version %d: "+
			"install the same weft on both", version, Version)
	}
	k, body, err := readFrame(a.in, maxEvent)
	if err == nil && k != kindHello {
		err = fmt.Errorf("%w: a frame of kind %d instead of hello", errProtocol, k)
	}
	if err != nil {
		return err
	}
	if a.Hello, err = parseJSON[Hello](k, body); err == nil && (a.Cores < 1 || a.Cores > maxCores) {
		err = fmt.Errorf("%w: a host of %d cores", errProtocol, a.Cores)
	}
	return err
}

// maxCores bounds the cores of a host.
const maxCores = 1 << 16

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// Prepare makes the remote agent plan its ranks, before Start. Its input and output are not interpreted by
// this package.
func (a *Agent) Prepare(ctx context.Context, request, reply any) error {
	body, err := Marshal(request)
	if err != nil {
		return err
	}
	a.session.ask(kindPrepared)
	a.out.put(appendFrame(nil, kindPrepare, body))
	select {
	case body := <-a.prepared:
		if err := Unmarshal(body, reply); err != nil {
			return fmt.Errorf("host %s: its plan: %w", a.host, err)
		}
		return nil
	case <-a.ended:
		return a.gone()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Events returns the remote agent's events, and Lost.
func (a *Agent) Events() <-chan agent.Event { return a.events }

// Do sends a command. An agent whose command cannot be sent is lost: it would not do what the launcher relies
// on.
func (a *Agent) Do(c agent.Command) {
	a.session.command(c)
	frame, err := commandForms.append(nil, c)
	if n := len(frame) - headerLen; err == nil && n > maxCommand {
		err = fmt.Errorf("the command to it is too long (%T of %d bytes; %d are allowed)", c, n, maxCommand)
	}
	if err != nil {
		select {
		case a.unsent <- err:
		default: // it is lost already
		}
		return
	}
	a.wireUp.to.count(kind(frame[headerLen]), len(frame))
	a.out.put(frame)
}

// Close makes the remote agent end its remaining ranks, and ends the starter.
func (a *Agent) Close() {
	a.session.ask(kindClosed)
	close(a.closing)
	a.out.put(appendFrame(nil, kindClose))
	select {
	case <-a.ended:
	case <-time.After(closeTimeout):
	}
	a.out.close()
	a.process.stdin.Close()
	a.process.wait(explainTimeout)
	a.process.stop()
}

func (a *Agent) emit(e agent.Event) {
	select {
	case a.events <- e:
	case <-a.closing:
	}
}

// read reports the remote agent's events, until it has closed or is lost.
func (a *Agent) read() {
	frames, failed := make(chan frame), make(chan error, 1)
	go readFrames(a.in, maxEvent, frames, failed, a.ended)
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	var silent keepalive
	err, isSilent := error(nil), false
	for err == nil {
		select {
		case f := <-frames:
			silent.received()
			a.missed.Store(0)
			if f.kind != kindClosed {
				err = a.handle(f)
			} else if err = a.session.answer(kindClosed); err == nil {
				a.why = io.EOF
				close(a.ended)
				a.cutRelays(io.EOF)
				return
			}
		case err = <-failed:
		case err = <-a.unsent:
		case now := <-ticks.C:
			missed := silent.tick(now)
			a.missed.Store(int32(missed))
			if missed >= agentSilence && (a.via == nil || !a.via.isMissed()) {
				err, isSilent = fmt.Errorf("nothing was heard from it for %v: it is down or cut off",
					agentSilence*period), true
			}
		}
	}
	a.why = err
	close(a.ended)
	a.lost(err, isSilent)
}

// lost reports the end of the agent, as the interface wants it.
func (a *Agent) lost(err error, isSilent bool) {
	select {
	case <-a.closing:
		a.cutRelays(io.EOF)
		return
	default:
	}
	ofAll := errors.Is(err, errTrunkEnded)
	var reason string
	if ofAll {
		reason = "all hosts are lost: " + a.process.endedText()
		a.process.stop()
	} else {
		reason = fmt.Sprintf("host %s is lost: %v", a.host, a.process.explain(err))
	}
	if via, is := errors.AsType[*viaError](err); is {
		reason, isSilent = via.reason, via.isSilent
	}
	defer a.cutRelays(&viaError{reason, isSilent})
	ranks, starting := a.session.ended()
	a.emit(agent.Lost{Ranks: ranks, Silent: isSilent, Reason: reason, Starting: starting, OfAll: ofAll})
}

func (a *Agent) handle(f frame) error {
	switch f.kind {
	case kindAlive:
		return nil
	case kindPrepared:
		return a.answered(f, a.prepared)
	case kindStaged:
		return a.answered(f, a.staged)
	case kindRelayed, kindRelayEnd:
		return a.relayed(f)
	}
	a.wireUp.from.count(f.kind, headerLen+1+len(f.body))
	e, rank, err := eventForms.parse(f.kind, f.body)
	if err != nil {
		return err
	}
	if err := a.session.event(e, rank); err != nil {
		return err
	}
	a.emit(e)
	return nil
}

// live sends the remote agent signs of life of the launcher.
func (a *Agent) live() {
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			a.out.put(appendFrame(nil, kindAlive))
		case <-a.ended:
			return
		}
	}
}

// frame is what one reader hands to another goroutine.
type frame struct {
	kind kind
	body []byte
}

// readFrames hands over frames until the stream fails or nobody wants more.
func readFrames(r io.Reader, limit int, frames chan<- frame, failed chan<- error, over <-chan struct{}) {
	for {
		k, body, err := readFrame(r, limit)
		if err != nil {
			failed <- err
			return
		}
		select {
		case frames <- frame{k, body}:
		case <-over:
			return
		}
	}
}
