package shm

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// door is rank 0 of 3, who hears of those that it turns away.
type door struct {
	*end
	ep      transport.Endpoint
	refused chan error
}

func (d *door) Refused(_ string, err error) { d.refused <- err }

func openDoor(t *testing.T, o Options) *door {
	t.Helper()
	return openEnd(t, o, transport.Identity{Job: "door", Rank: 0, Size: 3})
}

func openEnd(t *testing.T, o Options, id transport.Identity) *door {
	t.Helper()
	dev, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	d := &door{end: &end{dev: dev, made: make(chan transport.QP, 4*maxCallers)},
		refused: make(chan error, 4*maxCallers)}
	d.pd, err = dev.AllocPD()
	require.NoError(t, err)
	d.cq, err = dev.CreateCQ(64, 0)
	require.NoError(t, err)
	d.ep, err = dev.Listen(id, d)
	require.NoError(t, err)
	return d
}

// caller is somebody who speaks for himself.
type caller struct {
	parties
	t      *testing.T
	conn   *net.UnixConn
	socket string
}

func (d *door) call(t *testing.T) *caller {
	t.Helper()
	_, name, ok := split(d.ep.Addr())
	require.True(t, ok)
	conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: "@" + name, Net: network})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	c := &caller{t: t, conn: conn, socket: name, parties: parties{job: handshake.JobHash("door"), initiator: 1,
		responder: 0}}
	c.nonces[0][3] = 9
	return c
}

func (c *caller) say(b []byte) {
	_, err := c.conn.Write(b)
	require.NoError(c.t, err)
}

// give sends an Offer with descriptors.
func (c *caller) give(secret *[32]byte, o *connectInfo, fds ...int) {
	require.NoError(c.t, sys.SendDescriptors(c.conn, c.appendOffer(nil, secret, o, nil), fds...))
}

// hear reads a message.
func (c *caller) hear(want messageType) []byte {
	s := &conn{UnixConn: c.conn}
	body, fds, err := s.receive(want, 1)
	require.NoError(c.t, err)
	closeAll(fds)
	return body
}

// rest is what comes until the other side closes.
func (c *caller) rest() []byte {
	var all []byte
	for b := make([]byte, messageSize); ; {
		n, err := c.conn.Read(b)
		if all = append(all, b[:n]...); err != nil {
			require.NotErrorIs(c.t, err, os.ErrDeadlineExceeded)
			return all
		}
	}
}

// proved is a caller who is in.
func (c *caller) proved(secret *[32]byte) {
	c.say(c.appendHello(nil, secret, c.socket))
	_, _, err := c.takeAccept(c.hear(typeAccept), secret)
	require.NoError(c.t, err)
}

