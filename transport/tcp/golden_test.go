package tcp

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

var update = flag.Bool("update", false, "write the golden transcripts anew")

// transcript is who said what, as hexadecimal bytes.
type transcript struct{ strings.Builder }

func (tr *transcript) note(who string, what fmt.Stringer, parts ...[]byte) {
	fmt.Fprintf(tr, "\n%s: %v\n", who, what)
	for _, b := range parts {
		for len(b) > 0 {
			n := min(len(b), 32)
			fmt.Fprintf(tr, "    % x\n", b[:n])
			b = b[n:]
		}
	}
}

// golden compares a transcript with the one that is kept.
func (tr *transcript) golden(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(tr.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), tr.String(),
		"the bytes of the protocol have changed: that takes another version")
}

func TestGolden_Handshake(t *testing.T) {
	var tr transcript
	p := testParties()
	fmt.Fprintf(&tr, "# Handshake of rank %d with rank %d of the job \"job\", secret % x\n", p.Initiator,
		p.Responder, testSecret)
	note := func(who string, b []byte) {
		if who == "initiator" && strings.HasPrefix(string(b), message.Magic) {
			tr.note(who, message.Hello, b[:len(message.Magic)], b[len(message.Magic):len(message.Magic)+message.PrefixSize],
				b[len(message.Magic)+message.PrefixSize:])
			return
		}
		tr.note(who, message.Type(b[0]), b[:message.PrefixSize], b[message.PrefixSize:])
	}
	note("initiator", p.AppendHello(nil))
	note("responder", p.AppendChallenge(nil, &testSecret))
	note("initiator", p.AppendProof(nil, &testSecret))
	note("initiator", p.AppendRequest(nil, &testSecret, testParameters, []byte("of the initiator")))
	answer := testParameters
	answer.Checksum = true
	note("responder", p.AppendAccept(nil, &testSecret, answer, []byte("of the responder")))
	tr.WriteString("\n# In the place of any of the last three\n")
	note("either", message.AppendReject(nil, handshake.RejectOther, "the text says why"))
	tr.golden(t, "handshake.txt")
}

func TestGolden_Exchange(t *testing.T) {
	goldenExchange(t, false, "exchange.txt",
		"# One of each frame. Each is a line of header, then its payload.\n")
}

// The same with checksums.
func TestGolden_ExchangeWithChecksum(t *testing.T) {
	goldenExchange(t, true, "exchange-checksum.txt",
		"# One of each frame. Each is a line of header, its CRC32C, and if it has a payload that, and its CRC32C.\n")
}

// goldenExchange is one of each frame, from a queue pair to another, and what becomes of them.
func goldenExchange(t *testing.T, checked bool, file, title string) {
	initiator, responder := newSessionDevice(t), newSessionDevice(t)
	initiator.agreed.Checksum, responder.agreed.Checksum = checked, checked
	responder.dev.Regions.Seed([32]byte{1})
	responder.begin(t, false)
	defer responder.end(t)
	initiator.begin(t, true)
	defer initiator.end(t)

	alloc := func(s *session, content string, access transport.Access) transport.MR {
		mr, err := s.pd.Alloc(len(content), access)
		require.NoError(t, err)
		copy(mr.Bytes(), content)
		return mr
	}
	all := func(m transport.MR) []transport.SGE { return []transport.SGE{{MR: m, Length: len(m.Bytes())}} }
	at := func(m transport.MR, off, n uint64) transport.Segment {
		return transport.Segment{Key: m.Key(), Offset: off, Length: n}
	}
	target := alloc(responder, strings.Repeat("-", 32), transport.RemoteWrite)
	source := alloc(responder, "what is read in two pieces", transport.RemoteRead)
	room := alloc(responder, strings.Repeat("-", 16), transport.LocalWrite)
	word := alloc(responder, "\x2a\x00\x00\x00\x00\x00\x00\x00", transport.RemoteAtomic)
	text := alloc(initiator, "sixteen bytes it", 0)
	into := alloc(initiator, strings.Repeat("-", 12), transport.LocalWrite)

	require.NoError(t, responder.qp.PostRecv(&transport.RecvWR{ID: 1, Local: all(room)}))
	require.NoError(t, responder.qp.PostRecv(&transport.RecvWR{ID: 2}))
	before := alloc(initiator, strings.Repeat("-", 16), transport.LocalWrite)
	var tr transcript
	tr.WriteString(title)
	relay := func(who string, from, to *session) {
		for _, f := range from.heard(t) {
			whole := frame.Append(nil, f.Header, f.payload, checked)
			size := firstLink(from.qp).in.size
			tr.note(who, f.Op, whole[:frame.HeaderSize], whole[frame.HeaderSize:size], whole[size:][:f.Length],
				whole[size+f.Length:])
			_, err := syscall.Write(to.wire, whole)
			require.NoError(t, err)
		}
		to.poll()
	}
	for i, wr := range []*transport.SendWR{
		{Op: transport.OpWrite, Local: all(text), Remote: []transport.Segment{at(target, 8, 16)}},
		{Op: transport.OpSend, Flags: transport.FlagSolicited, Local: all(text)},
		{Op: transport.OpWriteImm, Local: all(text), Remote: []transport.Segment{at(target, 16, 16)},
			Imm: 0x55667788},
		{Op: transport.OpRead, Local: []transport.SGE{{MR: into, Length: 2},
			{MR: into, Offset: 2, Length: 10}},
			Remote: []transport.Segment{at(source, 0, 7), at(source, 21, 5)}},
		{Op: transport.OpFetchAdd, Local: []transport.SGE{{MR: before, Length: 8}},
			Remote: []transport.Segment{at(word, 0, 8)}, Operand: 0x1000},
		{Op: transport.OpFetchAdd, Flags: transport.FlagFence,
			Local:  []transport.SGE{{MR: before, Offset: 8, Length: 8}},
			Remote: []transport.Segment{at(word, 0, 8)}, Operand: 0x0102030405060708},
	} {
		wr.ID, wr.Flags = uint64(i), wr.Flags|transport.FlagSignaled
		require.NoError(t, initiator.qp.PostSend(wr))
	}
	relay("initiator", initiator, responder)
	relay("responder", responder, initiator)
	relay("initiator", initiator, responder) // what the fences held back
	relay("responder", responder, initiator)
	relay("initiator", initiator, responder)
	initiator.cq.Tick(epoch) // it has sent something: nothing is due
	initiator.cq.Tick(epoch.Add(initiator.dev.Query().TickPeriod))
	relay("initiator", initiator, responder)
	initiator.qp.Close()
	relay("initiator", initiator, responder)
	require.NoError(t, responder.qp.PostSend(&transport.SendWR{ID: 9, Op: transport.OpRead, Local: all(room),
		Remote: []transport.Segment{{Key: 0xbad, Length: 16}}}))
	relay("responder", responder, initiator)
	relay("initiator", initiator, responder)
	tr.golden(t, file)

	require.Equal(t, "--------sixteen sixteen bytes it", string(target.Bytes()))
	require.Equal(t, "sixteen bytes it", string(room.Bytes()))
	require.Equal(t, "what isieces", string(into.Bytes()))
	require.Equal(t, "\x2a\x00\x00\x00\x00\x00\x00\x00\x2a\x10\x00\x00\x00\x00\x00\x00",
		string(before.Bytes()))
	require.Equal(t, "\x32\x17\x06\x05\x04\x03\x02\x01", string(word.Bytes()))
	require.ErrorContains(t, responder.qp.Err(), "no region has the key 0xbad")
	require.Equal(t, transport.StatusRemoteAccess, responder.wcs[len(responder.wcs)-1].Status)
}
