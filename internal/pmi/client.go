package pmi

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/inherited"
	"github.com/weft-mpi/weft/internal/sys"
)

// ErrNotFound means that no rank has put the key, or that its put is not visible yet because no barrier has
// followed.
var ErrNotFound = errors.New("key not found")

// EndpointsKey is the key for the number of endpoints of each rank, unless the user has set it. weft's
// launcher puts it, or rank 0 under another launcher.
const EndpointsKey = "weft-endpoints"

// maxRanks bounds the size that a launcher may announce.
const maxRanks = 1 << 24

// answerWithin is the time that a launcher has to answer: far more than it needs on a loaded machine. A
// barrier has no such bound, since it waits for other ranks.
const answerWithin = 30 * time.Second

// firstToClose is the lowest number of the connection's descriptor. When a process ends, the kernel closes
// its descriptors from the highest number down. So the launcher learns of a rank's end before its peers do,
// and knows that their ends follow from it (ADR 0026).
const firstToClose = 1000

// stream is a connection to the launcher: a net.Conn or an *os.File that can be polled.
type stream interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	Close() error
	SetDeadline(time.Time) error
}

// Client is a rank's connection to its launcher. Its methods may be called from any goroutine, and run one at
// a time. Each ends with its context, or when the launcher does not answer in time. A call that fails
// half-way leaves the connection unusable: later calls return the same error.
//
// After Init, Finalize must be called before the process ends, or the launcher considers the rank failed.
type Client struct {
	mu     sync.Mutex
	conn   stream
	in     *bufio.Reader
	broken error // why the connection can no longer be used
	closed bool

	timeout time.Duration // in place of answerWithin, for tests

	port, id string // where to connect and as whom; empty with an inherited descriptor

	rank, size, appnum int
	kvsName            string
	maxKey, maxValue   int
	answersKnown       bool // the launcher is weft's, and answers get_known
}

// FromEnv finds the launcher in the environment: PMI_FD with PMI_RANK and PMI_SIZE, or PMI_PORT with PMI_ID.
// It returns nil, nil when neither is set. It takes over an inherited descriptor and keeps it from the
// programs that this process starts, so call it once.
func FromEnv() (*Client, error) {
	if fd, ok := os.LookupEnv("PMI_FD"); ok {
		return fromDescriptor(fd, os.Getenv("PMI_RANK"), os.Getenv("PMI_SIZE"))
	}
	if port, ok := os.LookupEnv("PMI_PORT"); ok {
		id := os.Getenv("PMI_ID")
		if err := checkWord("PMI_ID", id, 64); err != nil {
			return nil, fmt.Errorf("pmi: PMI_PORT=%s is set, but %w", port, err)
		}
		return &Client{port: port, id: id, rank: -1, size: -1, appnum: -1}, nil
	}
	return nil, nil
}

func fromDescriptor(fdText, rankText, sizeText string) (*Client, error) {
	fd, err := strconv.Atoi(fdText)
	if err != nil || fd < 0 {
		return nil, fmt.Errorf("pmi: PMI_FD=%q is not a descriptor's number", fdText)
	}
	size, err := strconv.Atoi(sizeText)
	if err != nil || size < 1 || size > maxRanks {
		return nil, fmt.Errorf("pmi: PMI_FD=%d is set, but PMI_SIZE=%q is not a number of ranks", fd,
			sizeText)
	}
	rank, err := strconv.Atoi(rankText)
	if err != nil || rank < 0 || rank >= size {
		return nil, fmt.Errorf("pmi: PMI_FD=%d is set, but PMI_RANK=%q is not a rank from 0 to %d", fd,
			rankText, size-1)
	}
	if err := checkConnection(fd); err != nil {
		return nil, fmt.Errorf("pmi: PMI_FD=%d: %w", fd, err)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("pmi: PMI_FD=%d: %w", fd, err)
	}
	fd = sys.MoveAbove(fd, firstToClose)
	c := &Client{rank: rank, size: size, appnum: -1}
	c.use(os.NewFile(uintptr(fd), "PMI_FD"))
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("pmi: PMI_FD=%d cannot be waited for: %w", fd, err)
	}
	return c, nil
}

// checkConnection checks that a descriptor is a launcher's connection, before anything is written to it: the
// one from weft run if it has started this process, and a socket in any case.
func checkConnection(fd int) error {
	if _, err := inherited.Take(inherited.PMI); err != nil {
		return err
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%w: %w", err, inherited.ErrReplaced)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return fmt.Errorf("not a socket: %w", inherited.ErrReplaced)
	}
	return nil
}