// Whoever is no rank of this job is turned away with the reason on both sides, keeps nothing open, and the
// next genuine peer finds an open door.
func TestUnauthenticated_IsTurnedAwayAndBothSidesKnowWhy(t *testing.T) {
	var secret [32]byte
	tests := []struct {
		name  string
		does  func(d *door, c *caller)
		cause error
		text  string
		heard string
	}{
		{"garbage", func(_ *door, c *caller) { c.say([]byte("GET / HTTP/1.0\r\n\r\n")) }, transport.ErrNotWeft, `begins with "GET / HTTP"`, ""},
		{"magic and garbage", func(_ *door, c *caller) {
			c.say(append([]byte(magic),
				bytes.Repeat([]byte{0xfe}, 90)...))
		}, transport.ErrVersion,
			"version 254", "this is version 8"},
		{"other version", func(_ *door, c *caller) {
			b := c.appendHello(nil, &secret, c.socket)
			b[len(magic)] = 9
			c.say(b)
		}, transport.ErrVersion, "version 9, here 8", "this is version 8"},
		{"other job", func(_ *door, c *caller) {
			c.job = handshake.JobHash("another")
			c.say(c.appendHello(nil, &secret, c.socket))
		}, transport.ErrRefused, "another job", "this is another job"},
		{"wants another rank", func(_ *door, c *caller) {
			c.responder = 2
			c.say(c.appendHello(nil, &secret, c.socket))
		}, transport.ErrRefused, "it is rank 1 and asks for rank 2", "this is rank 0 of 3"},
		{"rank outside", func(_ *door, c *caller) {
			c.initiator = 3
			c.say(c.appendHello(nil, &secret, c.socket))
		}, transport.ErrRefused, "it is rank 3 and asks for rank 0", "this is rank 0 of 3"},
		{"our own rank", func(_ *door, c *caller) {
			c.initiator = 0
			c.say(c.appendHello(nil, &secret, c.socket))
		}, transport.ErrRefused, "it is rank 0 and asks for rank 0", "this is rank 0 of 3"},
		{"wrong secret", func(_ *door, c *caller) { c.say(c.appendHello(nil, &[32]byte{7}, c.socket)) },
			transport.ErrAuth, "does not know the job's secret", "does not know the job's secret"},
		{"a Hello to another endpoint", func(_ *door, c *caller) {
			c.say(c.appendHello(nil, &secret,
				"weft-another"))
		},
			transport.ErrAuth, "does not know the job's secret", "does not know the job's secret"},
		{"our own Accept sent back", func(_ *door, c *caller) {
			c.say(c.appendHello(nil, &secret, c.socket))
			body := c.hear(typeAccept)
			c.say(append(appendPrefix(nil, typeOffer), body[nonceSize:]...))
		}, transport.ErrAuth, "does not know the job's secret", "does not know the job's secret"},
		{"an Offer that was changed", func(d *door, c *caller) {
			c.proved(&secret)
			b := c.appendOffer(nil, &secret, (&caller{}).offer(), nil)
			b[prefixSize+proofSize] ^= 1
			require.NoError(c.t, sys.SendDescriptors(c.conn, b, 0))
		}, transport.ErrAuth, "does not know the job's secret", "does not know the job's secret"},
		{"an Offer that makes no sense", func(d *door, c *caller) {
			c.proved(&secret)
			o := c.offer()
			o.block = o.arena
			c.give(&secret, o, 0)
		}, transport.ErrProtocol, "parameters with a block at", "parameters with a block at"},
		{"more memory than there can be", func(d *door, c *caller) {
			c.proved(&secret)
			o := c.offer()
			o.arena = maxArena + pageSize
			fd, err := sys.SharedMemory(int64(o.arena))
			require.NoError(c.t, err)
			defer sys.CloseFD(fd)
			c.give(&secret, o, fd)
		}, transport.ErrProtocol, "in an arena of 274877972480 bytes", "in an arena of 274877972480 bytes"},
		{"no descriptors", func(d *door, c *caller) {
			c.proved(&secret)
			c.say(c.appendOffer(nil, &secret, c.offer(), nil))
		}, transport.ErrProtocol, "with 0 descriptors", "with 0 descriptors"},
		{"descriptors of other things", func(d *door, c *caller) {
			c.proved(&secret)
			c.give(&secret, c.offer(), 0)
		}, transport.ErrProtocol, "not shared memory", "not shared memory"},
		{"memory of another size", func(d *door, c *caller) {
			c.proved(&secret)
			o := c.offer()
			o.arena = uint64(minArena) + 2*pageSize
			c.give(&secret, o, d.dev.arena.fd)
		}, transport.ErrProtocol, "said to be of", "said to be of"},
		{"gone before its Offer", func(d *door, c *caller) {
			c.proved(&secret)
			require.NoError(c.t, c.conn.CloseWrite())
		}, transport.ErrPeerLost, "closed the connection during the handshake", ""},
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
func (c *caller) offer() *connectInfo {
	return &connectInfo{arena: uint64(minArena), block: uint64(blocksAt), domain: 1, recv: 1,
		queues: []queueInfo{{doorbell: uint64(blocksAt)}}}
}

func descriptors(t *testing.T) int {
	list, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	return len(list)
}

// openRank is another rank of the door's job.
func openRank(t *testing.T, number uint32) *door {
	t.Helper()
	return openEnd(t, Options{}, transport.Identity{Job: "door", Rank: number, Size: 3})
}

func TestUnauthenticated_WhoSaysNothingIsCut(t *testing.T) {
	d := openDoor(t, Options{AuthTimeout: 20 * time.Millisecond})
	c := d.call(t)
	err := <-d.refused
	require.ErrorIs(t, err, transport.ErrPeerLost)
	require.ErrorContains(t, err, "does not answer")
	require.Contains(t, string(c.rest()), "try again")
}

// Callers who hold on to their places keep no rank out for longer than the time that they have, and nobody is
// cut off to make room.
func TestUnauthenticated_WhoHoldsHisPlaceKeepsNobodyOut(t *testing.T) {
	d := openDoor(t, Options{AuthTimeout: 200 * time.Millisecond})
	for range 2 * maxCallers {
		d.call(t)
	}
	friend := openRank(t, 2)
	require.NoError(t, friend.ep.Connect(context.Background(), 0, d.ep.Addr()))
	require.ErrorContains(t, <-d.refused, "does not answer", "the places were taken")
}

// A connection that ends before the peer has answered says nothing of the peer: it is made again.
func TestConnect_ResetBeforeTheAnswerIsTriedAgain(t *testing.T) {
	friend, d := openRank(t, 1), openDoor(t, Options{})
	addr := d.ep.Addr()
	_, name, _ := split(addr)
	d.ep.(*endpoint).listener.Close() // somebody else is at its address, and answers nobody
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: "@" + name, Net: network})
	require.NoError(t, err)
	resets := make(chan int, 1)
	go func() {
		n := 0
		for ; n < 2; n++ {
			c, err := l.AcceptUnix()
			if err != nil {
				break
			}
			c.Close()
		}
		l.Close()
		resets <- n
	}()
	err = friend.ep.Connect(context.Background(), 0, addr)
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "the third attempt finds nobody")
	require.Equal(t, 2, <-resets)
}

