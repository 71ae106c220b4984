package transport

// View is a sequence of bytes that are not contiguous in memory, addressed by their positions in the
// sequence.
type View interface {
	// Gather copies the bytes from a position on to dst.
	Gather(at int, dst []byte)
	// Scatter copies src to the bytes from a position on.
	Scatter(at int, src []byte)
}

// ViewRegistrar is a PD whose regions may be views; available if DeviceAttr.Views is set. Such a region may
// be used in the gather list of a Write that is not inline, in the scatter list of a Read, and as the target
// of a peer's Read. The hardware counterpart is a memory key with a layout.
type ViewRegistrar interface {
	// RegisterView registers n bytes of a view. access may be LocalWrite, RemoteRead and Unchanging. The
	// region's Bytes are nil. The provider gathers and scatters in calls that drive the queue pair, while a
	// request of either side names the region, and not after Deregister. RegisterView allocates nothing once
	// the device has warmed up.
	RegisterView(v View, n int, access Access) (MR, error)
}

// ViewRegistrarOf returns pd as a ViewRegistrar, or nil if its device does not support views.
func ViewRegistrarOf(pd PD) ViewRegistrar {
	if !pd.DeviceAttr().Views {
		return nil
	}
	return pd.(ViewRegistrar)
}
