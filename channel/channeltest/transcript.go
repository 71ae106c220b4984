package channeltest

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

var update = flag.Bool("update", false, "write the golden transcripts anew")

// The constants of the flags.
const (
	headMix    = 0x9e3779b97f4a7c15
	wrapStep   = 0xd1b54a32d192ed03
	wrapUnstep = 0x6106ccfa448e5ab // its inverse modulo 2^64
)

// Ring is a ring of docs/internals/spec/channel.md, from its descriptor or from the reply that granted it.
type Ring struct {
	SlotSize, Lines uint32
	Key, Generation uint64
}

// ReadRing parses a descriptor: the ring with which a channel begins.
func ReadRing(d []byte) Ring {
	slot := binary.LittleEndian.Uint32(d[20:])
	return Ring{
		SlotSize: slot, Lines: min(max(8*((slot+63)/64), 64), 126),
		Key: binary.LittleEndian.Uint64(d[4:]), Generation: binary.LittleEndian.Uint64(d[12:]),
	}
}

// ReplySlot is the place of the reply to a resize request.
type ReplySlot struct {
	Key, Offset, Generation uint64
}

// ReadRequest parses the body of ENLARGE or SHRINK.
func ReadRequest(b []byte) (phase uint32, l ReplySlot, err error) {
	if len(b) != 28 {
		return 0, ReplySlot{}, fmt.Errorf("a request of %d bytes", len(b))
	}
	l = ReplySlot{
		Key: binary.LittleEndian.Uint64(b[4:]), Offset: binary.LittleEndian.Uint64(b[12:]),
		Generation: binary.LittleEndian.Uint64(b[20:]),
	}
	if l.Generation == 0 || l.Offset%64 != 0 {
		return 0, ReplySlot{}, fmt.Errorf("a reply slot at %d with generation %d", l.Offset, l.Generation)
	}
	return binary.LittleEndian.Uint32(b), l, nil
}

// ReadReply parses a Write into a reply slot, and checks every word of it.
func (l ReplySlot) ReadReply(b []byte) (ack bool, phase uint8, r Ring, err error) {
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	if len(b) != 64 {
		return false, 0, Ring{}, fmt.Errorf("a reply of %d bytes", len(b))
	}
	sum := crc32.Checksum(append(append([]byte{}, b[8:20]...), b[24:56]...),
		crc32.MakeTable(crc32.Castagnoli))
	ack, phase = b[8] == 1, b[9]
	r = Ring{
		SlotSize: binary.LittleEndian.Uint32(b[12:]), Lines: binary.LittleEndian.Uint32(b[16:]),
		Key: word(24), Generation: word(40),
	}
	switch {
	case word(0) != l.Generation || word(56) != l.Generation:
		err = fmt.Errorf("flags %#x and %#x where the request has %#x", word(0), word(56), l.Generation)
	case binary.LittleEndian.Uint32(b[20:]) != sum:
		err = fmt.Errorf("checksum %#x, not %#x", b[20:24], sum)
	case !ack && (b[8] != 2 || r != Ring{}), b[10]|b[11] != 0, word(32)|word(48) != 0, ack &&
		r.Generation == 0 && (phase != 0 || r != Ring{}):
		err = fmt.Errorf("a reply %x", b)
	case ack && phase == 0 && r == Ring{}: // the first ring stays
	case ack && (r.SlotSize < 100 || r.SlotSize > 200_000 || phase > 0 &&
		r.Lines != max(8*((r.SlotSize+63)/64), 64)):
		err = fmt.Errorf("a ring of %d lines with slots of %d bytes", r.Lines, r.SlotSize)
	}
	return ack, phase, r, err
}

// Message is one message of a ring.
type Message struct {
	Line, Lines    int
	Wrap           uint64
	Credit         uint32
	Kind           uint8
	RefusesPayload bool
	PrevEnd        int // in the first message of a wrap: the end of the previous wrap
	Body           []byte
}