// More ranks than there are places connect to one at once, and nobody is turned away, not even for a while.
func TestConnect_MoreAtOnceThanThereArePlaces(t *testing.T) {
	const ranks = 2*maxCallers + 1
	var ends [ranks]*door
	for i := range ends {
		ends[i] = openEnd(t, Options{Arena: minArena}, transport.Identity{Job: "many", Rank: uint32(i),
			Size: ranks})
	}
	errs := make(chan error)
	for _, d := range ends[1:] {
		go func() { errs <- d.ep.Connect(context.Background(), 0, ends[0].ep.Addr()) }()
	}
	for range ends[1:] {
		require.NoError(t, <-errs)
	}
	for _, d := range ends {
		require.Empty(t, d.refused)
	}
}

// Processes of another user can neither take a place nor fill the log.
func TestUnauthenticated_OfAnotherUserTakesNoPlace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	d := openDoor(t, Options{AuthTimeout: time.Hour})
	_, name, _ := split(d.ep.Addr())
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command("/proc/self/fd/3")
	program, err := os.Open(self) // the folder may be closed to the other user
	require.NoError(t, err)
	defer program.Close()
	cmd.ExtraFiles = []*os.File{program}
	cmd.Env = append(os.Environ(), childKind+"="+kindFlood, childFlood+"="+name)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput() // all its connections were made, and none was kept
	require.NoError(t, err, "%s", out)
	friend := openRank(t, 1)
	require.NoError(t, friend.ep.Connect(context.Background(), 0, d.ep.Addr()))
	require.Empty(t, d.ep.(*endpoint).callers)
	require.NotEmpty(t, d.refused)
	require.Less(t, len(d.refused), floodConnections/4, "one line for each")
	require.ErrorContains(t, <-d.refused, "the peer is a process of user 65534")
}

// floodConnections is how many connections the other user makes.
const floodConnections = 4 * maxCallers

// flood makes many connections to a socket, says nothing, and waits until all are closed.
func flood(name string) error {
	var list []net.Conn
	for range floodConnections {
		c, err := net.Dial(network, "@"+name)
		if err != nil {
			return err
		}
		list = append(list, c)
	}
	for _, c := range list {
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.New("a connection is kept open")
		}
	}
	return nil
}

// A descriptor that an unauthenticated caller sends along with his first message is not taken.
func TestUnauthenticated_DescriptorsAreNotTaken(t *testing.T) {
	d := openDoor(t, Options{})
	var secret [32]byte
	c := d.call(t)
	before := descriptors(t)
	require.NoError(t, sys.SendDescriptors(c.conn, c.appendHello(nil, &secret, c.socket), 0, 1, 2))
	c.hear(typeAccept)
	require.LessOrEqual(t, descriptors(t), before+1, "the connection itself")
}

