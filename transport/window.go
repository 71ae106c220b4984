package transport

// MW is a memory window: a part of a region that one peer reaches through a key of its own, with rights of
// its own, for as long as the window is bound. Binding costs no system call and no message, and what the peer
// has been given can be taken back, by its owner (OpInvalidate) or by the peer itself when it has done its
// work (OpSendInvalidate). Windows are those that InfiniBand calls type 2: bound by a request of the send
// queue, and to the QP of that queue.
//
// A request of the peer is checked in this order: the key is one in use; the window is bound to the QP that
// the request came through; right; bounds. Offsets count from the window's first byte.
//
// A binding ends, and its key is never valid again, when the key is invalidated, the window is bound again or
// deallocated, or the QP ends (closed, or in error). A Read through it that is not answered by then is
// refused: who invalidates a key that he has read through waits for his Reads, or uses FlagFence.
type MW interface {
	// Key is what the peer needs. It is another with every OpBind, from the moment at which that is posted,
	// so that a Send posted right after it can tell the peer; it is in use once the OpBind is carried out. 0
	// if there is none to tell.
	Key() Key

	// Deallocate ends the window, whether it is bound or not. An OpBind of it that is not yet carried out
	// fails.
	Deallocate() error
}

// Bind is what OpBind binds: Length bytes (at least one) of a region from Offset, with rights. Window, region
// and QP are of one PD, and the region has the right BindWindow. OpBind is carried out in the order of the
// send queue: what is posted after it finds the window bound, and what the window was bound to before is out
// of reach.
type Bind struct {
	Window MW
	MR     MR
	Offset int // with RemoteAtomic a multiple of 8, counted from an address that is one
	Length int //
	// one or more of RemoteRead, RemoteWrite and RemoteAtomic; the last two want the region to have
	// LocalWrite
	Access Access
}