// ReadMessage parses a Write of b at an offset of the ring, and checks every word of it.
func (r Ring) ReadMessage(offset uint64, b []byte) (Message, error) {
	if offset%64 != 0 || len(b)%64 != 0 || len(b) == 0 || uint32(len(b)) > (r.SlotSize+63)/64*64 ||
		offset+uint64(len(b)) > uint64(r.Lines)*64 {
		return Message{}, fmt.Errorf("%d bytes at %d are no lines of the ring", len(b), offset)
	}
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	tail := word(len(b) - 8)
	length := word(0) & 0xffffff
	m := Message{
		Line: int(offset / 64), Lines: len(b) / 64, Wrap: (tail - r.Generation) * wrapUnstep,
		Credit: binary.LittleEndian.Uint32(b[8:]), Kind: b[12], RefusesPayload: b[13]&1 != 0,
		PrevEnd: int(binary.LittleEndian.Uint16(b[14:])),
	}
	switch {
	case word(0)>>24 != (tail+length*headMix)&0xff_ffff_ffff:
		return m, fmt.Errorf("the head %#x is not of the generation %#x", word(0), tail)
	case (16+length+8+63)/64 != uint64(m.Lines):
		return m, fmt.Errorf("a body of %d bytes in %d lines", length, m.Lines)
	case uint32(length) > r.SlotSize-24:
		return m, fmt.Errorf("a body of %d bytes in a slot of %d", length, r.SlotSize)
	case b[13]&^3 != 0:
		return m, fmt.Errorf("reserved bits %x", b[13])
	case m.PrevEnd > 0 && (m.Line > 0 || m.Wrap == 0) || m.PrevEnd > int(r.Lines):
		return m, fmt.Errorf("a message at line %d of wrap %d says that the previous wrap ended at %d",
			m.Line, m.Wrap, m.PrevEnd)
	}
	m.Body = b[16 : 16+length]
	return m, nil
}

// Head returns the first word of a message with a body of n bytes, in a wrap.
func (r Ring) Head(wrap, n uint64) uint64 {
	return (r.Tail(wrap)+n*headMix)&0xff_ffff_ffff<<24 | n
}

// Tail returns the last word of every message of a wrap.
func (r Ring) Tail(wrap uint64) uint64 { return r.Generation + wrap*wrapStep }

// AppendMessage appends a message to b, without checking that it is valid: the header is 32 bits of credit, 8
// of kind, 1 of payload refused, 7 reserved, and 16 for the line where the previous wrap ended.
func (r Ring) AppendMessage(b []byte, wrap, header uint64, body []byte) []byte {
	lines := (16 + len(body) + 8 + 63) / 64
	at := len(b)
	b = append(b, make([]byte, 64*lines)...)
	m := b[at:]
	binary.LittleEndian.PutUint64(m, r.Head(wrap, uint64(len(body))))
	binary.LittleEndian.PutUint64(m[8:], header)
	copy(m[16:], body)
	binary.LittleEndian.PutUint64(m[len(m)-8:], r.Tail(wrap))
	return b
}

// Transcript records the messages of a Pair.
type Transcript struct {
	strings.Builder
	rings      map[transport.Key]Ring
	largeRings map[transport.Key]bool // large rings in addition to a first ring that stays
	keepSmall  bool
	replySlots []ReplySlot
}

// Record makes the transcript record everything that a pair carries. The descriptors are those of the ends'
// receive rings.
func (t *Transcript) Record(p *Pair, a, b []byte) {
	t.rings = map[transport.Key]Ring{}
	for _, d := range [][]byte{a, b} {
		r := ReadRing(d)
		t.rings[transport.Key(r.Key)] = r
	}
	t.largeRings, t.keepSmall = map[transport.Key]bool{}, a[3]&1 != 0
	p.Carried = t.carried
}

// Say adds a comment.
func (t *Transcript) Say(format string, args ...any) { fmt.Fprintf(t, "# "+format+"\n", args...) }

// immediate describes an immediate.
func (t *Transcript) immediate(wr *transport.SendWR) {
	if wr.Imm>>31 == 0 {
		fmt.Fprintf(t, "FIN    %#x\n", wr.Imm)
		return
	}
	t.written(fmt.Sprintf("END    %#x", wr.Imm&^(1<<31)), wr)
}

