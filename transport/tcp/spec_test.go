package tcp

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/tcp/internal/admission"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/link"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/certificates"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// specTable is the table of docs/internals/spec/wire.md under a heading that begins with the given column, without its
// head.
func specTable(t *testing.T, heading, column string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/internals/spec/wire.md")
	require.NoError(t, err)
	under, inside := "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			under = strings.TrimLeft(line, "# ")
		}
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		var cells []string
		for _, c := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(c))
		}
		switch {
		case under == heading && cells[0] == column:
			inside = true
		case inside && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		}
	}
	require.NotEmpty(t, rows, "the specification has no table %q under %q", column, heading)
	return rows
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 0, 64)
	require.NoError(t, err)
	return n
}

// fields checks that a table of offsets has no gap and describes the bytes of a message: what each field is
// to hold is in want, by the beginning of its name.
func fields(t *testing.T, heading string, message []byte, want map[string][]byte) {
	t.Helper()
	at := uint64(0)
	for _, row := range specTable(t, heading, "offset") {
		require.Equal(t, at, number(t, row[0]), "%s, %s: offset", heading, row[2])
		n := uint64(len(message)) - at
		if row[1] != "…" {
			n = number(t, row[1])
		}
		found := false
		for name, bytes := range want {
			if strings.HasPrefix(row[2], name) {
				found = true
				require.Equal(t, hex.EncodeToString(bytes), hex.EncodeToString(message[at:at+n]), "%s, %s",
					heading, row[2])
			}
		}
		require.True(t, found, "%s: nothing is known of the field %q", heading, row[2])
		at += n
	}
	require.Equal(t, uint64(len(message)), at, "%s: length", heading)
}

