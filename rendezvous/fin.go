package rendezvous

// fin is the immediate with which a receiver ends an announcement: nothing of the sender's buffer will be read any more.
type fin struct {
	id uint64 // of the announcement
}

func (f fin) imm() uint64 { return f.id }

func parseFIN(imm uint64) fin { return fin{id: imm} }