func (t *Transcript) carried(from *End, wr *transport.SendWR, data []byte) {
	fmt.Fprintf(t, "%s → %s  ", from.Name, from.peer.Name)
	switch wr.Op {
	case transport.OpSend:
		fmt.Fprintf(t, "RETRANSMIT  %d bytes\n", len(data))
	case transport.OpWrite, transport.OpWriteImm:
		if wr.Op == transport.OpWriteImm && wr.Imm != 1<<32-1 {
			t.immediate(wr)
			return
		}
		for _, l := range slices.Backward(t.replySlots) { // the same place may have been used before
			if l.Key == uint64(wr.Remote[0].Key) && l.Offset == wr.Remote[0].Offset {
				if wr.Op == transport.OpWriteImm {
					fmt.Fprint(t, "RESENT ")
				}
				t.reply(l, data)
				return
			}
		}
		if _, is := t.rings[wr.Remote[0].Key]; !is {
			t.written("WRITE", wr)
			return
		}
		m, err := t.rings[wr.Remote[0].Key].ReadMessage(wr.Remote[0].Offset, data)
		if err != nil {
			fmt.Fprintf(t, "INVALID: %v\n", err)
			return
		}
		if m.Kind == 3 || m.Kind == 4 {
			_, l, err := ReadRequest(m.Body)
			if err != nil {
				fmt.Fprintf(t, "INVALID: %v\n", err)
				return
			}
			t.replySlots = append(t.replySlots, l)
		}
		switch beside := t.largeRings[wr.Remote[0].Key]; {
		case beside && (m.Credit != 0 || m.RefusesPayload || m.PrevEnd > 0 || m.Kind < 5 || m.Kind > 10):
			fmt.Fprintf(t, "INVALID: %s with credit %d after %d in a large ring\n", kindName(m.Kind),
				m.Credit, m.PrevEnd)
			return
		case !beside && m.Line == 0 && m.Wrap > 0 && m.PrevEnd == 0:
			fmt.Fprintf(t, "INVALID: wrap %d begins and does not say where the previous one ended\n", m.Wrap)
			return
		}
		fmt.Fprintf(t, "%s%s wrap %d line %d+%d%s credit %d%s%s%s\n", t.ringName(wr.Remote[0].Key),
			kindName(m.Kind), m.Wrap, m.Line, m.Lines, prevEnd(m),
			m.Credit, payloadRefusal(m), content(m), more(wr.Flags))
	case transport.OpRead:
		fmt.Fprintf(t, "READ   key %d [%d,+%d)\n", wr.Remote[0].Key, wr.Remote[0].Offset, wr.Remote[0].Length)
	default:
		fmt.Fprintf(t, "opcode %d\n", wr.Op)
	}
}

// written records a Write into granted memory.
func (t *Transcript) written(what string, wr *transport.SendWR) {
	s := wr.Remote[0]
	fmt.Fprintf(t, "%-6s key %d [%d,+%d)\n", what, s.Key, s.Offset, s.Length)
}

func (t *Transcript) reply(l ReplySlot, data []byte) {
	ack, phase, r, err := l.ReadReply(data)
	switch {
	case err != nil:
		fmt.Fprintf(t, "INVALID: %v\n", err)
	case ack && r == Ring{}:
		fmt.Fprintf(t, "ACK    phase %d: the first ring alone\n", phase)
	case ack:
		t.rings[transport.Key(r.Key)] = r
		t.largeRings[transport.Key(r.Key)] = t.keepSmall
		fmt.Fprintf(t, "ACK    phase %d: %d lines, slots of %d bytes, key %d\n", phase, r.Lines, r.SlotSize,
			r.Key)
	default:
		fmt.Fprintf(t, "NACK   phase %d\n", phase)
	}
}

// ringName returns a prefix for messages in a large ring.
func (t *Transcript) ringName(key transport.Key) string {
	if t.largeRings[key] {
		return "large ring "
	}
	return ""
}

var kindNames = [...]string{"?", "?", "CREDIT", "ENLARGE", "SHRINK", "EAGER", "RTS", "FIRST", "MORE",
	"PIECE", "BATCH", "LARGE", "CTS", "WITHDRAW", "ATS", "AGREE", "REVOKE", "UPDATE", "UPDATED",
	"CLAIMS", "PART"}