func TestConnect_OtherHostsAreRefusedByName(t *testing.T) {
	d := openDoor(t, Options{})
	mine, name, ok := split(d.ep.Addr())
	require.True(t, ok)
	other := "shm:" + strings.Repeat("0", 32) + ".1:" + name
	require.False(t, d.ep.Reaches(other))
	require.True(t, d.ep.Reaches("shm:"+mine+":elsewhere"))
	err := d.ep.Connect(context.Background(), 1, other)
	require.ErrorIs(t, err, transport.ErrRefused)
	require.ErrorContains(t, err, "rank 1 is on another host")
	for _, addr := range []string{"", "tcp:127.0.0.1:1", "shm:", "shm:x", "shm::y"} {
		require.False(t, d.ep.Reaches(addr))
		require.ErrorContains(t, d.ep.Connect(context.Background(), 1, addr),
			"not an address of shared memory")
	}
	err = d.ep.Connect(context.Background(), 1, "shm:"+mine+":weft-nobody")
	require.ErrorIs(t, err, transport.ErrPeerLost)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// What is said at handshake, byte by byte.
func TestGolden_Handshake(t *testing.T) {
	p := parties{job: handshake.JobHash("job"), initiator: 1, responder: 2}
	for i := range nonceSize {
		p.nonces[0][i], p.nonces[1][i] = byte(i), byte(0x80+i)
	}
	var secret [32]byte
	copy(secret[:], "a secret")
	o := &connectInfo{arena: 1 << 27, block: 0x4010000, domain: 3, recv: 5, reads: 6,
		asymmetric: true, probe: 7,
		queues: []queueInfo{{0x4000000, 8, wakeName{[16]byte{0xaa}, [16]byte{0xbb}}}}}
	const prefix = "776566742d73686d08"
	offer := "0000000800000000" + "0000010400000000" + "03000000" + "05000000" + "0600" +
		"01" + "01" +
		"0700000000000000" + strings.Repeat("00", 32) +
		"0000000400000000" + "08000000" + "aa" + strings.Repeat("00", 15) + "bb" +
		strings.Repeat("00", 15) + "6869"
	accept := p.appendAccept(nil, &secret, o, []byte("hi"))
	for name, x := range map[string]struct {
		got  []byte
		want string
	}{
		"Hello": {p.appendHello(nil, &secret, "weft-x")[:prefixSize+helloBody-proofSize], prefix + "01" +
			hex.EncodeToString(p.job[:]) +
			"0100000002000000" + "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"},
		"Accept's nonce": {accept[:prefixSize+nonceSize], prefix + "02" +
			"808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"},
		"Accept":       {accept[prefixSize+nonceSize+proofSize:], offer},
		"Offer's type": {p.appendOffer(nil, &secret, o, []byte("hi"))[:prefixSize], prefix + "03"},
		"Offer":        {p.appendOffer(nil, &secret, o, []byte("hi"))[prefixSize+proofSize:], offer},
		"Ready":        {appendPrefix(nil, typeReady), prefix + "04"},
		"Reject":       {appendReject(nil, handshake.RejectAuth, "no"), prefix + "05" + "02" + "6e6f"},
	} {
		require.Equal(t, x.want, hex.EncodeToString(x.got), name)
	}
}

// Nothing that either side says can be changed, or used in another place.
func TestProof_IsBoundToEverything(t *testing.T) {
	var secret [32]byte
	p := parties{job: handshake.JobHash("job"), initiator: 1, responder: 2}
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
		o, rest, err := parseConnectInfo(b)
		if err != nil {
			return
		}
		if !o.holds(o.block) || !bytes.Equal(append(o.append(nil), rest...), b) {
			t.Fatalf("%x was read as %+v", b, o)
		}
	})
}

func FuzzParseMessage(f *testing.F) {
	var secret [32]byte
	f.Add((&parties{initiator: 1}).appendHello(nil, &secret, "weft-x"))
	f.Add(appendReject(nil, handshake.RejectOther, strings.Repeat("x", helloBody-1))) // as long as a Hello
	f.Fuzz(func(t *testing.T, b []byte) {
		read, body, err := parseMessage(b, typeHello)
		if err != nil || read != typeHello { // a Reject is read in its place
			return
		}
		p, proof := parseHello(body)
		if got := p.appendHello(nil, &secret, ""); !bytes.Equal(append(got[:len(got)-proofSize], proof...),
			b) {
			t.Fatalf("%x was read as %+v", b, p)
		}
	})
}

// Whatever a peer writes into our ring: it ends the connection at the worst, with an error that names the
// peer.
func FuzzRing(f *testing.F) {
	frame := func(h header, payload string) []byte {
		o := outRing{controlBlock: new(controlBlock)}
		o.begin(h)
		o.put([]byte(payload))
		return o.ring[:o.tail]
	}
	f.Add(frame(header{length: 3, op: frameSend, flags: flagLast}, "abc"), uint64(32))
	f.Add(frame(header{length: 9, op: frameTerminate, a: 2}, "no reason"), uint64(40))
	f.Add(frame(header{length: 9, op: frameSend, flags: flagBounced}, "\xff\xff\xff\xff\xff\xff\xff\xff"),
		uint64(32))
	f.Add(frame(header{length: 24, op: frameReadRequest}, strings.Repeat("x", 24)), uint64(48))
	f.Add(frame(header{op: frameClose}, ""), uint64(1<<40))
	f.Fuzz(func(t *testing.T, b []byte, tail uint64) {
		x, y := couple(t, Options{Arena: minArena})
		dst := y.alloc(t, 64)
		if err := y.qp.PostRecv(&transport.RecvWR{Local: []transport.SGE{{MR: dst,
			Length: 64}}}); err != nil {
			t.Fatal(err)
		}
		ring := y.qp.in.controlBlock
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
