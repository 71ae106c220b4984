package shm

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// host is rank 0 of 3, who hears of those that it turns away.
type door struct {
	*end
	ep      transport.Endpoint
	refused chan error
}

func (d *door) Refused(_ string, err error) { d.refused <- err }

func openDoor(t *testing.T, o Options) *door {
	t.Helper()
	dev, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	d := &door{end: &end{dev: dev, made: make(chan transport.QP, 4)}, refused: make(chan error, 2*maxStrangers)}
	d.pd, err = dev.AllocPD()
	require.NoError(t, err)
	d.cq, err = dev.CreateCQ(64, 0)
	require.NoError(t, err)
	d.ep, err = dev.Listen(transport.Identity{Job: "door", Rank: 0, Size: 3}, d)
	require.NoError(t, err)
	return d
}

// caller is somebody who speaks for himself.
type caller struct {
	parties
	t    *testing.T
	conn *net.UnixConn
}

func (d *door) call(t *testing.T) *caller {
	t.Helper()
	_, name, ok := split(d.ep.Addr())
	require.True(t, ok)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: "@" + name, Net: "unix"})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	c := &caller{t: t, conn: conn, parties: parties{job: jobHash("door"), initiator: 1, responder: 0}}
	c.nonces[0][3] = 9
	return c
}

func (c *caller) say(b []byte) {
	_, err := c.conn.Write(b)
	require.NoError(c.t, err)
}

// hear reads a message.
func (c *caller) hear(want messageType) []byte {
	s := &stream{UnixConn: c.conn}
	body, err := s.message(want)
	require.NoError(c.t, err)
	return body
}

// rest is what comes until the other side closes.
func (c *caller) rest() []byte {
	b, err := readAll(c.conn)
	require.NoError(c.t, err)
	return b
}

func readAll(c net.Conn) ([]byte, error) {
	var all bytes.Buffer
	_, err := all.ReadFrom(c)
	if err != nil && strings.Contains(err.Error(), "reset") {
		err = nil
	}
	return all.Bytes(), err
}

// proved is a caller who is in.
func (c *caller) proved(secret *[32]byte) {
	c.say(c.appendHello(nil))
	require.NoError(c.t, c.takeChallenge(c.hear(typeChallenge), secret))
	c.say(c.appendProof(nil, secret))
}

