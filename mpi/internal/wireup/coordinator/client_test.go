package coordinator

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// configs are those of a job's ranks, at a port that was free just now.
func configs(t *testing.T, size int) []Config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	var list []Config
	for rank := range size {
		list = append(list, Config{Rank: rank, Size: size, Address: l.Addr().String(),
			Secret: [secretSize]byte{1}, Within: time.Minute, Kernel: "k"})
	}
	return list
}

// A name that is not known yet, a port that nobody listens at, and a connection that ends at once are tried
// again.
func TestJoin_Rank0CannotBeReachedYet(t *testing.T) {
	both := configs(t, 2)
	tries := 0
	both[1].dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		switch tries++; tries {
		case 1, 2:
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}
		case 3:
			return nil, syscall.ECONNREFUSED
		case 4:
			a, b := net.Pipe()
			return a, b.Close()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	var all sync.WaitGroup
	for _, config := range both {
		all.Go(func() {
			c, err := Join(t.Context(), config)
			if err == nil {
				err = errors.Join(c.Barrier(t.Context()), c.Finalize(t.Context()))
			}
			if err != nil {
				t.Error(config.Rank, err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 5, tries)
}

// A name that stays unknown is told at the deadline.
func TestJoin_Rank0StaysUnknown(t *testing.T) {
	config := configs(t, 2)[1]
	config.Within = 100 * time.Millisecond
	config.dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "rank0", IsNotFound: true}
	}
	_, err := Join(t.Context(), config)
	require.ErrorContains(t, err, "rank 1 of 2 has not reached rank 0 at "+config.Address+" within 100ms: ")
	require.ErrorContains(t, err, "lookup rank0: no such host")
}

// The wait for the other ranks ends with its context.
func TestJoin_Cancelled(t *testing.T) {
	for _, config := range configs(t, 2) {
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("enough")
		cancel(reason)
		_, err := Join(ctx, config)
		require.ErrorIs(t, err, reason, config.Rank)
	}
}

// Callers that say nothing fill all places again and again; a rank comes in all the same, long before their
// time is over.
func TestJoin_SilentUnauthenticated(t *testing.T) {
	both := configs(t, 2)
	both[0].authTimeout = time.Hour // what lets the rank in is not that their time is over
	var all sync.WaitGroup
	join := func(config Config) {
		all.Go(func() {
			c, err := Join(t.Context(), config)
			if err == nil {
				err = c.Finalize(t.Context())
			}
			if err != nil {
				t.Error(config.Rank, err)
			}
		})
	}
	join(both[0])
	for range 2 * maxUnauthenticated {
		conn, err := net.Dial("tcp", both[0].Address)
		for errors.Is(err, syscall.ECONNREFUSED) {
			conn, err = net.Dial("tcp", both[0].Address)
		}
		require.NoError(t, err)
		defer conn.Close()
	}
	join(both[1])
	all.Wait()
}

// No caller is served before rank 0 has joined. Otherwise rank 0 could learn that the start has failed, and end,
// before the caller is told why.
func TestListen_Rank0JoinsFirst(t *testing.T) {
	config := configs(t, 2)[0]
	s, err := listen(t.Context(), config)
	require.NoError(t, err)
	defer s.close()
	conn, err := net.Dial("tcp", config.Address)
	require.NoError(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(50 * time.Millisecond))
	_, err = readFrame(conn, maxHello)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	c := &Client{config: config, server: s}
	require.NoError(t, c.joinOwn())
	conn.SetDeadline(time.Now().Add(time.Minute))
	_, err = readFrame(conn, maxHello)
	require.NoError(t, err)
}

// When all places are taken, every caller is hurried, even one whose goroutine has not run yet.
func TestHurry_CallersThatHaveJustCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{places: make(chan struct{}, maxUnauthenticated), callers: map[net.Conn]time.Time{},
			authTimeout: time.Hour}
		began := time.Now()
		var silent []net.Conn
		for range maxUnauthenticated {
			s.places <- struct{}{}
			ours, theirs := net.Pipe()
			silent = append(silent, ours)
			s.take(theirs)
		}
		s.hurry()
		for _, conn := range silent {
			io.Copy(io.Discard, conn)
		}
		s.serving.Wait()
		require.Equal(t, hurriedWithin, time.Since(began))
		require.Equal(t, maxUnauthenticated, s.refused)
		require.Empty(t, s.places)
	})
}

// A rank that reads nothing delays what the others are told about the job's end by a second at most.
func TestDeliver_ARankThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{table: newTable("j", 4)}
		ends := make([]net.Conn, 4)
		for i := range ends {
			ours, theirs := net.Pipe() // has no buffer: a write waits for the reader
			ends[i] = theirs
			defer theirs.Close()
			s.links = append(s.links, newLink(ours, []byte("k"), 'c', 'r'))
			s.table.members[i].state = present
		}
		told := make(chan time.Duration, 4)
		began := time.Now()
		for _, i := range []int{0, 3} {
			go func() {
				readFrame(ends[i], maxFrame)
				told <- time.Since(began)
			}()
		}
		s.deliver(s.table.lose(2, "it is gone"))
		require.LessOrEqual(t, <-told, endWithin)
		require.LessOrEqual(t, <-told, endWithin)
	})
}

// A rank that has come to rank 0 by a loopback address learns the address at which other hosts come there.
func TestStart_TellsTheAddressOfRank0(t *testing.T) {
	table := newTable("j", 2)
	table.address = "10.1.2.3"
	table.join(hello{rank: 0, size: 2, kernel: "a"})
	out, refused := table.join(hello{rank: 1, size: 2, kernel: "b"})
	require.Nil(t, refused)
	for _, d := range out {
		require.Equal(t, "10.1.2.3", d.key)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	c := &Client{config: Config{Within: time.Minute}, link: newLink(a, []byte("k"), 'r', 'c')}
	go newLink(b, []byte("k"), 'c', 'r').send(out[0].message)
	require.NoError(t, c.begin(t.Context()))
	require.Equal(t, "10.1.2.3", c.Address().String())
}

// ended is a connection whose other end is gone: writing finds that out before reading does.
type ended struct {
	net.Conn
	written chan struct{}
}

func (e *ended) SetWriteDeadline(time.Time) error { return nil }

func (e *ended) Write([]byte) (int, error) {
	close(e.written)
	return 0, syscall.EPIPE
}

func (e *ended) Read([]byte) (int, error) {
	<-e.written
	return 0, io.EOF
}

func (e *ended) Close() error { return nil }

// A rank that writes to a lost rank 0 gets the same error as one that reads.
func TestFinalize_WritesToALostRank0(t *testing.T) {
	c := &Client{config: Config{Rank: 1, Size: 2, Survive: true}, casualties: make(chan *LostError, 2),
		answers: make(chan message, 1), ended: make(chan struct{}),
		link: newLink(&ended{written: make(chan struct{})}, []byte("key"), 0, 1)}
	go c.read()
	var lost *LostError
	require.ErrorAs(t, c.Finalize(t.Context()), &lost)
	require.Zero(t, lost.Rank)
	<-c.casualties
}
