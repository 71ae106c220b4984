package rendezvous

import (
	"errors"
	"slices"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/sharedcopy"
	"github.com/weft-mpi/weft/transport"
)

// sharing is the sending side of what both ends copy, for all channels of a rank.
type sharing struct {
	enabled bool
	memory  transport.MR    // of claims, in which the next have their place
	used    int             // of its bytes
	with    []*channelSends // whose peers know of claims
	copied  uint64          // bytes
}

// channelClaims are the claims of one channel.
type channelClaims struct {
	helper   sharedcopy.Helper // has no claims before the receiver knows of them
	memory   transport.MR      // of the claims
	unshared bool              // the queue pair cannot map memory
	to       transport.Segment
}

// claimsRights are what a peer needs to map memory.
const claimsRights = transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic

// next registers memory for the claims of one more channel. It serves no other afterwards: the peer may have
// it mapped for ever.
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

// offerClaims tells the receiver of a channel of claims, and where FINs may come, before its first announced
// message. Where there is no room for that now it is done with a later message; where there is no memory,
// never.
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

// CopyShared copies pages of the messages that receivers are fetching at this moment: of each channel those
// of one claim, 256 KiB at most. It reports whether there was anything. Call it in every pass.
func (s *Sender) CopyShared() (did bool) {
	for _, of := range s.shared.with {
		did = of.open > 0 && of.helper.Due() && s.copyPages(of) || did
	}
	return did
}

// copyPages copies some pages of what the receiver of a channel fetches; false if all are claimed.
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

// SharedBytes is how many bytes of its messages the sender has copied to receivers that were fetching them.
func (s *Sender) SharedBytes() uint64 { return s.shared.copied }

// dropClaims forgets the claims of a channel that has failed.
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
