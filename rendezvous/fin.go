package rendezvous

// fin is the immediate with which a receiver ends an announced message: nothing of the sender's buffer will be read any more.
type fin struct {
	id uint32 // of the RTS
}

func (f fin) imm() uint64 { return uint64(f.id) }

func parseFIN(imm uint64) fin { return fin{id: uint32(imm)} }
