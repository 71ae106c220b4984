package eager_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
)

// BenchmarkSend is one small message: copied into a slot, carried by a Pair, parsed, released, and its credit
// told.
func BenchmarkSend(b *testing.B) {
	for _, n := range []int{8, 512} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			l := open(b, channel.Config{})
			payload := pattern(0, n)
			b.ReportAllocs()
			for b.Loop() {
				if sent, err := eager.TrySend(l.a, eager.Envelope{Tag: 1}, payload, 0); !sent || err != nil {
					b.Fatal(sent, err)
				}
				if err := l.Drive(); err != nil {
					b.Fatal(err)
				}
				_, body, ok, err := l.b.Next()
				if !ok || err != nil {
					b.Fatal(ok, err)
				}
				if _, got, err := eager.Parse(body); len(got) != n || err != nil {
					b.Fatal(len(got), err)
				}
				l.b.Release()
				_, err = l.b.Progress()
				if err = errors.Join(err, l.Drive(), drain(l.a)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBatch is one message of 8 bytes among as many as share a slot.
func BenchmarkBatch(b *testing.B) {
	l := open(b, channel.Config{})
	memory, payload := make([]byte, eager.BatchSize), pattern(0, 8)
	var batch eager.Batch
	var run eager.Run
	messages := 0
	b.ReportAllocs()
	for b.Loop() {
		for batch.SetMemory(memory); batch.Add(l.a, eager.Envelope{Tag: 1}, payload); messages++ {
		}
		sent, err := batch.TrySend(l.a, 0)
		if err = errors.Join(err, l.Drive()); !sent || err != nil {
			b.Fatal(sent, err)
		}
		_, rest, _, err := l.b.Next()
		for len(rest) > 0 && err == nil {
			rest, err = eager.ParseRun(rest, &run)
		}
		if err != nil {
			b.Fatal(err)
		}
		l.b.Release()
		_, err = l.b.Progress()
		if err = errors.Join(err, l.Drive(), drain(l.a)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(messages), "ns/message")
}

// BenchmarkVector is one vector of elements, some of which do not fit the slot that the one before them is
// in.
func BenchmarkVector(b *testing.B) {
	l := open(b, channel.Config{})
	elems := [][]byte{pattern(1, 30), nil, pattern(2, 400), pattern(3, 300), pattern(4, 1)}
	var m eager.Message
	b.ReportAllocs()
	for b.Loop() {
		o := channel.Waiting
		for m.Start(eager.Envelope{Tag: 2}, elems); o != channel.Done; {
			_, outcome, err := m.TrySend(l.a, 0)
			o = outcome
			if err = errors.Join(err, l.Drive(), drain(l.b)); err != nil {
				b.Fatal(err)
			}
			_, err = l.b.Progress()
			if err = errors.Join(err, l.Drive(), drain(l.a)); err != nil {
				b.Fatal(err)
			}
		}
	}
}