func (c *Client) use(conn stream) {
	c.conn = conn
	c.in = bufio.NewReaderSize(conn, maxLine)
}

// Rank returns this process's rank, known at once with PMI_FD and after Init with PMI_PORT.
func (c *Client) Rank() int { return c.rank }

// Size returns the number of ranks of the job, known when Rank is.
func (c *Client) Size() int { return c.size }

// Appnum returns the number of this rank's program in the job, or -1 if the launcher does not give it. It is
// known after Init.
func (c *Client) Appnum() int { return c.appnum }

// KVSName returns the launcher's name for the job's key-value space, and so for the job. It is known after
// Init.
func (c *Client) KVSName() string { return c.kvsName }

// OnThisMachine reports whether the connection to the launcher stays on this machine: it is an inherited
// descriptor, or a connection to an address of this machine. It is known after Init.
func (c *Client) OnThisMachine() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, ok := c.conn.(net.Conn)
	if !ok {
		return true
	}
	return sameMachine(conn.LocalAddr(), conn.RemoteAddr())
}

// sameMachine reports whether a connection stays on this machine: the kernel connects to a local address from
// the same address, and to a loopback address from a loopback address.
func sameMachine(local, remote net.Addr) bool {
	here, ok1 := local.(*net.TCPAddr)
	there, ok2 := remote.(*net.TCPAddr)
	return ok1 && ok2 && (there.IP.IsLoopback() || here.IP.Equal(there.IP) && here.Zone == there.Zone)
}

// Close drops the connection. Without a preceding Finalize, the launcher considers this rank failed.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil || c.closed {
		return nil
	}
	c.closed = true
	if c.broken == nil {
		c.broken = errors.New("used after Close")
	}
	return c.conn.Close()
}

// Init makes this process known to the launcher and learns the launcher's limits.
func (c *Client) Init(ctx context.Context) error {
	if err := c.connect(ctx); err != nil {
		return err
	}
	reply, err := c.call(ctx, "init", "response_to_init", field{"pmi_version", "1"},
		field{"pmi_subversion", "1"})
	if err != nil {
		return err
	}
	if v, _ := reply.get("pmi_version"); v != "1" {
		return c.failf("init: the launcher speaks version %q of the protocol, weft version 1", v)
	}
	if reply, err = c.call(ctx, "get_maxes", "maxes"); err != nil {
		return err
	}
	if c.maxKey, err = number(reply, "keylen_max", 8, 1<<20); err != nil {
		return c.failf("get_maxes: %w", err)
	}
	if c.maxValue, err = number(reply, "vallen_max", 16, 1<<20); err != nil {
		return c.failf("get_maxes: %w", err)
	}
	_, c.answersKnown = reply.get("get_known")
	c.maxKey, c.maxValue = min(c.maxKey-1, MaxKey-1), min(c.maxValue, MaxValue)
	if reply, err = c.call(ctx, "get_appnum", "appnum"); err != nil {
		return err
	}
	if c.appnum, err = number(reply, "appnum", -1, maxRanks); err != nil {
		return c.failf("get_appnum: %w", err)
	}
	if reply, err = c.call(ctx, "get_my_kvsname", "my_kvsname"); err != nil {
		return err
	}
	c.kvsName, _ = reply.get("kvsname")
	if err := checkWord("the name of the key-value space", c.kvsName, maxKVSName); err != nil {
		return c.failf("get_my_kvsname: %w", err)
	}
	return nil
}

// connect connects to the launcher at PMI_PORT, which then sends size and rank. With PMI_FD it does nothing.
func (c *Client) connect(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		return nil
	}
	ctx, cancel := c.impatient(ctx)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.port)
	if err != nil {
		return fmt.Errorf("pmi: PMI_PORT=%s: the launcher cannot be reached: %w", c.port, err)
	}
	c.use(conn)
	defer c.bound(ctx)()
	if _, err := conn.Write([]byte(format(message{{"cmd", "initack"}, {"pmiid", c.id}}))); err != nil {
		return c.breakOff(ctx, "initack", err)
	}
	if _, err := c.expect("initack"); err != nil {
		return c.breakOff(ctx, "initack", err)
	}
	for _, set := range []struct {
		key string
		to  *int
	}{{"size", &c.size}, {"rank", &c.rank}, {"debug", new(int)}} {
		m, err := c.expect("set")
		if err == nil {
			*set.to, err = number(m, set.key, 0, maxRanks)
		}
		if err != nil {
			return c.breakOff(ctx, "initack", err)
		}
	}
	if c.rank >= c.size {
		return c.breakOff(ctx, "initack", fmt.Errorf("the launcher gave rank %d of %d", c.rank, c.size))
	}
	return nil
}

