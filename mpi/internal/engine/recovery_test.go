package engine

import (
	"encoding/binary"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/agree"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/transport"
)

// The communicators of these tests.
const (
	worldOfTest   = 0
	unknownOfTest = 1 << 12 // and those after it
)

// says has a rank send control messages that its engine would not send.
func says(e *Engine, to int, list ...control) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range list {
		e.Recovery.sendControl(e.peerLocked(to), m)
	}
}

func agreeMessage(communicator uint32, m agree.Message) control {
	return control{channel.Agree, m.Append(binary.LittleEndian.AppendUint32(nil, communicator))}
}

// until has ranks make progress until a condition holds, which is looked at under the first one's lock.
func until(t *testing.T, holds func() bool, ranks ...*Engine) {
	t.Helper()
	late := time.Now().Add(time.Minute)
	for {
		for _, e := range ranks {
			e.mu.Lock()
			e.progress.poll()
			e.mu.Unlock()
		}
		ranks[0].mu.Lock()
		done := holds()
		ranks[0].mu.Unlock()
		if done {
			return
		}
		require.True(t, time.Now().Before(late), "it does not come to that")
	}
}

func fourRanks(t *testing.T, config Config) []*Engine {
	devices := make([]transport.Device, 4)
	for i := range devices {
		d, err := plainTCP()
		require.NoError(t, err)
		devices[i] = d
	}
	w := worldOf(t, devices, config)
	t.Cleanup(func() {
		for _, e := range w {
			e.hub.Fail(ErrAborted)
		}
		for _, e := range w {
			require.NoError(t, e.hub.Destroy(ErrFinalized))
		}
	})
	return w
}

// Where the launcher tells of failures, nobody is believed that others have failed before it has done so: by
// the ballot of a message, or by the set of a value. The agreement waits for that.
func TestAgreement_NobodyIsBelievedThatOthersHaveFailed(t *testing.T) {
	w := fourRanks(t, Config{LauncherReportsFailures: true})
	for _, e := range w {
		e.Recovery.OpenCommunicator(worldOfTest, nil)
	}
	value := agree.Neutral
	value.Add(0)
	value.Add(2)
	for to := range 3 {
		says(w[3], to, agreeMessage(worldOfTest, agree.Message{Kind: agree.Up, Ballot: 3, Value: agree.Neutral}),
			agreeMessage(worldOfTest, agree.Message{Kind: agree.Newer, Ballot: uint32(min(to+1, 2))}),
			agreeMessage(worldOfTest, agree.Message{Kind: agree.Commit, Value: value}))
		until(t, func() bool { return w[to].peerLocked(3).earlyMessages == 3 }, w[to], w[3])
	}
	agreed := make(chan agree.Value)
	for _, e := range w[:3] {
		go func() {
			v, err := e.Recovery.Agree(worldOfTest, agree.Neutral, nil)
			if err != nil {
				t.Errorf("rank %d: %v", e.Rank(), err)
			}
			agreed <- v
		}()
	}
	for _, e := range w[:3] {
		e.hub.PeerFailed(3, transport.ErrPeerLost)
	}
	for range 3 {
		require.Equal(t, agree.Neutral, <-agreed)
	}
	for _, e := range w[:3] {
		require.Equal(t, []int{3}, e.Recovery.Failed())
		require.Zero(t, peerOf(e, 3).earlyMessages)
	}
}

// What a rank says of failures is taken up when they are told of.
func TestAgreement_GoesOnWhenFailuresAreTold(t *testing.T) {
	w := fourRanks(t, Config{LauncherReportsFailures: true})
	for _, e := range w {
		e.Recovery.OpenCommunicator(worldOfTest, nil)
	}
	w[1].hub.PeerFailed(0, transport.ErrPeerLost)
	agreed := make(chan agree.Value)
	for _, e := range w[1:] {
		go func() {
			v, err := e.Recovery.Agree(worldOfTest, agree.Neutral, nil)
			if err != nil {
				t.Errorf("rank %d: %v", e.Rank(), err)
			}
			agreed <- v
		}()
	}
	until(t, func() bool { return w[3].peerLocked(1).earlyMessages > 0 }, w[3])
	for _, e := range w[2:] {
		e.hub.PeerFailed(0, transport.ErrPeerLost)
	}
	for range 3 {
		require.Equal(t, agree.Neutral, <-agreed)
	}
}