// Whoever is no rank of this job is turned away with the reason on both sides, keeps nothing open, and the next genuine peer finds an open door.
func TestStranger_IsTurnedAwayAndBothSidesKnowWhy(t *testing.T) {
	var secret [32]byte
	tests := []struct {
		name  string
		does  func(d *door, c *caller)
		cause error
		text  string
		heard string
	}{
		{"garbage", func(_ *door, c *caller) { c.say([]byte("GET / HTTP/1.0\r\n\r\n")) }, transport.ErrNotWeft, `begins with "GET / HT"`, ""},
		{"magic and garbage", func(_ *door, c *caller) { c.say(append([]byte(magic), bytes.Repeat([]byte{0xfe}, 90)...)) }, transport.ErrNotWeft,
			"begins with", ""},
		{"other version", func(_ *door, c *caller) {
			b := c.appendHello(nil)
			b[len(magic)+1] = 9
			c.say(b)
		}, transport.ErrVersion, "version 9, here 1", "this is version 1"},
		{"other job", func(_ *door, c *caller) {
			c.job = jobHash("another")
			c.say(c.appendHello(nil))
		}, transport.ErrRefused, "another job", "this is another job"},
		{"wants another rank", func(_ *door, c *caller) {
			c.responder = 2
			c.say(c.appendHello(nil))
		}, transport.ErrRefused, "it is rank 1 and wants rank 2", "this is rank 0 of 3"},
		{"rank outside", func(_ *door, c *caller) {
			c.initiator = 3
			c.say(c.appendHello(nil))
		}, transport.ErrRefused, "it is rank 3 and wants rank 0", "this is rank 0 of 3"},
		{"our own rank", func(_ *door, c *caller) {
			c.initiator = 0
			c.say(c.appendHello(nil))
		}, transport.ErrRefused, "it is rank 0 and wants rank 0", "this is rank 0 of 3"},
		{"wrong secret", func(_ *door, c *caller) {
			c.say(c.appendHello(nil))
			c.hear(typeChallenge)
			c.say(c.appendProof(nil, &[32]byte{7}))
		}, transport.ErrAuth, "does not know the job's secret", "does not know the job's secret"},
		{"our own proof played back", func(_ *door, c *caller) {
			c.say(c.appendHello(nil))
			body := c.hear(typeChallenge)
			c.say(append(appendPrefix(nil, typeProof, proofSize), body[nonceSize:]...))
		}, transport.ErrAuth, "does not know the job's secret", "does not know the job's secret"},
		{"an Offer that was changed", func(d *door, c *caller) {
			c.proved(&secret)
			b := c.appendOffer(nil, &secret, roleOffering, (&caller{}).offer(), nil)
			b[prefixSize+proofSize] ^= 1
			require.NoError(c.t, sys.SendDescriptors(c.conn, b, 0, 1))
		}, transport.ErrAuth, "does not know the job's secret", "does not know the job's secret"},
		{"an Offer that makes no sense", func(d *door, c *caller) {
			c.proved(&secret)
			o := c.offer()
			o.block = o.arena
			require.NoError(c.t, sys.SendDescriptors(c.conn, c.appendOffer(nil, &secret, roleOffering, o, nil), 0, 1))
		}, transport.ErrProtocol, "an Offer of a block at", "an Offer of a block at"},
		{"no descriptors", func(d *door, c *caller) {
			c.proved(&secret)
			c.say(c.appendOffer(nil, &secret, roleOffering, c.offer(), nil))
		}, transport.ErrProtocol, "with 0 descriptors", "with 0 descriptors"},
		{"descriptors of other things", func(d *door, c *caller) {
			c.proved(&secret)
			require.NoError(c.t, sys.SendDescriptors(c.conn, c.appendOffer(nil, &secret, roleOffering, c.offer(), nil), 0, 1))
		}, transport.ErrProtocol, "not shared memory", "not shared memory"},
		{"memory that can shrink, or of another size", func(d *door, c *caller) {
			c.proved(&secret)
			o := c.offer()
			o.arena = uint64(leastArena) + 2*pageSize
			require.NoError(c.t, sys.SendDescriptors(c.conn, c.appendOffer(nil, &secret, roleOffering, o, nil), d.dev.arena.fd,
				d.cq.(*cq).poller.Event()))
		}, transport.ErrProtocol, "said to be of", "said to be of"},
		{"gone before Ready", func(d *door, c *caller) {
			c.proved(&secret)
			o := c.offer()
			o.arena = uint64(len(d.dev.arena.mem))
			require.NoError(c.t, sys.SendDescriptors(c.conn, c.appendOffer(nil, &secret, roleOffering, o, nil), d.dev.arena.fd,
				d.cq.(*cq).poller.Event()))
			require.NoError(c.t, c.conn.CloseWrite())
		}, transport.ErrPeerLost, "closed the connection during start-up", "\x04\x01"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := openDoor(t, Options{})
			fds := descriptors(t)
			c := d.call(t)
			test.does(d, c)
			err := <-d.refused
			require.ErrorIs(t, err, test.cause)
			require.ErrorContains(t, err, test.text)
			require.Contains(t, string(c.rest()), test.heard)
			require.NoError(t, c.conn.Close())
			require.Equal(t, fds, descriptors(t))
			require.Zero(t, d.held(), "memory that it may use")
			require.Empty(t, d.made)
			friend := openRank(t, 1)
			require.NoError(t, friend.ep.Connect(context.Background(), 0, d.ep.Addr()))
		})
	}
}

// offer is one that makes sense.
func (c *caller) offer() *offer {
	return &offer{arena: uint64(leastArena), block: uint64(tableBytes), domain: 1, num: 1, recv: 1, queues: []offeredQueue{{bell: uint64(tableBytes)}}}
}

func descriptors(t *testing.T) int {
	list, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	return len(list)
}

