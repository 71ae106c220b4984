package channel_test

import (
	"testing"

	"github.com/weft-mpi/weft/channel"
)

// BenchmarkReserveCommit is 16 small messages: made up and posted, carried by a Pair, found, released, and
// their credit told.
func BenchmarkReserveCommit(b *testing.B) {
	const messages = 16
	l := open(b, channel.Config{})
	b.ReportAllocs()
	for b.Loop() {
		for range messages {
			if l.a.Reserve(8) == nil || l.a.Commit(channel.Eager, false) != nil {
				b.Fatal("no room")
			}
		}
		if err := l.Drive(); err != nil {
			b.Fatal(err)
		}
		for range messages {
			if _, _, ok, err := l.b.Next(); !ok || err != nil {
				b.Fatal(ok, err)
			}
			l.b.Release()
		}
		if _, err := l.b.Progress(); err != nil {
			b.Fatal(err)
		}
		if err := l.Drive(); err != nil {
			b.Fatal(err)
		}
		if _, _, ok, err := l.a.Next(); ok || err != nil {
			b.Fatal(ok, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*messages), "ns/message")
}
