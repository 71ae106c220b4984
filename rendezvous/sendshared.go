package rendezvous

import (
	"errors"
	"slices"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/sharedcopy"
	"github.com/weft-mpi/weft/transport"
)

// sharing is the sending side of cooperative copies, for all channels of a rank.
type sharing struct {
	enabled bool
	memory  transport.MR    // for the next work-claim tables
	used    int             // of its bytes
	with    []*channelSends // channels with claims
	copied  uint64          // bytes
}

// channelClaims is the work-claim table of one channel.
type channelClaims struct {
	helper   sharedcopy.Helper // has no claims before CLAIMS was sent
	memory   transport.MR      // of the claims
	unshared bool              // the queue pair cannot map memory
	to       transport.Segment
}

// claimsRights are the rights that a peer needs to map memory.
const claimsRights = transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic

// next registers memory for the claims of one more channel. It is never reused, because the peer may keep it
// mapped.
func (s *sharing) next(pd transport.PD) (transport.MR, error) {
	if s.memory == nil || s.used+sharedcopy.Size > len(s.memory.Bytes()) {
		memory, err := pd.Alloc(claimsMemory, transport.Mappable)
		if err != nil {
			return nil, err
		}
		s.memory, s.used = memory, 0
	}
	mem := s.memory.Bytes()[s.used:][:sharedcopy.Size:sharedcopy.Size]
	s.used += sharedcopy.Size
	return pd.Register(mem, claimsRights)
}

const claimsMemory = 64 << 10

// offerClaims sends CLAIMS to the receiver of a channel, before its first announced message. If there is no
// room now it is sent before a later message; if there is no memory, never.
func (s *Sender) offerClaims(c *channel.Channel, of *channelSends) error {
	if of.fins.memory == nil {
		if _, maps := c.QP().(transport.Mapper); maps && of.memory == nil {
			of.memory, _ = s.shared.next(s.pd)
		}
		if of.memory != nil {
			of.fins.memory, _ = s.pd.Alloc(finBytes, transport.RemoteWrite)
		}
		if of.fins.memory == nil {
			of.unshared = true
			return nil
		}
	}
	sent, err := c.TrySendControl(channel.Claims, claimsLen, true, func(body []byte) error {
		Claims{Key: of.memory.Key(), FINs: of.fins.memory.Key()}.Append(body[:0])
		return nil
	})
	if sent {
		of.helper.Claims = sharedcopy.In(of.memory.Bytes())
		of.fins.words = finWordsIn(of.fins.memory.Bytes())
		s.shared.with = append(s.shared.with, of)
	}
	return err
}

// CopyShared copies pages of the messages that receivers are fetching now: for each channel those of one
// claim, at most 256 KiB. It reports whether there were any. Call it in every pass.
func (s *Sender) CopyShared() (did bool) {
	for _, of := range s.shared.with {
		did = of.open > 0 && of.helper.Due() && s.copyPages(of) || did
	}
	return did
}

// copyPages copies some pages of the message that a channel's receiver fetches; false if all are claimed.
func (s *Sender) copyPages(of *channelSends) bool {
	o, ok := of.helper.Next()
	if !ok {
		return false
	}
	i, ok := s.find(of.c, o.ID)
	if !ok || s.table[i].mr == nil || s.table[i].written.granted > 0 || !o.Within(s.table[i].length) {
		of.helper.Ignore(&o)
		return false
	}
	from, n := of.helper.Claim(&o)
	if n == 0 {
		return true
	}
	at := o.At + from
	of.to = transport.Segment{Key: transport.Key(o.Key), Offset: at, Length: n}
	if err := of.c.QP().Put(s.table[i].mr.Bytes()[at:][:n], &of.to); err != nil {
		of.helper.Failed(&o, err != transport.ErrNotNow)
		return false
	}
	of.helper.Copied(&o)
	s.shared.copied += n
	return true
}

// SharedBytes returns how many bytes the sender has copied in cooperative copies.
func (s *Sender) SharedBytes() uint64 { return s.shared.copied }

// dropClaims releases the claims of a failed channel.
func (s *Sender) dropClaims(of *channelSends) (err error) {
	s.shared.with = slices.DeleteFunc(s.shared.with, func(w *channelSends) bool { return w == of })
	if of.memory != nil {
		err = of.memory.Deregister()
		of.memory, of.helper = nil, sharedcopy.Helper{}
	}
	if of.fins.memory != nil {
		err = errors.Join(err, of.fins.memory.Deregister())
		of.fins = finRing{}
	}
	return err
}