func kindName(k uint8) string {
	if int(k) >= len(kindNames) {
		k = 0
	}
	return fmt.Sprintf("%-6s", kindNames[k])
}

func prevEnd(m Message) string {
	if m.PrevEnd > 0 {
		return fmt.Sprintf(" after %d", m.PrevEnd)
	}
	return ""
}

func payloadRefusal(m Message) string {
	if m.RefusesPayload {
		return " refuses payload"
	}
	return ""
}

// content describes the bodies of the protocol layers' messages.
func content(m Message) string {
	b := m.Body
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	source := func(at int) string {
		return fmt.Sprintf("id %#x key %d [%d,+%d)", u64(at), u64(at+8), u64(at+16), u64(at+24))
	}
	switch k := kindNames[min(int(m.Kind), len(kindNames)-1)]; {
	case (k == "ENLARGE" || k == "SHRINK") && len(b) == 28:
		return fmt.Sprintf(" phase %d reply to key %d offset %d", u32(0), u64(4), u64(12))
	case k == "EAGER" && len(b) >= 8:
		return fmt.Sprintf(" context %d tag %d %s", u32(0), int32(u32(4)), payload(b[8:]))
	case k == "RTS" && len(b) == 40:
		return fmt.Sprintf(" context %d tag %d %s", u32(0), int32(u32(4)), source(8))
	case k == "FIRST" && len(b) >= 16:
		return fmt.Sprintf(" context %d tag %d of %d: %s", u32(0), int32(u32(4)), u64(8), payload(b[16:]))
	case k == "LARGE" && len(b) == 4:
		return fmt.Sprintf(" at line %d", u32(0))
	case k == "MORE":
		return " " + payload(b)
	case k == "PIECE" && len(b) == 32:
		return " " + source(0)
	case k == "CTS" && len(b) == 40:
		last := ""
		if u64(32)>>63 == 1 {
			last = " last"
		}
		return fmt.Sprintf(" for %#x grant %#x key %d [%d,+%d)%s", u64(0), u64(8), u64(16), u64(24),
			u64(32)&^(1<<63), last)
	case k == "WITHDRAW" && len(b) == 8:
		return fmt.Sprintf(" %#x", u64(0))
	case k == "ATS" && len(b) == 8:
		withdrawn := ""
		if u64(0)>>63 == 1 {
			withdrawn = " withdrawn"
		}
		return fmt.Sprintf(" for %#x%s", u64(0)&^(1<<63), withdrawn)
	case k == "BATCH":
		return batch(b)
	case len(b) > 0:
		return fmt.Sprintf(" body %x", b)
	}
	return ""
}

func payload(b []byte) string {
	if len(b) > 24 {
		return fmt.Sprintf("%d bytes %q…", len(b), b[:12])
	}
	return fmt.Sprintf("%d bytes %q", len(b), b)
}

// batch describes the messages of a BATCH.
func batch(b []byte) string {
	var s strings.Builder
	for len(b) > 0 {
		length, count := 0, 0
		if len(b) >= 12 {
			length, count = int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:]))+1
		}
		if count == 0 || len(b)-12 < length*count || count > 1 && length == 0 {
			return s.String() + fmt.Sprintf(" INVALID % x", b)
		}
		fmt.Fprintf(&s, " [context %d tag %d", binary.LittleEndian.Uint32(b[4:]),
			int32(binary.LittleEndian.Uint32(b[8:])))
		for b = b[12:]; count > 0; count-- {
			fmt.Fprintf(&s, " %s", payload(b[:length]))
			b = b[length:]
		}
		s.WriteByte(']')
	}
	return s.String()
}

func more(f transport.Flags) string {
	if f&transport.FlagMore != 0 {
		return " …"
	}
	return ""
}

// Golden compares the transcript with testdata/name.txt, or writes that file with -update. A transcript with
// an invalid message fails.
func (t *Transcript) Golden(tb testing.TB, name string) {
	tb.Helper()
	require.NotContains(tb, t.String(), "INVALID")
	path := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(tb, os.MkdirAll("testdata", 0o755))
		require.NoError(tb, os.WriteFile(path, []byte(t.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(tb, err)
	require.Equal(tb, string(want), t.String())
}