// A rank that has lost another one by itself agrees without that only when it is told of the failure: it may
// be the other way round.
func TestAgreement_WaitsForTheWordOnARankThatIsLost(t *testing.T) {
	w := fourRanks(t, Config{LauncherReportsFailures: true})
	for _, e := range w {
		e.Recovery.OpenCommunicator(worldOfTest, nil)
	}
	w[0].mu.Lock()
	w[0].failures.failPeer(w[0].peerLocked(1), transport.ErrPeerLost)
	require.Empty(t, w[0].Recovery.agreementsOf(worldOfTest).table.Failed())
	w[0].mu.Unlock()
	agreed := make(chan agree.Value)
	for _, e := range []*Engine{w[0], w[2], w[3]} {
		go func() {
			v, err := e.Recovery.Agree(worldOfTest, agree.Neutral, nil)
			if err != nil {
				t.Errorf("rank %d: %v", e.Rank(), err)
			}
			agreed <- v
		}()
	}
	for _, e := range []*Engine{w[0], w[2], w[3]} {
		e.hub.PeerFailed(1, transport.ErrPeerLost)
	}
	for range 3 {
		require.Equal(t, agree.Neutral, <-agreed)
	}
}

// A rank that says more and more of communicators that are not there is given up, and nobody else: neither
// one that says a little nor one that could be told of it.
func TestRecovery_MessagesOfUnknownCommunicatorsAreBounded(t *testing.T) {
	for name, one := range map[string]func(i int) control{
		"AGREE": func(i int) control {
			return agreeMessage(uint32(unknownOfTest+i/3*contextid.Kinds), agree.Message{Kind: agree.Ack})
		},
		"REVOKE": func(i int) control {
			return revokeMessage(uint32(unknownOfTest+i*contextid.Kinds), revokeByChoice)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := fourRanks(t, Config{})
			sent := 0
			for sent < maxEarlyRevokes+2000 {
				for range 1000 {
					says(w[3], 0, one(sent))
					sent++
				}
				until(t, func() bool { return len(w[3].peerLocked(0).controls) == 0 }, w[3], w[0])
			}
			until(t, func() bool { return w[0].peerLocked(3).state == peerFailed }, w[0])
			require.ErrorIs(t, peerOf(w[0], 3).cause, transport.ErrProtocol)
			says(w[2], 0, agreeMessage(unknownOfTest, agree.Message{Kind: agree.Up, Value: agree.Neutral}))
			until(t, func() bool { return w[0].peerLocked(2).earlyMessages == 1 }, w[0], w[2])
			require.Empty(t, peerOf(w[0], 1).controls)
			require.Equal(t, peerIdle, peerOf(w[0], 1).state, "rank 1 is told nothing")
		})
	}
}

// A rank that makes another one say more and more, and takes nothing, is given up.
func TestRecovery_WhatWaitsForAPeerIsBounded(t *testing.T) {
	w := fourRanks(t, Config{})
	list := make([]control, maxControls+1000)
	for i := range list {
		list[i] = agreeMessage(unknownOfTest, agree.Message{Kind: agree.Ack})
	}
	says(w[0], 1, list...)
	w[0].mu.Lock()
	defer w[0].mu.Unlock()
	require.ErrorIs(t, w[0].peerLocked(1).cause, errTakesNothing)
	require.Empty(t, w[0].peerLocked(1).controls)
}

// Only the REVOKEs that are stored count: not those of communicators that this rank has opened since, or whose
// contexts it uses for others.
func TestRecovery_REVOKEsThatWereTakenUpDoNotCount(t *testing.T) {
	w := fourRanks(t, Config{})
	e, p := w[0], peerOf(w[0], 3)
	const opened, reused = unknownOfTest, unknownOfTest + contextid.Kinds
	for i, communicator := range []uint32{opened, reused} {
		says(w[3], 0, revokeMessage(communicator, revokeByChoice))
		until(t, func() bool { return p.earlyRevokes == i+1 }, e, w[3])
	}
	require.True(t, e.Recovery.OpenCommunicator(opened, []int32{0, 3}))
	require.Equal(t, 1, p.earlyRevokes)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Recovery.reuse(reused)
	require.Zero(t, p.earlyRevokes)
	require.Empty(t, e.Recovery.earlyRevokes)
}

