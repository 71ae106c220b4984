package rendezvous

// Immediates go both ways: from a receiver FIN, and from a sender the end of a grant. The highest bit tells them apart.
const endBit = 1 << 63

// fin is the immediate with which a receiver ends an announcement: nothing of the sender's buffer will be read any more.
type fin struct {
	id uint64 // of the announcement
}

func (f fin) imm() uint64 { return f.id }

func parseFIN(imm uint64) fin { return fin{id: imm} }

// end is the immediate with which a sender ends a grant: all its bytes are there.
type end struct {
	grant uint64
}

func (e end) imm() uint64 { return e.grant | endBit }

func parseEnd(imm uint64) end { return end{grant: imm &^ endBit} }

// EndsGrant tells which of the two an immediate is: the end of a grant, for Fetcher.Ended, or FIN, for Announcer.Finished.
func EndsGrant(imm uint64) bool { return imm&endBit != 0 }
