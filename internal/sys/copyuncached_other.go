//go:build !amd64

package sys

// CopyUncached is the built-in copy.
func CopyUncached(dst, src []byte) { copy(dst, src) }
