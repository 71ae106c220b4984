package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/agree"
	"github.com/weft-mpi/weft/transport"
)

// ErrRevoked is the error of operations on a communicator that a rank has revoked.
var ErrRevoked = errors.New("communicator was revoked")

// Recovery lets the remaining ranks go on after failures: it has the acknowledged failures, the revoked
// communicators, and the agreements (docs/internals/spec/agree.md). A communicator is named by its first
// context.
//
// Invariants, under the lock: a communicator is revoked before any other rank is told, and every rank that
// learns of it tells all others once, so that all survivors learn of it if one does. Only an agreement's
// table (package agree) decides it. Messages that find no room wait in peer.controls.
type Recovery struct {
	e               *Engine
	acknowledged    map[uint32]int // by communicator: how many of failures.peers are acknowledged
	revoked         map[uint32]bool
	onRevoke        func(communicator uint32) // Config.Revoked
	agreements      map[uint32]*agreements
	early           map[uint32][]earlyMessage // for communicators that this rank does not know yet
	earlyRevokes    map[uint32]*peer          // REVOKEs for such communicators, and who sent them first
	held            map[uint32][]earlyMessage // that name failures not reported here yet
	groupCalls      []*GroupCall              // under way
	detects         bool                      // Config.DetectsFailures
	launcherReports bool                      // Config.LauncherReportsFailures
}

// agreements are the agreements of one communicator.
type agreements struct {
	table   *agree.Table
	members []int32 // world ranks; nil for the whole world
}

// earlyMessage is a message of an agreement that arrived before this rank could take it.
type earlyMessage struct {
	from    *peer
	message agree.Message
}

// Limits on the messages that this rank stores for one peer. They are far above the needs of correct ranks:
// ranks agree on a communicator before they use it, so a peer is at most a few messages ahead, and failures
// are reported soon. A REVOKE for an unknown communicator is early, or late.
const (
	maxEarly        = 1 << 14 // waiting messages of agreements
	maxEarlyRevokes = 1 << 16 // REVOKEs for unknown communicators
	maxControls     = 1 << 14 // control messages that wait for the peer
)

// A REVOKE has a communicator, and whether its sender knows of a rank that has failed.
const (
	revokeLen      = 5
	revokeByChoice = 0
	revokeForLoss  = 1
)

// control is a message of an agreement, or a REVOKE, that waits for a connection or for room.
type control struct {
	kind channel.Kind
	body []byte
}

func (v *Recovery) init(e *Engine, c Config) {
	v.e, v.onRevoke, v.detects, v.launcherReports = e, c.Revoked, c.DetectsFailures, c.LauncherReportsFailures
	v.acknowledged, v.revoked = map[uint32]int{}, map[uint32]bool{}
	v.agreements, v.early = map[uint32]*agreements{}, map[uint32][]earlyMessage{}
	v.held, v.earlyRevokes = map[uint32][]earlyMessage{}, map[uint32]*peer{}
	e.routes.onMessage(channel.Agree, v.onAgree)
	e.routes.onMessage(channel.Revoke, v.onRevokeMessage)
}

// sendControl sends a control message after those that wait. It connects first if necessary, and drops
// messages for a failed peer.
func (v *Recovery) sendControl(p *peer, m control) {
	switch p.state {
	case peerFailed, peerClosed:
		return
	case peerIdle:
		v.e.connections.connectLocked(p)
	}
	if p.controls = append(p.controls, m); len(p.controls) > maxControls {
		v.e.failures.failPeer(p, fmt.Errorf("%w: %d messages of agreements wait for it", errTakesNothing,
			len(p.controls)))
		return
	}
	v.sendControls(p)
}