// Put stores a value under a key for all ranks, which can get it after the next barrier. A key can be put
// once.
func (c *Client) Put(ctx context.Context, key, value string) error {
	if err := c.checkKey("put", key); err != nil {
		return err
	}
	if err := checkWord("the value of "+key, value, c.maxValue); err != nil {
		return c.errorf("put: %w", err)
	}
	_, err := c.call(ctx, "put", "put_result", field{"kvsname", c.kvsName}, field{"key", key},
		field{"value", value})
	return err
}

// Get returns the value that some rank has put under the key before the last barrier, or ErrNotFound.
func (c *Client) Get(ctx context.Context, key string) (string, error) {
	if err := c.checkKey("get", key); err != nil {
		return "", err
	}
	reply, err := c.call(ctx, "get", "get_result", field{"kvsname", c.kvsName}, field{"key", key})
	var refused *refusal
	if errors.As(err, &refused) {
		return "", c.errorf("get %s: %w", key, ErrNotFound)
	}
	if err != nil {
		return "", err
	}
	value, ok := reply.get("value")
	if !ok {
		return "", c.failf("get %s: the launcher's answer has no value", key)
	}
	return value, nil
}

// GetKnown returns the values of those keys that the launcher's process on this host has, in one exchange of
// messages. It returns none under launchers that do not offer this.
func (c *Client) GetKnown(ctx context.Context, keys []string) (map[string]string, error) {
	known := map[string]string{}
	if !c.answersKnown {
		return known, nil
	}
	for len(keys) > 0 {
		n, size := 0, 0
		for n < len(keys) && (n == 0 || size+len(keys[n]) < maxLine/2) {
			if err := c.checkKey("get_known", keys[n]); err != nil {
				return nil, err
			}
			size += len(keys[n]) + 1
			n++
		}
		if err := c.getKnown(ctx, keys[:n], known); err != nil {
			return nil, err
		}
		keys = keys[n:]
	}
	return known, nil
}

// getKnown does so for keys that fit a line.
func (c *Client) getKnown(ctx context.Context, keys []string, known map[string]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	const name, answer = "get_known", "get_result"
	reply, err := c.callLocked(ctx, name, answer, field{"keys", strings.Join(keys, ",")})
	var refused *refusal
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	ctx, cancel := c.impatient(ctx)
	defer cancel()
	defer c.bound(ctx)()
	for i, key := range keys {
		if i > 0 {
			if reply, err = c.expect(answer); err != nil {
				return c.breakOff(ctx, name, err)
			}
		}
		if rc, _ := reply.get("rc"); rc != "0" {
			continue
		}
		if value, ok := reply.get("value"); ok {
			known[key] = value
		}
	}
	return nil
}

// Barrier waits until every rank of the job has called it.
func (c *Client) Barrier(ctx context.Context) error {
	_, err := c.call(ctx, "barrier_in", "barrier_out")
	return err
}

// Finalize tells the launcher that this rank is about to end, and closes the connection.
func (c *Client) Finalize(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock() // a call that waits for the lock then finds the connection closed
	if _, err := c.callLocked(ctx, "finalize", "finalize_ack"); err != nil {
		return err
	}
	c.broken, c.closed = errors.New("used after Finalize"), true
	return c.conn.Close()
}

// Abort asks the launcher to end the whole job with this exit status. The launcher sends no answer: it ends
// the process. Abort does not wait for another call in progress, such as a barrier that will never complete.
func (c *Client) Abort(ctx context.Context, code int) error {
	if c.conn == nil {
		return c.errorf("abort: not connected")
	}
	// A line of this size is written as a whole, so it cannot mix with another's.
	line := format(message{{"cmd", "abort"}, {"exitcode", strconv.Itoa(code)}})
	if deadline, ok := ctx.Deadline(); ok {
		defer time.AfterFunc(time.Until(deadline), func() { c.conn.SetDeadline(time.Unix(1, 0)) }).Stop()
	}
	if _, err := c.conn.Write([]byte(line)); err != nil {
		return c.errorf("abort: %w", err)
	}
	return nil
}

// AwaitHangUp waits after Abort until the launcher has closed the connection, or ctx ends. weft run does so
// when it has told the other ranks to end, so they do not report the loss of a rank that waits.
func (c *Client) AwaitHangUp(ctx context.Context) {
	if c.conn == nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var rest [256]byte
	for {
		if _, err := c.conn.Read(rest[:]); err != nil {
			return
		}
	}
}

