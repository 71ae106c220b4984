//go:build !amd64

package sys

// CopyLong is the built-in copy.
func CopyLong(dst, src []byte) { copy(dst, src) }