func le16(n int) []byte    { return binary.LittleEndian.AppendUint16(nil, uint16(n)) }
func le32(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
func le64(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

func TestSpec_HandshakeMessages(t *testing.T) {
	p := testParties()
	p.Lane = 0
	prefix := func(t message.Type, n int) []byte { return append([]byte{byte(t), message.Version}, le16(n)...) }
	text, err := os.ReadFile("../../docs/internals/spec/wire.md")
	require.NoError(t, err)
	require.Contains(t, string(text), fmt.Sprintf("\n    % x\n", message.Magic))
	require.Contains(t, string(text), fmt.Sprintf("The version is %d.", message.Version))

	fields(t, "Prefix", message.AppendPrefix(nil, message.Accept, 0x1234), map[string][]byte{
		"type": {byte(message.Accept)}, "version": {message.Version}, "length": {0x34, 0x12}})
	fields(t, "Hello", p.AppendHello(nil), map[string][]byte{"magic": []byte(message.Magic),
		"prefix": prefix(message.Hello, 58), "job": p.Job[:],
		"initiator's rank": le32(3), "responder's rank": le32(5), "lane": {0, 0},
		"initiator's nonce": p.Nonces[0][:]})
	fields(t, "Challenge", p.AppendChallenge(nil, &testSecret),
		map[string][]byte{"prefix": prefix(message.Challenge, 64),
			"responder's nonce": p.Nonces[1][:], "responder's proof": p.Proof(&testSecret, message.RoleResponder,
				nil)})
	mine := message.Parameters{Reads: 7, Lanes: 1, Recv: 0x5678, Checksum: true}
	block := mine.Append(nil)
	follows := append(mine.Append(nil), "private"...)
	fields(t, "Proof", p.AppendProof(nil, &testSecret), map[string][]byte{"prefix": prefix(message.Proof, 32),
		"initiator's proof": p.Proof(&testSecret, message.RoleProving, nil)})
	fields(t, "Request", p.AppendRequest(nil, &testSecret, mine, []byte("private")),
		map[string][]byte{"prefix": prefix(message.Request, 51),
			"initiator's proof": p.Proof(&testSecret, message.RoleInitiator, follows), "parameters": block,
			"private data": []byte("private")})
	fields(t, "Accept", p.AppendAccept(nil, &testSecret, mine, []byte("private")),
		map[string][]byte{"prefix": prefix(message.Accept, 51),
			"responder's proof": p.Proof(&testSecret, message.RoleAccepting, follows), "parameters": block,
			"private data": []byte("private")})
	fields(t, "Parameters", block, map[string][]byte{"length": le16(message.ParametersSize), "reads": le16(7),
		"lanes":    le16(1),
		"checksum": {message.ChecksumCRC32C}, "reserved": {0}, "receive queue": le32(0x5678)})
	fields(t, "Reject", message.AppendReject(nil, handshake.RejectAuth, "text"),
		map[string][]byte{"prefix": prefix(message.Reject, 5), "code": {2},
			"text": []byte("text")})
}

// The authority's key is made from what the table says, and the names are made as said under it.
func TestSpec_Authority(t *testing.T) {
	inputs := map[string]string{}
	for _, row := range specTable(t, "Encryption", "input") {
		inputs[row[0]] = row[1]
	}
	require.Equal(t, map[string]string{"secret": "the job's secret", "salt": "job, as in Hello: 16 bytes",
		"info": "`" + certificates.AuthorityLabel + "`"}, inputs)
	job := handshake.JobHash(hostIdentity.Job)
	// HKDF by hand: RFC 5869 with one block of output.
	mac := func(key, message []byte) []byte {
		m := hmac.New(sha256.New,
			key)
		m.Write(message)
		return m.Sum(nil)
	}
	seed := mac(mac(job[:], testSecret[:]), append([]byte(certificates.AuthorityLabel), 1))
	c := certificatesOf(t, 3, nil, 0)
	require.Equal(t, ed25519.NewKeyFromSeed(seed), c.Key)
	require.Equal(t, fmt.Sprintf("CN=%x.weft", job), c.Root.Subject.String())
	leaf, err := c.Leaf()
	require.NoError(t, err)
	require.Equal(t, []string{fmt.Sprintf("3.%x.weft", job)}, leaf.Leaf.DNSNames)
	require.Equal(t, byte(message.Reject), byte(5))
}

func TestSpec_Proof(t *testing.T) {
	p := testParties()
	p.Lane = 0x0102
	for _, r := range []message.Role{message.RoleProving, message.RoleInitiator, message.RoleResponder, message.RoleAccepting} {
		fields(t, "Proofs", p.Proven(r), map[string][]byte{"`weft start-up": []byte("weft start-up 1 " + string(r) + "\x00"),
			"job": p.Job[:], "initiator's rank": le32(3), "responder's rank": le32(5), "lane": {2, 1},
			"initiator's nonce": p.Nonces[0][:], "responder's nonce": p.Nonces[1][:]})
	}
}

// Every message type has the lengths that the table says, and is refused beyond them.
func TestSpec_MessageTypes(t *testing.T) {
	rows := specTable(t, "Prefix", "type")
	require.Len(t, rows, int(message.Types)-1)
	p := testParties()
	for i, row := range rows {
		kind := message.Type(i + 1)
		require.Equal(t, []string{fmt.Sprint(i + 1), kind.String()}, row[:2])
		minLen, maxLen := int(number(t, row[2])), int(number(t, row[3]))
		fits := func(n int) bool {
			if _, _, err := message.ParsePrefix(message.AppendPrefix(nil, kind, n)); err != nil {
				return false
			}
			body := make([]byte, n)
			var err error
			switch kind {
			case message.Hello:
				_, err = message.ParseHello(append(message.AppendPrefix([]byte(message.Magic), kind, n), body...))
			case message.Challenge:
				q := testParties()
				q.Nonces[1] = [message.NonceSize]byte{}
				if n == message.NonceSize+message.ProofSize {
					copy(body[message.NonceSize:], q.Proof(&testSecret, message.RoleResponder, nil))
				}
				err = q.TakeChallenge(body, &testSecret)
			case message.Proof:
				if n == message.ProofSize {
					copy(body, p.Proof(&testSecret, message.RoleProving, nil))
				}
				err = p.TakeProof(body, &testSecret)
			case message.Request, message.Accept:
				take, role := p.TakeRequest, message.RoleInitiator
				if kind == message.Accept {
					take, role = p.TakeAccept, message.RoleAccepting
				}
				if n >= message.ProofSize+message.ParametersSize {
					block := testParameters.Append(nil)
					block[0] = byte(min(n-message.ProofSize, message.MaxParameters)) // with fields of a later version, if there is room
					copy(body[message.ProofSize:], block)
				}
				copy(body, p.Proof(&testSecret, role, body[min(n, message.ProofSize):]))
				_, _, err = take(body, &testSecret)
			case message.Reject:
				return strings.Contains(handshake.ParseReject(body).Error(), "the peer says")
			}
			return err == nil
		}
		require.True(t, fits(minLen) && fits(maxLen), "%v of %d to %d bytes", kind, minLen, maxLen)
		require.False(t, fits(minLen-1) || fits(maxLen+1), "%v of %d to %d bytes", kind, minLen, maxLen)
	}
}

func TestSpec_RejectCodes(t *testing.T) {
	causes := map[string]error{"other": transport.ErrRefused, "version": transport.ErrVersion, "auth": transport.ErrAuth,
		"rank": transport.ErrRefused, "collision": cm.ErrCollision, "busy": cm.ErrBusy, "gone": handshake.ErrGone}
	codes := map[string]handshake.RejectCode{"other": handshake.RejectOther, "version": handshake.RejectVersion, "auth": handshake.RejectAuth, "rank": handshake.RejectRank,
		"collision": handshake.RejectCollision, "busy": handshake.RejectBusy, "gone": handshake.RejectGone}
	rows := specTable(t, "Reject", "code")
	require.Len(t, rows, len(codes))
	for _, row := range rows {
		code, known := codes[row[1]]
		require.True(t, known, row[1])
		require.Equal(t, number(t, row[0]), uint64(code), row[1])
		require.ErrorIs(t, handshake.ParseReject([]byte{byte(code)}), causes[row[1]])
	}
}

func TestSpec_Frames(t *testing.T) {
	h := frame.Header{Length: 0x01020304, Op: frame.Send, Flags: frame.KnownFlags, A: 0x1112131415161718, B: 0x2122232425262728}
	fields(t, "Header", h.Append(nil), map[string][]byte{"length": le32(0x01020304), "opcode": {byte(frame.Send)}, "flags": {frame.KnownFlags},
		"lane": {0, 0}, "a": le64(h.A), "b": le64(h.B)})
	for _, row := range specTable(t, "Header", "flag") {
		flag, known := map[string]uint8{"last": frame.Last, "solicited": frame.Solicited}[row[1]]
		require.True(t, known, row[1])
		require.Equal(t, number(t, row[0]), uint64(flag), row[1])
	}
	rows := specTable(t, "Opcodes", "opcode")
	require.Len(t, rows, int(frame.Ops)-1)
	for i, row := range rows {
		o := frame.Op(i + 1)
		require.Equal(t, []string{fmt.Sprint(i + 1), o.String()}, row[:2])
		maxLen := int(number(t, row[2]))
		_, err := frame.Parse(frame.Header{Length: maxLen, Op: o}.Append(nil))
		require.NoError(t, err, "%v of %d bytes", o, maxLen)
		_, err = frame.Parse(frame.Header{Length: maxLen + 1, Op: o}.Append(nil))
		require.Error(t, err, "%v of %d bytes", o, maxLen+1)
	}
	var b [frame.SegmentSize]byte
	frame.PutSegment(b[:], transport.Segment{Key: 1, Offset: 2, Length: 3})
	fields(t, "Reads", b[:], map[string][]byte{"key": le64(1), "offset": le64(2), "length": le64(3)})
}

func TestSpec_TerminateCodes(t *testing.T) {
	codes := map[string]frame.Reason{"local": frame.ReasonLocal, "access": frame.ReasonAccess, "a rule": frame.ReasonProtocol,
		"no Recv": frame.ReasonNoRecv, "more Reads": frame.ReasonReads, "a message is longer": frame.ReasonTooLong,
		"a checksum": frame.ReasonChecksum}
	rows := specTable(t, "Terminate", "layer")
	require.Len(t, rows, len(codes))
	for _, row := range rows {
		found := false
		for begins, code := range codes {
			if strings.HasPrefix(row[3], begins) {
				found = true
				require.Equal(t, code, frame.Reason(number(t, row[0])<<16|number(t, row[1])<<8|number(t, row[2])), row[3])
			}
		}
		require.True(t, found, row[3])
	}
}

func TestSpec_Limits(t *testing.T) {
	d, err := New(Options{})
	require.NoError(t, err)
	defer d.Close()
	ms := func(d time.Duration) uint64 { return uint64(d.Milliseconds()) }
	want := map[string]uint64{
		"header of a frame":                       frame.HeaderSize,
		"each checksum":                           frame.SumSize,
		"payload of a frame":                      frame.MaxPayload,
		"payload of ReadRequest and Terminate":    frame.MaxControl,
		"segments of a list":                      frame.MaxSegments,
		"Reads and Atomics outstanding, each way": message.MaxReads,
		"payload of Atomic":                       frame.SegmentSize,
		"bytes of a message":                      maxMessage,
		"private data":                            message.MaxPrivate,
		"text of a Reject or Terminate":           handshake.MaxText,
		"unproven connections at once":            admission.MaxConns,
		"lanes of a queue pair":                   message.MaxLanes,
		"addresses for lanes":                     maxInterfaces,
		"words of a frame over lanes":             frame.LaneWords,
		"numbers that a direction may be ahead":   frame.Window,
		"payload of Lost":                         frame.MaxLost,
		"lanes that one Lost tells of":            frame.MaxLostLanes,
		"sixteenths of the silence of a peer after which a lane is lost while others are not silent": maxMissedOfLane,
		"sixteenths of the silence of a peer after which a lane is lost in any case":                 maxMissedOfAll,
		"bytes that are read of an unproven peer":                                                    uint64(message.MaxUnauthenticated),
		"bytes of an encrypted handshake":                                                            link.MaxHandshake,
		"ms that an unproven peer has before another may take its place":                             ms(admission.Grace),
		"ms for an unproven peer to prove itself, by default":                                        ms(d.opts.AuthTimeout),
		"ms for the rest of the handshake":                                                           ms(provenTimeout),
		"ms that a peer may be silent, by default":                                                   ms(d.opts.PeerTimeout),
		"ms that a peer may be silent, at least":                                                     ms(MinPeerTimeout),
		"periods of the silence; Alive is sent in the second without a frame, at the latest":         keepalive.MaxMissed,
		"ms that the peer's connection is waited for after a collision":                              ms(cm.RetryPause),
	}
	got := map[string]uint64{}
	for _, row := range specTable(t, "Limits and times", "limit") {
		got[row[0]] = number(t, row[1])
	}
	require.Equal(t, want, got)
	require.Equal(t, handshake.MaxText, terminateText)
}