// PeerLost tells the launcher that this rank has lost another one, or with -1 that some rank is lost, which
// may explain later failures of this rank. It does not wait. Launchers other than weft run do not know it.
func (c *Client) PeerLost(peer int) {
	if c.conn != nil {
		// A line of this size is written as a whole, so it cannot mix with another's.
		c.conn.Write([]byte(format(message{{"cmd", "peer_lost"}, {"peer", strconv.Itoa(peer)}})))
	}
}

// A refusal is an answer with an rc other than 0: the launcher has understood and declined, and the
// connection stays usable.
type refusal struct{ rc, msg string }

func (r *refusal) Error() string {
	if r.msg == "" {
		return "the launcher refused: rc=" + r.rc
	}
	return fmt.Sprintf("the launcher refused: %s (rc=%s)", strings.ReplaceAll(r.msg, "_", " "), r.rc)
}

// call sends one request in one write and waits for its answer.
func (c *Client) call(ctx context.Context, name, answer string, args ...field) (message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.callLocked(ctx, name, answer, args...)
}

func (c *Client) callLocked(ctx context.Context, name, answer string, args ...field) (message, error) {
	if c.broken != nil {
		return nil, c.errorf("%s: %w", name, c.broken)
	}
	if c.conn == nil {
		return nil, c.errorf("%s: called before Init", name)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, c.errorf("%s: %w", name, err)
	}
	line := format(append(message{{"cmd", name}}, args...))
	if name != "barrier_in" {
		var cancel func()
		ctx, cancel = c.impatient(ctx)
		defer cancel()
	}
	defer c.bound(ctx)()
	if _, err := c.conn.Write([]byte(line)); err != nil {
		return nil, c.breakOff(ctx, name, err)
	}
	m, err := c.expect(answer)
	if err != nil {
		return nil, c.breakOff(ctx, name, err)
	}
	if rc, ok := m.get("rc"); ok && rc != "0" {
		msg, _ := m.get("msg")
		return nil, c.errorf("%s: %w", name, &refusal{rc, msg})
	}
	return m, nil
}

// impatient returns a context that ends when the launcher's time to answer is over.
func (c *Client) impatient(ctx context.Context) (context.Context, func()) {
	timeout := cmp.Or(c.timeout, answerWithin)
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the launcher has not answered within %s",
		timeout))
}

// bound makes the connection's reads and writes end with ctx until the returned function is called.
func (c *Client) bound(ctx context.Context) (release func()) {
	var mu sync.Mutex
	over := false
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			c.conn.SetDeadline(time.Unix(1, 0))
		}
	})
	return func() {
		stop()
		mu.Lock()
		defer mu.Unlock()
		over = true
		c.conn.SetDeadline(time.Time{})
	}
}

// expect reads one line and checks that it is the expected answer.
func (c *Client) expect(answer string) (message, error) {
	line, err := c.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("the launcher sent a line longer than %d bytes", maxLine)
	case err != nil:
		return nil, fmt.Errorf("the connection to the launcher ended: %w", err)
	}
	m, err := parse(string(line[:len(line)-1]))
	if err != nil {
		return nil, fmt.Errorf("the launcher sent %w", err)
	}
	if m.name() != answer {
		return nil, fmt.Errorf("the launcher answered %.60q where %s was due", m.name(), answer)
	}
	return m, nil
}

// breakOff marks the connection as unusable, because it is out of step. Its error names the end of the
// context if that was the reason.
func (c *Client) breakOff(ctx context.Context, name string, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	c.broken = c.errorf("%s: %w", name, err)
	return c.broken
}

// failf is breakOff for a complete but invalid answer.
func (c *Client) failf(text string, args ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = c.errorf(text, args...)
	return c.broken
}

func (c *Client) errorf(text string, args ...any) error {
	if c.rank < 0 {
		return fmt.Errorf("pmi: "+text, args...)
	}
	return fmt.Errorf("pmi: rank %d: "+text, append([]any{c.rank}, args...)...)
}

func (c *Client) checkKey(name, key string) error {
	if c.maxKey == 0 {
		return c.errorf("%s: called before Init", name)
	}
	if err := checkWord("the key", key, c.maxKey); err != nil {
		return c.errorf("%s: %w", name, err)
	}
	if strings.Contains(key, "=") {
		return c.errorf("%s: the key %q has a '=' in it", name, key)
	}
	return nil
}

// number returns a field as an integer from low to high.
func number(m message, key string, low, high int) (int, error) {
	text, ok := m.get(key)
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < low || n > high {
		return 0, fmt.Errorf("%s=%.60q is not a whole number from %d to %d", key, text, low, high)
	}
	return n, nil
}
