//go:build !(mips || mips64 || ppc64 || s390x)

package wordcopy

// LittleEndian turns a word that was loaded in the machine's order into the value that its bytes have on the
// wire.
func LittleEndian(v uint64) uint64 { return v }
