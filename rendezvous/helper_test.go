package rendezvous_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// pattern is n bytes of message seq from a rank.
func pattern(rank, seq, n int) []byte {
	b := make([]byte, n)
	h := uint64(rank+1)*0x9e3779b97f4a7c15 ^ uint64(seq+1)*0xbf58476d1ce4e5b9
	for i := range b {
		b[i] = byte((h ^ uint64(i+1)*0x94d049bb133111eb) >> 32)
	}
	return b
}

// node is one rank: it announces, fetches what is announced to it in the order of arrival, and counts how
// often each token comes back.
type node struct {
	rank int
	ch   *channel.Channel
	snd  *rendezvous.Sender
	rcv  *rendezvous.Receiver
	poll func([]transport.WC) int

	size    func(rts rendezvous.RTS) int // of the buffer for a message
	cut     func(buf []byte) [][]byte    // of it, into those that Start is given; nil for one
	rts     []rendezvous.RTS             // that came
	buffers [][]byte                     // for each of them; its index is the token
	// times that a token of a buffer came back, or that there was nothing to read
	fetched  []int
	sources  [][]byte                      // announced; the index is the token
	asked    []bool                        // to be withdrawn
	ids      []uint64                      // of their announcements
	finished []int                         // times that a token of a source came back
	back     int                           // of these, withdrawn
	keep     func(rts rendezvous.RTS) bool // leaves a message unmatched; nil for none
	kept     []rendezvous.RTS              // those
	late     int                           // WITHDRAWs of messages that were matched
	recvs    int                           // posted for FINs and ends of grants
	used     int                           // of these
	maxOpen  int                           // announcements open at once
	granted  int                           // CTSs that came
	got      int                           // messages that were copied at once
}

// ways runs a test with messages that are read, and with messages that are written.
func ways(t *testing.T, test func(t *testing.T, grant bool)) {
	t.Run("Read", func(t *testing.T) { test(t, false) })
	t.Run("Granted", func(t *testing.T) { test(t, true) })
}

// announce announces bytes if there is room.
func (n *node) announce(b []byte, more bool) (bool, error) {
	env := eager.Envelope{Context: 1, Tag: int32(len(n.sources))}
	id, ok, err := n.snd.TrySendRTS(n.ch, env, b, uint64(len(n.sources)), more)
	if ok {
		n.ids, n.asked = append(n.ids, id), append(n.asked, false)
		n.sources, n.finished = append(n.sources, b), append(n.finished, 0)
		n.maxOpen = max(n.maxOpen, n.snd.Outstanding(n.ch))
	}
	return ok, err
}

// progress does what there is room for now.
func (n *node) progress() error { return errors.Join(n.rcv.Progress(n.ch), n.snd.Progress(n.ch)) }

// clear takes a CTS.
func (n *node) clear(body []byte) error {
	cts, err := rendezvous.ParseCTS(body)
	if err != nil {
		return err
	}
	n.granted++
	n.ch.Release()
	return n.snd.OnCTS(n.ch, cts)
}

// acknowledged takes an ATS.
func (n *node) acknowledged(body []byte) error {
	ats, err := rendezvous.ParseATS(body)
	if err != nil {
		return err
	}
	n.ch.Release()
	token, err := n.snd.OnATS(n.ch, ats)
	if err != nil {
		return err
	}
	n.finished[token]++
	if ats.Withdrawn {
		n.back++
	}
	return nil
}

// withdrawn takes a WITHDRAW: a message that is kept is let go of.
func (n *node) withdrawn(body []byte) error {
	w, err := rendezvous.ParseWithdraw(body)
	if err != nil {
		return err
	}
	n.ch.Release()
	i := slices.IndexFunc(n.kept, func(r rendezvous.RTS) bool { return r.ID == w.ID })
	if i < 0 {
		n.late++
		return nil
	}
	source := n.kept[i].Source
	n.kept = slices.Delete(n.kept, i, i+1)
	return n.rcv.Discard(n.ch, []rendezvous.Source{source})
}

