package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi"
)

// phases makes rank 0 communicate with more and more peers, and prints the memory of a connection in each
// phase: bytes of registered buffers, as counted, and resident memory of the process, as the system reports
// it.
func phases(s *session) error {
	c, err := newCensus(s)
	if err != nil {
		return err
	}
	if err := c.shrinks(); err != nil {
		return err
	}
	if s.world.Rank() != 0 {
		return c.echo()
	}
	s.heading()
	last := s.world.Size() - 1
	for peers := 1; ; peers = min(2*peers, last) { // 1, 2, 4 … and all
		if err := c.rows(peers); err != nil {
			return err
		}
		if peers == last {
			return c.end(last)
		}
	}
}

// census measures the memory of rank 0's connections, at rank 0 or a peer.
type census struct {
	*session
	slots         []int // of the phases, in bytes
	message       []byte
	resizeTimeout time.Duration // for channels that change their phase
	brief         bool          // peers return a byte, not the message
	small         int           // bytes of registered buffers of a connection in the first phase
}

func newCensus(s *session) (*census, error) {
	slots, err := channel.ParsePhases(s.settings.Of(setting.Phases).String())
	if err != nil {
		return nil, err
	}
	return &census{session: s, slots: slots, message: make([]byte, slices.Max(slots)),
		resizeTimeout: resizePatience}, nil
}

// resizePatience is how long channels may take to reach a phase, and to stay there while they are measured,
// in addition to the time after which they shrink. Tests use more.
var resizePatience = 10 * time.Second

// shrinks returns an error at all ranks if the settings keep channels from shrinking.
func (c *census) shrinks() error {
	if len(c.slots) == 1 {
		return nil
	}
	if c.settings.Of(setting.ShrinkAfter).String() == "never" {
		return optionErrorf("%s: %s=never: channels would not come back from their large buffers",
			c.Name, setting.ShrinkAfter.Name)
	}
	quiet, err := c.settings.Of(setting.ShrinkAfter).Duration()
	if err != nil {
		return err
	}
	c.resizeTimeout += 4 * quiet
	return nil
}

// rows measures all phases of the connections to a number of peers: the small one, each larger one, and the
// small one after these.
func (c *census) rows(peers int) error {
	for i := range len(c.slots) + 1 {
		phase := i
		if i == len(c.slots) {
			if i == 1 {
				return nil
			}
			phase = 0
		}
		registered, resident, err := c.measured(peers, phase)
		if err != nil {
			return err
		}
		registered, resident = registered/peers, max(0, resident-c.before)/peers
		c.row([]float64{float64(peers), float64(c.slots[phase]), float64(registered), float64(resident)})
	}
	return c.out.err
}

// censusColumns are the columns of the table.
var censusColumns = []column{
	{name: "peers", heading: "# Peers", width: -10, form: whole},
	{name: "slot", heading: "Slots", unit: "bytes", width: 20, form: whole},
	{name: "registered", heading: "Registered", unit: "bytes", width: 20, form: whole},
	{name: "resident", heading: "Resident", unit: "bytes", width: 20, form: whole},
}

// phaseLines returns the lines of a plot: registered and resident memory of each phase.
func phaseLines(rows [][]float64) *panel {
	p := &panel{axes: phaseAxes}
	seen := map[[2]float64]bool{}
	for _, row := range rows {
		peers, slot, again := row[0], row[1], ""
		if seen[[2]float64{peers, slot}] {
			again = ", again"
		}
		seen[[2]float64{peers, slot}] = true
		p.add(fmt.Sprintf("registered, slots of %.0f%s", slot, again), peers, row[2])
		p.add(fmt.Sprintf("resident, slots of %.0f%s", slot, again), peers, row[3])
	}
	return p
}

// measured brings the connections to ranks 1 to peers into a phase, writes all of their rings, and reads
// their total memory. If a channel has changed its phase meanwhile, it starts over.
func (c *census) measured(peers, phase int) (registered, resident int, err error) {
	deadline := time.Now().Add(c.resizeTimeout)
	for {
		if err := c.fill(peers, phase, deadline); err != nil {
			return 0, 0, err
		}
		registered = c.registered(peers)
		if resident, err = c.resident(); err != nil {
			return 0, 0, err
		}
		stray, err := c.elsewhere(peers, phase)
		if err != nil {
			return 0, 0, err
		}
		if stray == 0 {
			break
		}
		if time.Now().After(deadline) {
			return 0, 0, c.doesNotStay(peers, stray, phase)
		}
	}
	if phase == 0 {
		c.small = registered / peers
	}
	return registered, resident, nil
}

// doesNotStay is the error of the channel to one of the peers that shrinks before it is measured.
func (c *census) doesNotStay(peers, peer, phase int) error {
	return fmt.Errorf("%s: with %d peers, the channel to rank %d does not stay in phase %d, which has slots "+
		"of %d bytes, for as long as it takes to measure it; try a longer %s than %v", c.Name, peers, peer,
		phase+1, c.slots[phase], setting.ShrinkAfter.Name, c.settings.Of(setting.ShrinkAfter))
}