// openRank is another rank of the door's job.
func openRank(t *testing.T, number uint32) *door {
	t.Helper()
	dev, err := New(Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	d := &door{end: &end{dev: dev, made: make(chan transport.QP, 1)}, refused: make(chan error, 8)}
	d.pd, err = dev.AllocPD()
	require.NoError(t, err)
	d.cq, err = dev.CreateCQ(64, 0)
	require.NoError(t, err)
	d.ep, err = dev.Listen(transport.Identity{Job: "door", Rank: number, Size: 3}, d)
	require.NoError(t, err)
	return d
}

func TestStranger_WhoSaysNothingIsCut(t *testing.T) {
	d := openDoor(t, Options{StrangerTimeout: 20 * time.Millisecond})
	c := d.call(t)
	c.say(c.appendHello(nil)[:40])
	err := <-d.refused
	require.ErrorIs(t, err, transport.ErrPeerLost)
	require.ErrorContains(t, err, "does not answer")
	require.Contains(t, string(c.rest()), "try again")
}

func TestStranger_TheOldestGoesForANewcomer(t *testing.T) {
	d := openDoor(t, Options{StrangerTimeout: time.Minute})
	var callers []*caller
	for range maxStrangers + 1 {
		c := d.call(t)
		c.say(c.appendHello(nil))
		c.hear(typeChallenge)
		callers = append(callers, c)
	}
	require.ErrorContains(t, <-d.refused, "others came")
	require.Contains(t, string(callers[0].rest()), "try again")
	friend := openRank(t, 2)
	require.NoError(t, friend.ep.Connect(context.Background(), 0, d.ep.Addr()))
}

// A descriptor that a stranger sends along with his first message is not taken.
func TestStranger_DescriptorsAreNotTaken(t *testing.T) {
	d := openDoor(t, Options{})
	c := d.call(t)
	before := descriptors(t)
	require.NoError(t, sys.SendDescriptors(c.conn, c.appendHello(nil), 0, 1, 2))
	c.hear(typeChallenge)
	require.LessOrEqual(t, descriptors(t), before+1, "the connection itself")
}

func TestConnect_OtherHostsAreRefusedByName(t *testing.T) {
	d := openDoor(t, Options{})
	mine, name, ok := split(d.ep.Addr())
	require.True(t, ok)
	other := "shm:" + strings.Repeat("0", 32) + ".1:" + name
	require.False(t, d.ep.(transport.Reacher).Reaches(other))
	require.True(t, d.ep.(transport.Reacher).Reaches("shm:"+mine+":elsewhere"))
	err := d.ep.Connect(context.Background(), 1, other)
	require.ErrorIs(t, err, transport.ErrRefused)
	require.ErrorContains(t, err, "rank 1 is on another host")
	for _, addr := range []string{"", "tcp:127.0.0.1:1", "shm:", "shm:x", "shm::y"} {
		require.False(t, d.ep.(transport.Reacher).Reaches(addr))
		require.ErrorContains(t, d.ep.Connect(context.Background(), 1, addr), "not an address of shared memory")
	}
	err = d.ep.Connect(context.Background(), 1, "shm:"+mine+":weft-nobody")
	require.ErrorIs(t, err, transport.ErrPeerLost)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// What is said at start-up, byte by byte.
func TestGolden_Startup(t *testing.T) {
	p := parties{job: jobHash("job"), initiator: 1, responder: 2}
	for i := range nonceSize {
		p.nonces[0][i], p.nonces[1][i] = byte(i), byte(0x80+i)
	}
	var secret [32]byte
	copy(secret[:], "a secret")
	o := &offer{arena: 1 << 27, block: 0x4010000, domain: 3, num: 4, recv: 5, reads: 6, asymmetric: true, probe: 7,
		queues: []offeredQueue{{0x4000000, 8}}}
	for name, x := range map[string]struct {
		got  []byte
		want string
	}{
		"Hello": {p.appendHello(nil), "776566742d73686d01013800" + hex.EncodeToString(p.job[:]) + "0100000002000000" +
			"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"},
		"Challenge": {p.appendChallenge(nil, &secret)[:prefixSize+nonceSize], "02014000" +
			"808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"},
		"Proof": {p.appendProof(nil, &secret)[:prefixSize], "03012000"},
		"Offer": {p.appendOffer(nil, &secret, roleOffering, o, []byte("hi"))[prefixSize+proofSize:], "0000000800000000" + "0000010400000000" +
			"03000000" + "04000000" + "05000000" + "0600" + "01" + "01" + "0700000000000000" + strings.Repeat("00", 32) +
			"0000000400000000" + "08000000" + "6869"},
		"Reject": {appendReject(nil, rejectAuth, "no"), "06010300026e6f"},
	} {
		require.Equal(t, x.want, hex.EncodeToString(x.got), name)
	}
}

// Nothing that either side says can be changed, or used in another place.
func TestProof_IsBoundToEverything(t *testing.T) {
	var secret [32]byte
	p := parties{job: jobHash("job"), initiator: 1, responder: 2}
	proof := p.proof(&secret, roleOffering, []byte("offer"))
	for name, change := range map[string]func(p *parties, s *[32]byte, r *role, b *[]byte){
		"secret":    func(_ *parties, s *[32]byte, _ *role, _ *[]byte) { s[31]++ },
		"job":       func(p *parties, _ *[32]byte, _ *role, _ *[]byte) { p.job[0]++ },
		"initiator": func(p *parties, _ *[32]byte, _ *role, _ *[]byte) { p.initiator++ },
		"responder": func(p *parties, _ *[32]byte, _ *role, _ *[]byte) { p.responder++ },
		"nonce 0":   func(p *parties, _ *[32]byte, _ *role, _ *[]byte) { p.nonces[0][1]++ },
		"nonce 1":   func(p *parties, _ *[32]byte, _ *role, _ *[]byte) { p.nonces[1][1]++ },
		"role":      func(_ *parties, _ *[32]byte, r *role, _ *[]byte) { *r = roleAccepting },
		"offer":     func(_ *parties, _ *[32]byte, _ *role, b *[]byte) { *b = []byte("0ffer") },
	} {
		q, s, r, b := p, secret, roleOffering, []byte("offer")
		require.NoError(t, q.check(proof, &s, r, b))
		change(&q, &s, &r, &b)
		require.ErrorIs(t, q.check(proof, &s, r, b), transport.ErrAuth, name)
	}
}

func FuzzParseOffer(f *testing.F) {
	f.Add((&caller{}).offer().append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, rest, err := parseOffer(b)
		if err != nil {
			return
		}
		if !o.holds(o.block) || !bytes.Equal(append(o.append(nil), rest...), b) {
			t.Fatalf("%x was read as %+v", b, o)
		}
	})
}

func FuzzParseHello(f *testing.F) {
	f.Add((&parties{initiator: 1}).appendHello(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseHello(b); err == nil && !bytes.Equal(p.appendHello(nil), b) {
			t.Fatalf("%x was read as %+v", b, p)
		}
	})
}

// Whatever a peer writes into our ring: it ends the connection at the worst, with an error that names the peer.
func FuzzRing(f *testing.F) {
	frame := func(h header, payload string) []byte {
		o := outRing{block: new(block)}
		o.begin(h)
		o.put([]byte(payload))
		return o.ring[:o.tail]
	}
	f.Add(frame(header{length: 3, op: frameSend, flags: flagLast}, "abc"), uint64(32))
	f.Add(frame(header{length: 9, op: frameTerminate, a: 2}, "no reason"), uint64(40))
	f.Add(frame(header{length: 9, op: frameSend, flags: flagStaged}, "\xff\xff\xff\xff\xff\xff\xff\xff"), uint64(32))
	f.Add(frame(header{length: 24, op: frameReadRequest}, strings.Repeat("x", 24)), uint64(48))
	f.Add(frame(header{op: frameClose}, ""), uint64(1<<40))
	f.Fuzz(func(t *testing.T, b []byte, tail uint64) {
		x, y := couple(t, Options{Arena: leastArena})
		dst := y.alloc(t, 64)
		if err := y.qp.PostRecv(&transport.RecvWR{Local: []transport.SGE{{MR: dst, Length: 64}}}); err != nil {
			t.Fatal(err)
		}
		ring := y.qp.in.block
		copy(ring.ring[:], b)
		sys.StoreRelease(&ring.tail, tail)
		for range 4 {
			y.cq.Poll(nil)
			x.cq.Poll(nil)
		}
		if err := y.qp.Err(); err != nil && !strings.Contains(err.Error(), "rank 0") {
			t.Fatal(fmt.Errorf("an error that names nobody: %w", err))
		}
	})
}
