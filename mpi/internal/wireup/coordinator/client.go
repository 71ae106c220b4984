package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
)

// ErrNotFound means that a key has no value.
var ErrNotFound = errors.New("key not found")

// Config describes the job to a rank.
type Config struct {
	Rank, Size int
	Address    string // HOST:PORT where rank 0 listens
	Secret     [secretSize]byte
	Within     time.Duration // deadline of the start
	Kernel     string        // equal at ranks of one kernel
	Survive    bool          // the loss of ranks, even of rank 0; the same at all ranks

	// Stuck is how long no message may move until rank 0 reports on standard error what the ranks wait for; 0
	// for never. StuckAction is what it does then.
	Stuck       time.Duration
	StuckAction deadlock.Action

	// for tests
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
	authTimeout time.Duration
}

// An AbortError reports that a rank has ended the job.
type AbortError struct {
	Rank, Code int
	How        string // further information
}

// Values of an AbortError's rank if a hang has ended the job.
const (
	StuckRank   = math.MaxUint32     // a deadlock
	UnmovedRank = math.MaxUint32 - 1 // nothing had moved for long
)

func (e *AbortError) Error() string {
	switch e.Rank {
	case StuckRank:
		return deadlock.Abort.Why(&deadlock.Report{Proven: true})
	case UnmovedRank:
		return deadlock.AbortUnmoved.Why(&deadlock.Report{Unmoved: true})
	}
	return fmt.Sprintf("rank %d has ended the job with status %d%s", e.Rank, e.Code, e.How)
}

// A LostError reports that a rank has left without a farewell.
type LostError struct {
	Rank int
	How  string
}

func (e *LostError) Error() string { return fmt.Sprintf("rank %d is lost: %s", e.Rank, e.How) }

// Client is a rank's membership in the job. Its methods may be called from any goroutine.
type Client struct {
	config Config
	server *server // at rank 0
	link   *link
	job    string
	local  int
	rank0  netip.Addr // of rank 0's host, from kindStart

	calls    sync.Mutex   // held during a put or get
	answers  chan message // of the put or get
	barriers sync.Mutex
	released chan struct{}

	asks       chan byte       // requests of rank 0
	casualties chan *LostError // of a job that goes on; with room for all ranks, and closed at the end

	ended chan struct{} // closed when the connection is unusable; why is set before
	why   error
	on    sync.Once
}

// dialWithin bounds one attempt to reach rank 0, and betweenTries is the time until the next.
const (
	dialWithin   = 10 * time.Second
	betweenTries = 50 * time.Millisecond
)

// grace is the time that rank 0 has, beyond its own deadline, to report that the start has failed.
const grace = 10 * time.Second

// Join returns when all ranks have come, or with an error at the deadline. Rank 0 listens; the others call it
// until it answers.
func Join(ctx context.Context, config Config) (*Client, error) {
	c := &Client{config: config, answers: make(chan message, 1), released: make(chan struct{}, 1),
		asks: make(chan byte, 4), casualties: make(chan *LostError, config.Size), ended: make(chan struct{})}
	var err error
	if config.Rank == 0 {
		err = c.serve(ctx)
	} else {
		c.link, err = c.reach(ctx)
	}
	if err == nil {
		err = c.begin(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	go c.read()
	return c, nil
}

func (c *Client) hello() hello {
	host, _ := os.Hostname()
	return hello{rank: uint32(c.config.Rank), size: uint32(c.config.Size), pid: uint32(os.Getpid()),
		kernel: c.config.Kernel, host: host}
}

// serve starts rank 0's server, and a connection to it within this process.
func (c *Client) serve(ctx context.Context) (err error) {
	if c.server, err = listen(ctx, c.config); err != nil {
		return err
	}
	return c.joinOwn()
}

// joinOwn connects rank 0 with its own server.
func (c *Client) joinOwn() (err error) {
	ours, theirs := net.Pipe()
	c.server.places <- struct{}{}
	c.server.take(theirs)
	c.link, err = call(ours, c.config.Secret, c.hello())
	return err
}

// reach calls rank 0 until it answers. Rank 0 may not have been started yet, and its host's name may not
// resolve yet. Another program or job at its address is a final error.
func (c *Client) reach(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Within)
	defer cancel()
	var last error
	for {
		l, err := c.try(ctx)
		var version *versionError
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, errSecret), errors.Is(err, errNoCoordinator), errors.As(err, &version):
			return nil, fmt.Errorf("rank %d of %d cannot join rank 0 at %s: %w", c.config.Rank,
				c.config.Size, c.config.Address, err)
		case ctx.Err() == nil || last == nil:
			last = err
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
				last = cause
			}
			return nil, fmt.Errorf("rank %d of %d has not reached rank 0 at %s within %s: %w",
				c.config.Rank, c.config.Size, c.config.Address, c.config.Within, last)
		case <-time.After(betweenTries):
		}
	}
}