// A rank that knows of a loss only by a REVOKE reports it before the communicator is revoked there, and says so
// in its own REVOKE. It reports nothing where a program has revoked a communicator by its choice.
func TestRecovery_AREVOKETellsOfALoss(t *testing.T) {
	type report struct {
		rank    int
		revoked bool // before it
	}
	for name, c := range map[string]struct {
		lost bool
		want []report
	}{"for a loss": {true, []report{{rank: NoRank}}}, "by choice": {}} {
		t.Run(name, func(t *testing.T) {
			w := fourRanks(t, Config{})
			reports := make([][]report, len(w))
			for i, e := range w {
				e.hub.failed.report = func(rank int) {
					revoked := e.Recovery.revoked[unknownOfTest]
					reports[i] = append(reports[i], report{rank, revoked})
				}
			}
			// rank 0 does not tell rank 2
			for i, members := range [][]int32{{0, 1}, {0, 1, 2}, {0, 1, 2}} {
				w[i].Recovery.OpenCommunicator(unknownOfTest, members)
			}
			if c.lost {
				w[0].mu.Lock()
				w[0].failures.failPeer(w[0].peerLocked(3), transport.ErrPeerLost)
				w[0].mu.Unlock()
			}
			require.NoError(t, w[0].Recovery.Revoke(unknownOfTest))
			for i := 1; i <= 2; i++ {
				revoked := func() bool { return w[i].Recovery.revoked[unknownOfTest] }
				until(t, revoked, w[i], w[i-1])
				w[i].mu.Lock()
				got := reports[i]
				w[i].mu.Unlock()
				require.Equal(t, c.want, got, "rank %d", i)
			}
		})
	}
}

// A rank that sends a REVOKE of another length, or with another reason than the two, is given up.
func TestRecovery_AREVOKEOfAnotherForm(t *testing.T) {
	for _, body := range [][]byte{{0, 0, 0, 0}, {0, 0, 0, 0, 2}, {0, 0, 0, 0, 1, 0}} {
		w := fourRanks(t, Config{})
		says(w[3], 0, control{channel.Revoke, body})
		until(t, func() bool { return w[0].peerLocked(3).state == peerFailed }, w[0], w[3])
		require.ErrorIs(t, peerOf(w[0], 3).cause, transport.ErrProtocol)
	}
}

// bereft is a device that finds the processes of all peers ended when it is to read their memory.
type bereft struct{ transport.Device }

func (d bereft) Listen(id transport.Identity, a transport.Acceptor) (transport.Endpoint, error) {
	return d.Device.Listen(id, bereftAcceptor{a})
}

type bereftAcceptor struct{ transport.Acceptor }

func (a bereftAcceptor) Connected(rank uint32, qp transport.QP, private []byte) {
	a.Acceptor.Connected(rank, bereftQP{qp}, private)
}

type bereftQP struct{ transport.QP }

func (bereftQP) Get([]byte, *transport.Segment) error { return syscall.ESRCH }

// A rank that finds a peer's process ended reports a loss before its call fails, though the connection to the
// peer is still open.
func TestRecovery_AReadOfAnEndedProcessTellsOfALoss(t *testing.T) {
	var devices []transport.Device
	for range 2 {
		d, err := sharedMemory()
		require.NoError(t, err)
		devices = append(devices, bereft{d})
	}
	w := world(t, devices)
	connected(t, w)
	e := w[0]
	m := &Mailboxes{e: e, peers: make([]mailbox, 2)}
	m.peers[1].peer, m.peers[1].keys[0] = peerOf(e, 1), 1
	e.mu.Lock()
	var reported []int
	e.hub.failed.report = func(rank int) { reported = append(reported, rank) }
	err := m.reachLocked(make([]byte, 8), &coll.Step{Kind: coll.Pull, Peer: 1}, 0, 0)
	e.hub.failed.report = nil
	e.mu.Unlock()
	require.ErrorIs(t, err, ErrProcFailed)
	require.Equal(t, []int{NoRank}, reported)
}
