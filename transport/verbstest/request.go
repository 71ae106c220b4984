package verbstest

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/weft-mpi/weft/transport"
)

// sge returns an element for the whole region.
func sge(m transport.MR) transport.SGE { return transport.SGE{MR: m, Length: len(m.Bytes())} }

// part returns an element for a part of a region.
func part(m transport.MR, off, n int) transport.SGE {
	return transport.SGE{MR: m, Offset: off, Length: n}
}

// segment returns a peer's segment for a part of a region.
func segment(m transport.MR, off, n int) transport.Segment {
	return transport.Segment{Key: m.Key(), Offset: uint64(off), Length: uint64(n)}
}

func send(id uint64, m transport.MR) *transport.SendWR {
	return &transport.SendWR{ID: id, Op: transport.OpSend, Flags: transport.FlagSignaled,
		Local: []transport.SGE{sge(m)}}
}

func recv(id uint64, m transport.MR) *transport.RecvWR {
	return &transport.RecvWR{ID: id, Local: []transport.SGE{sge(m)}}
}

// write returns a Write of all of from to the start of to.
func write(id uint64, from, to transport.MR) *transport.SendWR {
	return &transport.SendWR{ID: id, Op: transport.OpWrite, Flags: transport.FlagSignaled,
		Local: []transport.SGE{sge(from)}, Remote: []transport.Segment{segment(to, 0, len(from.Bytes()))}}
}

// read returns a Read that fills to from the start of from.
func read(id uint64, to, from transport.MR) *transport.SendWR {
	return &transport.SendWR{ID: id, Op: transport.OpRead, Flags: transport.FlagSignaled,
		Local: []transport.SGE{sge(to)}, Remote: []transport.Segment{segment(from, 0, len(to.Bytes()))}}
}

func with(wr *transport.SendWR, flags transport.Flags) *transport.SendWR {
	wr.Flags |= flags
	return wr
}

func without(wr *transport.SendWR, flags transport.Flags) *transport.SendWR {
	wr.Flags &^= flags
	return wr
}

// blockSize is the length of the parts of a message that are taken from noise.
const blockSize = 4096

// noise has random bytes. Copying and comparing parts of it costs a small part of making each byte, above all
// under the race detector.
var noise = func() []byte {
	list := make([]byte, 256<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(list) // never fails
	return list
}()

// pattern returns a block of a source's message with a sequence number.
func pattern(source, sequence uint64, block int) []byte {
	x := source*0x9e3779b97f4a7c15 ^ sequence*0xbf58476d1ce4e5b9 ^ uint64(block)*0x94d049bb133111eb
	x ^= x >> 29
	x *= 0xff51afd7ed558ccd
	at := x >> 32 % uint64(len(noise)-blockSize)
	return noise[at:][:blockSize]
}

func fill(buf []byte, source, sequence uint64) {
	for block := 0; len(buf) > 0; block++ {
		buf = buf[copy(buf, pattern(source, sequence, block)):]
	}
}

func check(buf []byte, source, sequence uint64) error {
	for block := 0; block*blockSize < len(buf); block++ {
		got := buf[block*blockSize : min((block+1)*blockSize, len(buf))]
		if err := equal(got, pattern(source, sequence, block)[:len(got)]); err != nil {
			return fmt.Errorf("source %d, message %d, from byte %d of %d: %w", source, sequence,
				block*blockSize, len(buf), err)
		}
	}
	return nil
}

// zero checks that memory is unwritten.
func zero(buf []byte) error { return equal(buf, make([]byte, len(buf))) }

// equal checks the contents of memory.
func equal(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d bytes, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d of %d is %#x, want %#x", i, len(got), got[i], want[i])
		}
	}
	return nil
}