// sendControls sends the waiting control messages of a peer, as far as there is room.
func (v *Recovery) sendControls(p *peer) {
	if p.state != peerOpen || len(p.controls) == 0 {
		return
	}
	for len(p.controls) > 0 {
		m := p.controls[0]
		sent, err := p.ch.TrySendControl(m.kind, len(m.body), false, func(body []byte) error {
			copy(body, m.body)
			return nil
		})
		if err != nil {
			v.e.failures.failPeer(p, err)
			return
		}
		if !sent {
			v.e.Sends.retryIfQueueFullLocked(p)
			break
		}
		p.controls = p.controls[1:]
	}
	v.e.progress.deferUnsent(p)
	p.ch.QP().Flush()
}

// errTakesNothing is the failure of a peer that takes no messages while ever more wait for it.
var errTakesNothing = fmt.Errorf("%w: a peer that takes no messages", transport.ErrProtocol)

// lockWithFailures locks the engine, and passes to it all failures that the rank knows: a call that asks for
// them may follow one at another endpoint that has returned them.
func (v *Recovery) lockWithFailures() {
	e := v.e
	e.mu.Lock()
	if e.hub.several.Load() {
		e.hub.failed.tellLocked(e)
	}
}

// Failed lists the world ranks that are known to have failed, in the order of their failures.
func (v *Recovery) Failed() []int {
	e := v.e
	v.lockWithFailures()
	defer e.mu.Unlock()
	var list []int
	for _, p := range e.failures.peers {
		list = append(list, p.rank)
	}
	return list
}

// AckFailed acknowledges all known failures. Receives from AnySource on the communicator then wait for the
// remaining ranks.
func (v *Recovery) AckFailed(communicator uint32) {
	e := v.e
	v.lockWithFailures()
	defer e.mu.Unlock()
	v.acknowledged[communicator] = len(e.failures.peers)
}

// Unacknowledged reports whether a rank of the communicator has failed and this was not acknowledged.
func (v *Recovery) Unacknowledged(communicator uint32) bool {
	e := v.e
	v.lockWithFailures()
	defer e.mu.Unlock()
	return e.failures.since(v.acknowledged[communicator], communicator) != nil
}

// reportedLocked records that a rank has failed, as PeerFailed reported.
func (v *Recovery) reportedLocked(rank int, cause error) {
	v.e.mu.assertHeld()
	p := v.e.peerLocked(rank)
	if known := p.state == peerFailed; known && v.launcherReports && !p.failureReported {
		p.failureReported = true
		v.agreeWithout(p)
		return
	}
	p.failureReported = true
	v.e.failures.failPeer(p, cause)
}

// Revoke ends the use of a communicator at all its ranks: current and future operations, except agreements,
// fail with ErrRevoked. It does not wait for the others.
func (v *Recovery) Revoke(communicator uint32) error {
	e := v.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil {
		return e.stopped
	}
	v.revoke(communicator)
	return nil
}

func (v *Recovery) revoke(communicator uint32) {
	if v.revoked[communicator] {
		return
	}
	v.revoked[communicator] = true
	v.e.failures.noted.Store(true)
	if v.onRevoke != nil {
		v.onRevoke(communicator)
	}
	why := byte(revokeByChoice)
	if v.e.hub.failed.any() {
		why = revokeForLoss
	}
	for rank := range v.e.size {
		if rank != v.e.rank && v.e.failures.inContext(communicator, rank) {
			v.sendControl(v.e.peerLocked(rank), revokeMessage(communicator, why))
		}
	}
	v.endGroupCalls(ErrRevoked, func(g *GroupCall) bool {
		return contextid.Communicator(g.Context) == communicator
	})
	for r := range v.e.Requests.underWay() {
		if r.completed() || r.kind != kindCollective && r.collective != nil {
			continue
		}
		if context, ok := r.context(); ok && contextid.Communicator(context) == communicator {
			v.e.Cancels.cancelLocked(r, ErrRevoked)
		}
	}
	v.e.waiting.wakeConditionsLocked()
}

func revokeMessage(communicator uint32, why byte) control {
	return control{channel.Revoke, append(binary.LittleEndian.AppendUint32(nil, communicator), why)}
}

