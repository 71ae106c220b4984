package rendezvous

// Immediates go both ways: from a receiver FIN, and from a sender the end of a grant. The highest bit tells
// them apart.
const (
	grantEndBit   = 1 << 31
	immediateBits = 1<<31 - 1
	maxGrant      = immediateBits - 1 // above it is a channel's own immediate (channel.ResentImm)
)

// fin is the immediate with which a receiver ends an announcement: nothing of the sender's buffer will be
// read any more.
type fin struct {
	id uint32 // the lower bits of the announcement's
}

func finOf(id uint64) fin { return fin{uint32(id) & immediateBits} }

func (f fin) imm() uint32 { return f.id }

func parseFIN(imm uint32) fin { return fin{id: imm} }

// grantEnd is the immediate with which a sender ends a grant: all its bytes are there.
type grantEnd struct {
	grant uint32
}

func (e grantEnd) imm() uint32 { return e.grant | grantEndBit }

func parseGrantEnd(imm uint32) grantEnd { return grantEnd{grant: imm &^ grantEndBit} }

// IsGrantEnd distinguishes the two kinds of immediate: it returns true for the end of a grant, for
// Receiver.OnGrantEnd, and false for FIN, for Sender.OnFIN.
func IsGrantEnd(imm uint32) bool { return imm&grantEndBit != 0 }