func (c *Client) try(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	dial := c.config.dial
	if dial == nil {
		dial = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	}
	conn, err := dial(ctx, "tcp", c.config.Address)
	if err != nil {
		return nil, err
	}
	end, _ := ctx.Deadline()
	conn.SetDeadline(end)
	l, err := call(conn, c.config.Secret, c.hello())
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	conn.SetDeadline(time.Time{})
	return l, nil
}

// begin waits for the start.
func (c *Client) begin(ctx context.Context) error {
	c.link.conn.SetReadDeadline(time.Now().Add(c.config.Within + grace))
	stop := context.AfterFunc(ctx, func() { c.link.conn.SetReadDeadline(time.Unix(1, 0)) })
	m, err := c.link.receive()
	switch {
	case !stop():
		return context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return errors.New("rank 0 has ended before all ranks had come")
	case err != nil:
		return fmt.Errorf("rank 0 does not tell whether all ranks have come: %w", err)
	case m.kind != kindStart:
		return c.failure(m)
	}
	c.job, c.local = m.text, int(m.number)
	c.rank0, _ = netip.ParseAddr(m.key) // invalid if all ranks are on one host
	return c.link.conn.SetReadDeadline(time.Time{})
}

// failure returns the error that a message of rank 0 reports.
func (c *Client) failure(m message) error {
	switch m.kind {
	case kindFailed:
		return errors.New(m.text)
	case kindAborted:
		return &AbortError{int(m.rank), int(m.number), m.text}
	case kindLost:
		return &LostError{int(m.rank), m.text}
	}
	return fmt.Errorf("rank 0 sent a message of kind %d that is not due", m.kind)
}

// read handles rank 0's messages until the connection ends.
func (c *Client) read() {
	defer close(c.casualties)
	for {
		m, err := c.link.receive()
		if err != nil {
			how := "the connection to it failed: " + err.Error()
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				how = "it has ended without Finalize"
			}
			c.lose(&LostError{0, how})
			c.end(&LostError{0, how})
			return
		}
		switch m.kind {
		case kindDone, kindMissing, kindRefused:
			select {
			case c.answers <- m:
				continue
			default:
			}
		case kindAsk:
			select {
			case c.asks <- byte(m.number):
			default: // nobody waits for requests
			}
			continue
		case kindRelease:
			select {
			case c.released <- struct{}{}:
				continue
			default:
			}
		}
		if m.kind == kindWithout && c.lose(&LostError{int(m.rank), m.text}) {
			continue
		}
		c.end(c.failure(m))
		return
	}
}

// lose records a rank that the job goes on without, and reports whether it did. It does not if the job ends
// with a lost rank, or if rank 0 has reported more losses than there are ranks.
func (c *Client) lose(lost *LostError) bool {
	if !c.config.Survive {
		return false
	}
	select {
	case c.casualties <- lost:
		return true
	default:
		return false
	}
}

// Casualties returns a channel of the ranks that are lost in a job that goes on. It is closed when this rank
// has left the job, or when rank 0, which reports them, is lost.
func (c *Client) Casualties() <-chan *LostError { return c.casualties }

func (c *Client) end(why error) {
	c.on.Do(func() {
		c.why = why
		close(c.ended)
	})
}

// Rank returns this process's rank.
func (c *Client) Rank() int { return c.config.Rank }

// Size returns the number of ranks of the job.
func (c *Client) Size() int { return c.config.Size }

// KVSName returns the job's id, which rank 0 has chosen.
func (c *Client) KVSName() string { return c.job }

// Local returns the number of ranks with this rank's kernel, including itself.
func (c *Client) Local() int { return c.local }

// Address returns this host's address on the route to the other hosts' ranks; invalid without such ranks. A
// rank of rank 0's host may have reached it by a loopback address, and gets the host's address from ranks of
// other hosts.
func (c *Client) Address() netip.Addr {
	a, ok := c.link.conn.LocalAddr().(*net.TCPAddr)
	if !ok || a.IP.IsLoopback() {
		return c.rank0
	}
	return a.AddrPort().Addr().Unmap().WithZone("")
}

// Ended returns a channel that is closed when the job has failed or this rank has left it. Then Why has the
// reason.
func (c *Client) Ended() <-chan struct{} { return c.ended }

