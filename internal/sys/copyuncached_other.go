//go:build !amd64

package sys

// CopyUncached is the built-in copy.
func CopyUncached(dst, src []byte) { copy(dst, src) }

// FenceUncached does nothing: an ordinary copy is ordered as its processor orders stores.
func FenceUncached() {}