// fill brings the connections into a phase and exchanges messages that need its slots, which write all lines
// of the rings twice. The peers take turns, so that none is quiet for long. Channels return to the first
// phase by themselves.
func (c *census) fill(peers, phase int, deadline time.Time) error {
	for phase == 0 {
		stray, err := c.elsewhere(peers, 0)
		if err != nil {
			return err
		}
		registered := c.registered(peers)
		if stray == 0 && (c.small == 0 || registered == peers*c.small) {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: the channels to %d peers still have large buffers after %v, %d bytes "+
				"in all, with %s=%v", c.Name, peers,
				c.resizeTimeout, registered, setting.ShrinkAfter.Name, c.settings.Of(setting.ShrinkAfter))
		}
		time.Sleep(2 * time.Millisecond)
	}
	n, before := c.messageSize(phase), c.announced(1, peers)
	refused := false
	for range c.turns(phase) {
		for peer := 1; peer <= peers; peer++ {
			if err := c.exchange(peer, n); err != nil {
				return err
			}
			refused = refused || c.message[0] == announces
		}
	}
	if refused || c.announced(1, peers) > before {
		return fmt.Errorf("%s: messages of %d bytes do not go through slots of %d bytes, for want of "+
			"memory or by a setting (%s=%v, %s=%v)",
			c.Name, n, c.slots[phase], setting.Budget.Name, c.settings.Of(setting.Budget),
			setting.EagerMax.Name, c.settings.Of(setting.EagerMax))
	}
	return nil
}

// messageSize returns the largest payload for which a channel uses the slots of a phase.
func (c *census) messageSize(phase int) int {
	const flagsHeaderEnvelope = 32
	slot := c.slots[phase]
	n := slot - flagsHeaderEnvelope
	number, percent := strings.CutSuffix(c.settings.Of(setting.Threshold).String(), "%")
	switch limit, err := strconv.Atoi(number); {
	case err != nil: // not set
	case percent:
		n = min(n, slot*limit/100)
	case phase == 0:
		n = min(n, limit)
	}
	return n
}

// turns returns the number of such messages that write every line of a ring twice: it has eight slots of
// whole lines, or 4 KiB if that is more.
func (c *census) turns(phase int) int {
	const line = 64
	ring := max(8*(c.slots[phase]+line), 4<<10)
	return 2*ring/c.messageSize(phase) + 1
}

// announces stands for the phase of a peer whose messages do not go through slots.
const announces = 0xff

// exchange sends a message to a peer and receives it back, or only its first byte, which is the phase in
// which the peer sends then, or announces.
func (c *census) exchange(peer, n int) error {
	if err := c.send(n, peer); err != nil {
		return err
	}
	_, err := mpi.Recv(c.world, c.message[:n], peer, pingTag)
	return err
}

// echo is a peer's part: it returns all messages of rank 0, up to an empty one.
func (c *census) echo() error {
	before := c.announced(0, 0)
	for {
		st, err := mpi.Recv(c.world, c.message, 0, pingTag)
		if err != nil || st.Count == 0 {
			return err
		}
		for ch := range c.channels(0, 0) {
			c.message[0] = byte(ch.Phase)
		}
		if c.announced(0, 0) > before {
			c.message[0] = announces
		}
		n := st.Count
		if c.brief {
			n = 1
		}
		if err := c.send(n, 0); err != nil {
			return err
		}
	}
}

// send sends a message through a slot if it fits one: an awaited blocking send might be announced.
func (c *census) send(n, peer int) error {
	r, err := mpi.Isend(c.world, c.message[:n], peer, pingTag)
	if err != nil {
		return err
	}
	_, err = r.Wait()
	return err
}

// end releases ranks 1 to peers.
func (c *census) end(peers int) error {
	for peer := 1; peer <= peers; peer++ {
		if err := mpi.Send(c.world, c.message[:0], peer, pingTag); err != nil {
			return err
		}
	}
	return nil
}

// elsewhere returns a peer whose channel is not in a phase in both directions; 0 for none. Only messages that
// need it bring a channel into a larger phase, so one that is there now has been there since those were sent.
func (c *census) elsewhere(peers, phase int) (int, error) {
	for ch := range c.channels(1, peers) {
		if ch.Phase != phase {
			return ch.Peer, nil
		}
	}
	for peer := 1; peer <= peers; peer++ {
		// A peer that is changing its phase may report the old one, but then sends in the new one.
		for range 2 {
			if err := c.exchange(peer, 1); err != nil {
				return 0, err
			}
		}
		if int(c.message[0]) != phase {
			return peer, nil
		}
	}
	return 0, nil
}

// registered returns the bytes of the registered buffers of the connections to ranks 1 to peers.
func (c *census) registered(peers int) (sum int) {
	for ch := range c.channels(1, peers) {
		sum += ch.Registered
	}
	return sum
}

// announced counts the messages to ranks from first to last that did not go through slots.
func (c *census) announced(first, last int) (sum uint64) {
	for ch := range c.channels(first, last) {
		sum += ch.Rendezvous
	}
	return sum
}

// channels yields this rank's channels to ranks from first to last, at the endpoint of the world.
func (c *census) channels(first, last int) func(yield func(mpi.ChannelStats) bool) {
	return func(yield func(mpi.ChannelStats) bool) {
		for _, ch := range c.world.Stats().Channels {
			ours := ch.Endpoint == c.world.Endpoint() && first <= ch.Peer && ch.Peer <= last
			if ours && !yield(ch) {
				return
			}
		}
	}
}
