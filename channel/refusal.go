package channel

// refusal is how an end that has no memory for unexpected messages makes its peer announce payload, which is
// to send it by rendezvous, RTS first, instead of directly. It owns what each end has told the other about
// that.
type refusal struct {
	c            *Channel
	refuses      bool   // this end does; every message of ours says so
	refusedAfter uint32 // lines sent when that began: any later line tells the peer
	peerRefuses  bool   // the peer does, by its latest message
}

// RefusePayload tells the peer to send payload by rendezvous, RTS first, from now on (XOFF), or directly
// again (XON). The next message to the peer carries this; until it arrives, payload may come.
func (r *refusal) RefusePayload(on bool) {
	if on && !r.refuses {
		r.refusedAfter = r.c.send.sent
	}
	r.refuses = on
}

// PeerKnowsRefusal reports whether the peer had already received the refusal when it sent the message that
// Next returned last.
func (r *refusal) PeerKnowsRefusal() bool {
	return r.refuses && int32(r.c.recv.messageCredit-r.refusedAfter) > 0
}

// PeerRefusesPayload reports whether the peer requires payload to be sent by rendezvous.
func (r *refusal) PeerRefusesPayload() bool { return r.peerRefuses }
