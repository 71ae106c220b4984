package rendezvous

// Immediates are sent in both directions: FIN by a receiver, and the end of a grant by a sender. The highest
// bit distinguishes them.
const (
	grantEndBit   = 1 << 31
	immediateBits = 1<<31 - 1
	maxGrant      = immediateBits - 1 // the next value is channel.ResentImm
)

// fin is the immediate with which a receiver ends an announcement: it no longer reads the sender's buffer.
type fin struct {
	id uint32 // the lower bits of the announcement's
}

func finOf(id uint64) fin { return fin{uint32(id) & immediateBits} }

func (f fin) imm() uint32 { return f.id }

func parseFIN(imm uint32) fin { return fin{id: imm} }

// grantEnd is the immediate with which a sender ends a grant: all its bytes have been written.
type grantEnd struct {
	grant uint32
}

func (e grantEnd) imm() uint32 { return e.grant | grantEndBit }

func parseGrantEnd(imm uint32) grantEnd { return grantEnd{grant: imm &^ grantEndBit} }

// IsGrantEnd distinguishes the two kinds of immediate: it returns true for the end of a grant, for
// Receiver.OnGrantEnd, and false for FIN, for Sender.OnFIN.
func IsGrantEnd(imm uint32) bool { return imm&grantEndBit != 0 }