// each gives at most max messages of the channel to take, which releases them, but takes the CTSs itself.
func (n *node) each(max int, take func(kind channel.Kind, body []byte) error) error {
	for range max {
		kind, body, ok, err := n.ch.Next()
		if err != nil || !ok {
			return err
		}
		switch kind {
		case channel.CTS:
			err = n.clear(body)
		case channel.ATS:
			err = n.acknowledged(body)
		case channel.Withdraw:
			err = n.withdrawn(body)
		default:
			err = take(kind, body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// receive takes at most max messages out of the ring and begins to fetch them.
func (n *node) receive(max int) error { return n.each(max, n.fetch) }

func (n *node) fetch(kind channel.Kind, body []byte) error {
	if kind != channel.RTS {
		return fmt.Errorf("a message of %v", kind)
	}
	rts, err := rendezvous.ParseRTS(body)
	if err != nil {
		return err
	}
	n.ch.Release()
	if n.keep != nil && n.keep(rts) {
		n.kept = append(n.kept, rts)
		return nil
	}
	if rts.Tag != int32(len(n.rts)) {
		return fmt.Errorf("message %d came as number %d", rts.Tag, len(n.rts))
	}
	return n.match(rts)
}

// match begins to fetch a message.
func (n *node) match(rts rendezvous.RTS) error {
	buf := make([]byte, n.size(rts))
	token := len(n.buffers)
	n.rts, n.buffers, n.fetched = append(n.rts, rts), append(n.buffers, buf), append(n.fetched, 0)
	done, err := n.rcv.TryCopy(n.ch, rts.Source, buf)
	if done {
		n.got++
	} else {
		done, err = n.rcv.Start(n.ch, rts.Source, n.bufs(buf), uint64(token))
	}
	if done {
		n.fetched[token]++
	}
	return err
}

func (n *node) bufs(buf []byte) [][]byte {
	if n.cut == nil {
		return [][]byte{buf}
	}
	return n.cut(buf)
}

// cutter cuts buffers anywhere, into empty ones, too.
func cutter(rng *rand.Rand) func(buf []byte) [][]byte {
	return func(buf []byte) (bufs [][]byte) {
		for rng.IntN(4) > 0 {
			n := rng.IntN(len(buf) + 1)
			bufs, buf = append(bufs, buf[:n]), buf[n:]
		}
		return append(bufs, buf)
	}
}

// complete takes at most max completions.
func (n *node) complete(max int) error {
	wcs := make([]transport.WC, max)
	for _, wc := range wcs[:n.poll(wcs)] {
		switch {
		case wc.Err != nil:
			return wc.Err
		case wc.Op == transport.OpRecv && rendezvous.IsGrantEnd(wc.Imm):
			n.used++
			token, done, err := n.rcv.OnGrantEnd(n.ch, wc.Imm)
			if done {
				n.fetched[token]++
			}
			if err != nil {
				return err
			}
		case wc.Op == transport.OpRecv:
			n.used++
			token, err := n.snd.OnFIN(n.ch, wc.Imm)
			if err != nil {
				return err
			}
			n.finished[token]++
		case owns(wc.ID) && wc.Op != transport.OpRead:
			token, done, err := n.snd.OnCompletion(&wc)
			if done {
				n.finished[token]++
			}
			if err != nil {
				return err
			}
		case owns(wc.ID):
			token, done, err := n.rcv.OnCompletion(&wc)
			if done {
				n.fetched[token]++
			}
			if err != nil {
				return err
			}
		default:
			return fmt.Errorf("a completion of nobody: %+v", wc)
		}
	}
	return nil
}

// work does all that can be done at once.
func (n *node) work(t testing.TB) {
	t.Helper()
	require.NoError(t, n.receive(1<<20))
	require.NoError(t, n.complete(1<<10))
	require.NoError(t, n.progress())
	_, err := n.ch.Progress()
	require.NoError(t, err)
}

// check tells what is wrong with what has come from a peer that sent all and got all its buffers back.
func (n *node) check(peer *node) error {
	if len(n.rts)+len(n.kept)+peer.back != len(peer.sources) {
		return fmt.Errorf("%d messages came of %d", len(n.rts), len(peer.sources))
	}
	for i, buf := range n.buffers {
		source := peer.sources[n.rts[i].Tag]
		want := source[:min(len(buf), len(source))]
		rest := buf[len(want):]
		switch {
		case n.fetched[i] != 1:
			return fmt.Errorf("the token of message %d came back %d times", i, n.fetched[i])
		case peer.finished[i] != 1:
			return fmt.Errorf("the token of announcement %d came back %d times", i, peer.finished[i])
		case !bytes.Equal(buf[:len(want)], want):
			return fmt.Errorf("message %d has wrong bytes", i)
		case !bytes.Equal(rest, make([]byte, len(rest))):
			return fmt.Errorf("after message %d something was written", i)
		}
	}
	if err := n.checkRecvs(); err != nil {
		return err
	}
	if open := peer.snd.Outstanding(peer.ch); open != len(n.kept) {
		return fmt.Errorf("%d announcements are open", open)
	}
	return nil
}

// checkRecvs reports whether too many Recvs are left when all is over: one of the sender and one of the
// receiver are spare, and those of announcements that needed no FIN.
func (n *node) checkRecvs() error {
	maxLeft := 1
	if n.granted > 0 || n.back > 0 {
		maxLeft = n.maxOpen + 1
	}
	if len(n.buffers)+len(n.fetched) > 0 {
		maxLeft++
	}
	if left := n.recvs - n.used; left < 0 || left > maxLeft {
		return fmt.Errorf("%d Recvs are left of %d, after %d announcements at once", left, n.recvs, n.maxOpen)
	}
	return nil
}

// link is two nodes over a Pair.
type link struct {
	*channeltest.Pair
	channeltest.Transcript
	a, b *node
	wcs  [8]transport.WC // for readAndFinished
}

// counting is a queue pair that counts what it could not take, and the Recvs that were posted.
type counting struct {
	transport.QP
	refused map[string]int
	recvs   *int
}

// nameOf tells what a request is for.
func nameOf(wr *transport.SendWR) string {
	switch {
	case wr.Op == transport.OpRead:
		return "READ"
	case wr.Op == transport.OpWriteImm && len(wr.Local) == 0:
		return "FIN"
	case wr.Op == transport.OpWriteImm:
		return "END"
	case owns(wr.ID):
		return "WRITE"
	}
	return channel.Kind(wr.Local[0].MR.Bytes()[wr.Local[0].Offset+12]).String()
}

func (q counting) PostRecv(wr *transport.RecvWR) error {
	*q.recvs++
	return q.QP.PostRecv(wr)
}

func (q counting) PostSend(wr *transport.SendWR) error {
	err := q.QP.PostSend(wr)
	if errors.Is(err, transport.ErrQueueFull) {
		q.refused[nameOf(wr)]++
	}
	return err
}

func open(t testing.TB, conf rendezvous.ReceiverConfig) *link { return openPhases(t, nil, conf) }

// openPhases has the channel's phases be others than the usual.
func openPhases(t testing.TB, phases []int, conf rendezvous.ReceiverConfig) *link {
	return openCounting(t, phases, conf, map[string]int{})
}

// openCounting has the requests counted for which the send queue was full.
func openCounting(t testing.TB, phases []int, conf rendezvous.ReceiverConfig, refused map[string]int) *link {
	l := &link{Pair: channeltest.NewPair()}
	l.a, l.b = newNode(0, l.A.PD(), conf), newNode(1, l.B.PD(), conf)
	l.a.poll, l.b.poll = l.A.Poll, l.B.Poll
	l.connect(t, channel.Config{Phases: phases}, refused)
	return l
}

// connect gives the two nodes a channel.
func (l *link) connect(t testing.TB, conf channel.Config, refused map[string]int) {
	var err error
	l.a.ch, err = channel.New(l.A.PD(), conf)
	require.NoError(t, err)
	l.b.ch, err = channel.New(l.B.PD(), conf)
	require.NoError(t, err)
	require.NoError(t, l.a.ch.Open(counting{l.A, refused, &l.a.recvs}, l.b.ch.Descriptor()))
	require.NoError(t, l.b.ch.Open(counting{l.B, refused, &l.b.recvs}, l.a.ch.Descriptor()))
}

// beside makes a second channel between the two ranks, with the tables of the first.
func (l *link) beside(t testing.TB) *link {
	second := &link{Pair: l.Pair}
	a, b := *l.a, *l.b
	second.a, second.b = &a, &b
	second.connect(t, channel.Config{}, map[string]int{})
	return second
}

func newNode(rank int, pd transport.PD, conf rendezvous.ReceiverConfig) *node {
	return &node{
		rank: rank, snd: rendezvous.NewSender(pd, rendezvous.SenderConfig{Piece: conf.Piece,
			Depth: conf.Depth}), rcv: rendezvous.NewReceiver(pd, conf),
		size: func(rts rendezvous.RTS) int { return int(rts.Length) },
	}
}

// record starts the transcript.
func (l *link) record() { l.Record(l.Pair, l.a.ch.Descriptor(), l.b.ch.Descriptor()) }

// settle drives until nothing more happens, and checks that all has come. With say, passes are told apart in
// the transcript.
func (l *link) settle(t testing.TB, say bool) {
	t.Helper()
	for pass := 1; ; pass++ {
		before := l.Len()
		if say {
			l.Say("pass %d", pass)
		}
		mark := l.Len()
		require.NoError(t, l.Drive())
		l.a.work(t)
		l.b.work(t)
		if l.Len() == mark && l.a.check(l.b) == nil && l.b.check(l.a) == nil {
			if say {
				text := l.String()[:before]
				l.Reset()
				l.WriteString(text)
			}
			return
		}
		if pass == 10_000 {
			t.Fatalf("no end: %v, %v", l.a.check(l.b), l.b.check(l.a))
		}
	}
}

// arrive carries everything out and gives the one message that is then there.
func (l *link) arrive(t testing.TB, c *channel.Channel) []byte {
	t.Helper()
	require.NoError(t, l.Drive())
	_, body, ok, err := c.Next()
	require.NoError(t, err)
	require.True(t, ok)
	body = bytes.Clone(body)
	c.Release()
	return body
}

// credit has an end tell the other what it has taken.
func (l *link) credit(t testing.TB, from, to *channel.Channel) {
	t.Helper()
	_, err := from.Progress()
	require.NoError(t, err)
	require.NoError(t, l.Drive())
	_, _, _, err = to.Next()
	require.NoError(t, err)
}

// must is require.NoError where nothing may be allocated.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// readAndFinished carries out the Reads with which B fetches under one token what A has announced under
// another, and the FIN. It allocates nothing.
func (l *link) readAndFinished(t testing.TB, fetched, announced uint64) {
	t.Helper()
	wcs := l.wcs[:]
	for done := false; !done; {
		must(t, l.Drive())
		for _, wc := range wcs[:l.B.Poll(wcs)] {
			token, end, err := l.b.rcv.OnCompletion(&wc)
			must(t, err)
			if done = done || end; end && token != fetched {
				t.Fatal(token)
			}
		}
	}
	must(t, l.Drive())
	if n := l.A.Poll(wcs); n != 1 {
		t.Fatal(n)
	}
	token, err := l.a.snd.OnFIN(l.a.ch, wcs[0].Imm)
	if token != announced || err != nil {
		t.Fatal(token, err)
	}
	_, err = l.b.ch.Progress()
	must(t, err)
	must(t, l.Drive())
	_, _, _, err = l.a.ch.Next()
	must(t, err)
}

// close ends the link: nothing may be left.
func (l *link) close(t testing.TB) {
	t.Helper()
	require.Equal(t, 2, l.A.Regions(), "beside the rings")
	require.Equal(t, 2, l.B.Regions(), "beside the rings")
	require.NoError(t, l.a.ch.Close())
	require.NoError(t, l.b.ch.Close())
	require.Zero(t, l.A.Regions()+l.B.Regions())
}

func sendFlags(more bool) channel.SendFlags {
	if more {
		return channel.FlagMore
	}
	return 0
}

// owns reports whether a work request is of the rendezvous protocol.
func owns(id uint64) bool { return id>>56 == rendezvous.ReadOwner || id>>56 == rendezvous.WriteOwner }