// context returns the context of the operation, if it has one.
func (r *request) context() (context uint32, ok bool) {
	switch r.kind {
	case kindSend:
		return r.msg.Context, true
	case kindRecv, kindTask:
		return r.posted.Context, true
	case kindCollective:
		return r.collective.Context, true
	}
	return 0, false
}

// revokedErr returns ErrRevoked for a context of a revoked communicator, else nil.
func (v *Recovery) revokedErr(context uint32) error {
	if len(v.revoked) > 0 && v.revoked[contextid.Communicator(context)] {
		return ErrRevoked
	}
	return nil
}

func (v *Recovery) onRevokeMessage(p *peer, body []byte) error {
	if len(body) != revokeLen || body[4] > revokeForLoss {
		return fmt.Errorf("%w: the REVOKE %x", transport.ErrProtocol, body)
	}
	// The launcher is told before any call here fails: the program may then call Abort, and that may be known
	// before the end of the lost rank.
	if body[4] == revokeForLoss {
		v.e.hub.failed.foundUnnamed()
	}
	communicator := contextid.Communicator(binary.LittleEndian.Uint32(body))
	if v.known(communicator) {
		v.revoke(communicator)
		return nil
	}
	// The others are told when the communicator exists here: so for one that never will, a peer cannot make
	// this rank send more than once.
	if v.revoked[communicator] || v.earlyRevokes[communicator] != nil {
		return nil
	}
	if p.earlyRevokes++; p.earlyRevokes > maxEarlyRevokes {
		return fmt.Errorf("%w: too many REVOKEs of communicators that do not exist", transport.ErrProtocol)
	}
	v.earlyRevokes[communicator] = p
	return nil
}

// known reports whether this rank has a communicator, or had it and may still get messages of its agreements.
func (v *Recovery) known(communicator uint32) bool {
	_, open := v.e.failures.groups[communicator]
	return open || v.agreements[communicator] != nil
}

// Agree contributes to the next agreement of a communicator and waits until it is decided. It returns an
// error if the engine stops or the canceller ends; the contribution counts all the same.
func (v *Recovery) Agree(communicator uint32, value agree.Value, canceller *Canceller) (agree.Value, error) {
	e := v.e
	e.mu.Lock()
	if e.stopped != nil {
		e.mu.Unlock()
		return agree.Value{}, e.stopped
	}
	a := v.agreementsOf(communicator)
	number, out := a.table.Start(value)
	v.sendMessages(communicator, a, out)
	e.mu.Unlock()
	var decided bool
	var err error
	e.waiting.waitUntil(0, nil, func() bool {
		if decided || err != nil {
			return true
		}
		value, decided = a.table.Decision(number)
		if !decided {
			if err = e.stopped; err == nil {
				err = canceller.Err()
			}
			if err == nil {
				v.connectTo(a, number)
			}
		}
		return decided || err != nil
	})
	return value, err
}

// agreementsOf returns the agreements of a communicator.
func (v *Recovery) agreementsOf(communicator uint32) *agreements {
	a := v.agreements[communicator]
	if a == nil {
		a = &agreements{members: v.e.failures.groups[communicator]}
		size, self := v.e.size, v.e.rank
		if a.members != nil {
			size, self = len(a.members), slices.Index(a.members, int32(v.e.rank))
		}
		a.table = agree.NewTable(self, size)
		v.agreements[communicator] = a
		for _, p := range v.e.failures.peers {
			if i := a.index(p.rank); i >= 0 && v.certain(p) {
				a.table.Fail(i)
			}
		}
	}
	return a
}

// index returns the rank in the communicator of a world rank, or -1.
func (a *agreements) index(rank int) int {
	if a.members == nil {
		return rank
	}
	return slices.Index(a.members, int32(rank))
}

func (a *agreements) worldRank(i int) int {
	if a.members == nil {
		return i
	}
	return int(a.members[i])
}

// connectTo connects to all ranks from which an agreement awaits a message: without a connection nobody would
// notice their failure.
func (v *Recovery) connectTo(a *agreements, number uint32) {
	for _, i := range a.table.AwaitedFrom(number) {
		v.connect(a.worldRank(i))
	}
}

