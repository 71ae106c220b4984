package transport

// View is a sequence of bytes that are not contiguous, by their positions in it.
type View interface {
	// Gather copies the bytes from a position on to dst.
	Gather(at int, dst []byte)
	// Scatter copies src to the bytes from a position on.
	Scatter(at int, src []byte)
}

// ViewRegistrar is a PD with regions whose bytes are not contiguous, where DeviceAttr has Views: elements of
// Writes that are not inline, and of Reads, may lie in them, and what peers Read. What RNICs have for this is
// a memory key with a layout of its own.
type ViewRegistrar interface {
	// RegisterView makes n bytes of a view a region. Peers may Read it at most: access is of LocalWrite and
	// RemoteRead. Its Bytes are nil. The provider gathers and scatters within calls that drive the queue
	// pair, while a request of this side or of a peer names the region, and not after Deregister. It
	// allocates nothing once the device has warmed up.
	RegisterView(v View, n int, access Access) (MR, error)
}

// ViewRegistrarOf is a PD as a ViewRegistrar; nil if its device has no Views.
func ViewRegistrarOf(pd PD) ViewRegistrar {
	if !pd.DeviceAttr().Views {
		return nil
	}
	return pd.(ViewRegistrar)
}
