package transport

// MW is a memory window: a part of a region that one peer reaches through a separate key, with separate
// rights, for as long as the window is bound. Binding costs no system call and no message. Access can be
// revoked by the owner (OpInvalidate) or by the peer itself when it has finished (OpSendInvalidate).
// InfiniBand calls such windows type 2: they are bound by a request in the send queue, to the QP of that
// queue.
//
// A request of the peer is checked in this order: the key is valid; the window is bound to the QP through
// which the request came; the rights; the bounds. Offsets count from the window's first byte.
//
// A binding ends, and its key is never valid again, when the key is invalidated, the window is bound again or
// deallocated, or the QP ends (closed, or in error). A Read through it that has not been answered by then is
// refused. So before invalidating a key that it has used for Reads, a user waits for the Reads, or uses
// FlagFence.
type MW interface {
	// Key returns what the peer needs. It changes with every OpBind, as soon as the OpBind is posted, so that
	// a Send posted right after it can carry the key. The key becomes valid once the OpBind is carried out.
	// It is 0 if there is none.
	Key() Key

	// Deallocate frees the window, whether it is bound or not. An OpBind of it that has not been carried out
	// fails.
	Deallocate() error
}

// Bind describes what OpBind binds: Length bytes (at least one) of a region from Offset, with rights. Window,
// region and QP belong to the same PD, and the region has the right BindWindow. OpBind is carried out in the
// order of the send queue: later requests find the window bound, and the memory to which it was bound before
// is no longer reachable.
type Bind struct {
	Window MW
	MR     MR
	Offset int // with RemoteAtomic a multiple of 8, counted from an address that is one
	Length int // bytes
	// one or more of RemoteRead, RemoteWrite and RemoteAtomic; the last two require LocalWrite for the region
	Access Access
}