// connect begins a connection to a rank, unless there is one: its end shows the failure of the rank.
func (v *Recovery) connect(rank int) {
	if rank == v.e.rank {
		return
	}
	if p := v.e.peerLocked(rank); p.state == peerIdle {
		v.e.connections.connectLocked(p)
	}
}

// connectToSources connects to all ranks from which a receive or the probe awaits a message, if nobody else
// reports failures: one of them may have failed before it connected to this rank. It is called before this
// rank sleeps, and by the heartbeat.
func (v *Recovery) connectToSources(probed *probed) {
	if !v.detects || v.e.stopped != nil {
		return
	}
	for m := range v.e.matching.Posted() {
		v.connectToSource(m.Context, int(m.Source))
	}
	if probed != nil {
		v.connectToSource(probed.context, probed.source)
	}
}

// connectToAwaited connects to all ranks that are the source of a receive, and, if the launcher reports
// failures, to all possible sources of receives from AnySource. The heartbeat calls it: a rank that hangs is
// noticed only by its silence, and only by the ranks that are connected to it.
func (v *Recovery) connectToAwaited() {
	if v.e.closing {
		return
	}
	for m := range v.e.matching.Posted() {
		if m.Source != AnySource || v.launcherReports {
			v.connectToSource(m.Context, int(m.Source))
		}
	}
}

func (v *Recovery) connectToSource(context uint32, source int) {
	if source != AnySource {
		v.connect(source)
		return
	}
	for rank := range v.e.size {
		if v.e.failures.inContext(context, rank) {
			v.connect(rank)
		}
	}
}

// sendMessages sends the messages of a table.
func (v *Recovery) sendMessages(communicator uint32, a *agreements, out []agree.Send) {
	for i := range out {
		body := binary.LittleEndian.AppendUint32(nil, communicator)
		v.sendControl(v.e.peerLocked(a.worldRank(out[i].To)), control{channel.Agree, out[i].Append(body)})
	}
	v.e.waiting.wakeConditionsLocked()
}

func (v *Recovery) onAgree(p *peer, body []byte) error {
	if len(body) < 4 {
		return fmt.Errorf("%w: an AGREE of %d bytes", transport.ErrProtocol, len(body))
	}
	communicator := contextid.Communicator(binary.LittleEndian.Uint32(body))
	message, err := agree.Parse(body[4:])
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	}
	if !v.known(communicator) {
		return v.keep(v.early, communicator, p, &message)
	}
	return v.receive(communicator, p, &message)
}

// keep stores a message in one of the maps.
func (v *Recovery) keep(where map[uint32][]earlyMessage, communicator uint32, p *peer,
	m *agree.Message) error {
	if p.earlyMessages++; p.earlyMessages > maxEarly {
		return fmt.Errorf("%w: too many messages of communicators that do not exist, or of failures that "+
			"nobody has seen", transport.ErrProtocol)
	}
	where[communicator] = append(where[communicator], earlyMessage{p, *m})
	return nil
}

// takeUp passes stored messages to receive.
func (v *Recovery) takeUp(communicator uint32, list []earlyMessage) {
	for i := range list {
		p := list[i].from
		if p.earlyMessages--; p.state == peerFailed {
			continue
		}
		if err := v.receive(communicator, p, &list[i].message); err != nil {
			v.e.failures.failPeer(p, err)
		}
	}
}

// holdsBack reports whether a message must wait for a report of the launcher: it names a failure that is not
// known here, or follows such a message of the same peer.
func (v *Recovery) holdsBack(communicator uint32, a *agreements, p *peer, m *agree.Message) bool {
	return v.launcherReports && (a.table.Unknown(m) || slices.ContainsFunc(v.held[communicator],
		func(h earlyMessage) bool { return h.from == p }))
}

