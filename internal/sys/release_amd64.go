//go:build !race

package sys

// StoreRelease stores a word after everything that the program has stored before. This processor does that
// with any store. (The race detector has to be told: for it there is another one.)
func StoreRelease(p *uint64, v uint64) { *p = v }

// StoreRelease32 is StoreRelease of a half word.
func StoreRelease32(p *uint32, v uint32) { *p = v }