// Why returns the reason for the end of the job. Call it after Ended.
func (c *Client) Why() error { return c.why }

// call sends a request and waits for its answer.
func (c *Client) call(ctx context.Context, m message) (message, error) {
	c.calls.Lock()
	defer c.calls.Unlock()
	if err := c.send(m); err != nil {
		return message{}, err
	}
	select {
	case a := <-c.answers:
		return a, nil
	case <-c.ended:
		return message{}, c.why
	case <-ctx.Done():
		err := fmt.Errorf("rank 0 has not answered: %w", context.Cause(ctx))
		c.end(err) // the late answer would be taken for the next request's
		return message{}, err
	}
}

func (c *Client) send(m message) error {
	select {
	case <-c.ended:
		return c.why
	default:
	}
	err := c.link.send(m)
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	select {
	case <-c.ended: // read gets what rank 0 has sent before, and knows the reason
		return c.why
	case <-time.After(sendWithin):
		return err
	}
}

// Put stores a value under a key for all ranks, which can get it after the next barrier. A key can be put
// once.
func (c *Client) Put(ctx context.Context, key, value string) error {
	if len(key) > maxKey || len(value) > maxText {
		return fmt.Errorf("%d bytes under a key of %d are more than %d and %d", len(value), len(key),
			maxText, maxKey)
	}
	a, err := c.call(ctx, message{kind: kindPut, key: key, text: value})
	if err == nil && a.kind != kindDone {
		err = fmt.Errorf("rank 0 refuses what rank %d puts: %s", c.config.Rank, a.text)
	}
	return err
}

// Get returns the value under a key, or ErrNotFound.
func (c *Client) Get(ctx context.Context, key string) (string, error) {
	a, err := c.call(ctx, message{kind: kindGet, key: key})
	if err == nil && a.kind != kindDone {
		err = fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	return a.text, err
}

// Barrier waits until every rank of the job has called it. If ctx ends first, all later calls fail.
func (c *Client) Barrier(ctx context.Context) error {
	c.barriers.Lock()
	defer c.barriers.Unlock()
	if err := c.send(message{kind: kindBarrier}); err != nil {
		return err
	}
	select {
	case <-c.released:
		return nil
	case <-c.ended:
		return c.why
	case <-ctx.Done():
		c.end(context.Cause(ctx))
		return context.Cause(ctx)
	}
}

// Finalize tells rank 0 that this rank ends normally. Rank 0 waits for all.
func (c *Client) Finalize(ctx context.Context) error {
	_, err := c.call(ctx, message{kind: kindFarewell})
	c.end(errors.New("used after Finalize"))
	c.link.conn.Close()
	if c.server != nil {
		err = errors.Join(err, c.server.await(ctx))
	}
	return err
}

// Abort asks rank 0 to end the whole job with an exit status. It returns when the other ranks have been told,
// when ctx ends, or at once if the job has failed already.
func (c *Client) Abort(ctx context.Context, code int) error {
	select {
	case <-c.ended:
		return nil
	default:
	}
	if err := c.link.send(message{kind: kindAbort, number: uint32(code)}); err != nil {
		return err
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
	}
	return nil
}

// PeerLost tells rank 0, without waiting, that this rank has lost another one, which may explain its later
// failures.
func (c *Client) PeerLost(peer int) {
	c.link.send(message{kind: kindPeerLost, number: uint32(peer)})
}

// Watched reports whether rank 0 monitors the ranks' states.
func (c *Client) Watched() bool { return c.config.Stuck > 0 }

// Reporter returns a connection, as described in package snapshot, over which the rank reports its state to
// rank 0. It ends with the client.
func (c *Client) Reporter() net.Conn {
	ours, theirs := net.Pipe()
	go func() {
		buf := make([]byte, maxText)
		for {
			n, err := theirs.Read(buf)
			if err != nil || c.send(message{kind: kindState, text: string(buf[:n])}) != nil {
				theirs.Close()
				return
			}
		}
	}()
	go func() {
		defer theirs.Close()
		for {
			select {
			case ask := <-c.asks:
				if _, err := theirs.Write([]byte{ask}); err != nil {
					return
				}
			case <-c.ended:
				return
			}
		}
	}()
	return ours
}

// Close drops the connection. Without a preceding Finalize, the others consider this rank lost.
func (c *Client) Close() error {
	c.end(errors.New("used after Close"))
	if c.link != nil {
		c.link.conn.Close()
	}
	if c.server != nil {
		c.server.close()
	}
	return nil
}