// receive passes a message to the table of its communicator. It may fail the peer, or the engine: callers
// check the peer's state afterwards.
func (v *Recovery) receive(communicator uint32, p *peer, m *agree.Message) error {
	a := v.agreementsOf(communicator)
	from := a.index(p.rank)
	if from < 0 {
		return fmt.Errorf("%w: an AGREE of a communicator that rank %d is not in", transport.ErrProtocol,
			p.rank)
	}
	if v.holdsBack(communicator, a, p, m) {
		return v.keep(v.held, communicator, p, m)
	}
	out, err := a.table.Receive(from, m)
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	}
	v.sendMessages(communicator, a, out)
	if a.table.Excluded() {
		v.e.failLocked(fmt.Errorf("%w: rank %d considers this rank failed%s", ErrAborted, p.rank,
			v.e.failures.text()))
		return nil
	}
	if m := a.table.Misled(); m != nil {
		v.e.failLocked(fmt.Errorf("%w: rank %d has told this rank another decision of an agreement than "+
			"rank %d has, so this rank does not know what the others do", ErrAborted, a.worldRank(m.By),
			a.worldRank(m.Above)))
		return nil
	}
	for _, i := range a.table.Failed() {
		v.e.failures.failPeer(v.e.peerLocked(a.worldRank(i)), fmt.Errorf("%w: rank %d has seen it fail",
			transport.ErrPeerLost, p.rank))
	}
	return nil
}

// peerFailed excludes a failed peer from all agreements, and ends the collectives that need it.
func (v *Recovery) peerFailed(p *peer) {
	v.e.failures.noted.Store(true)
	p.controls = nil
	for _, c := range slices.Clone(v.e.Collectives.active) {
		if v.e.failures.inContext(c.Context, p.rank) {
			v.e.Collectives.failLocked(c, p.cause)
		}
	}
	v.endGroupCalls(p.cause, func(g *GroupCall) bool { return v.takesPart(g, p.rank) })
	if v.certain(p) {
		v.agreeWithout(p)
	}
}

// certain reports whether agreements may exclude a failed peer. If two ranks have lost each other, one of
// them goes on: the launcher decides which, and no agreement may decide before it.
func (v *Recovery) certain(p *peer) bool { return !v.launcherReports || p.failureReported }

// agreeWithout excludes a peer from all agreements, and takes up the messages that waited for this.
func (v *Recovery) agreeWithout(p *peer) {
	for communicator, a := range v.agreements {
		if i := a.index(p.rank); i >= 0 {
			v.sendMessages(communicator, a, a.table.Fail(i))
		}
	}
	held := v.held
	v.held = map[uint32][]earlyMessage{}
	for communicator, list := range held {
		v.takeUp(communicator, list)
	}
}

// open begins the use of a communicator. Other ranks may already have begun agreements on it, or revoked it.
func (v *Recovery) open(communicator uint32) {
	early := v.early[communicator]
	delete(v.early, communicator)
	v.takeUp(communicator, early)
	if v.forgetEarlyRevoke(communicator) {
		v.revoke(communicator)
	}
}

// forgetEarlyRevoke removes the stored REVOKE for a communicator; false if there is none.
func (v *Recovery) forgetEarlyRevoke(communicator uint32) bool {
	p := v.earlyRevokes[communicator]
	if p == nil {
		return false
	}
	delete(v.earlyRevokes, communicator)
	p.earlyRevokes--
	return true
}

// reuse forgets a communicator whose context a new one uses.
func (v *Recovery) reuse(communicator uint32) {
	delete(v.agreements, communicator)
	delete(v.revoked, communicator)
	v.forgetEarlyRevoke(communicator)
	for _, h := range v.held[communicator] {
		h.from.earlyMessages--
	}
	delete(v.held, communicator)
	delete(v.acknowledged, communicator)
}

// mayBegin returns why a collective cannot begin on a context: its communicator was revoked, or one of its
// ranks has failed.
func (v *Recovery) mayBegin(context uint32) error {
	if err := v.revokedErr(context); err != nil {
		return err
	}
	return v.e.failures.since(0, context)
}
