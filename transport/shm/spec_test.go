package shm

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
)

// specTable is the table of docs/internals/spec/shm.md under a heading, without its head.
func specTable(t *testing.T, heading, column string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/internals/spec/shm.md")
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

// layout checks that the fields of a table, by the first word of what they are, stand where they are said to.
func layout(t *testing.T, heading string, want map[string][2]uintptr) {
	t.Helper()
	rows := specTable(t, heading, "offset")
	require.Len(t, rows, len(want))
	for _, row := range rows {
		name, _, _ := strings.Cut(strings.ReplaceAll(strings.ReplaceAll(row[2], ":", " "), ";", " "), " ")
		w, ok := want[name]
		require.True(t, ok, "field %q", row[2])
		require.Equal(t, fmt.Sprint(w[0], w[1]), row[0]+" "+row[1], "field %q", row[2])
	}
}

func TestSpec_Entry(t *testing.T) {
	var e entry
	layout(t, "Entry", map[string][2]uintptr{
		"key": {unsafe.Offsetof(e.key), 8}, "kind": {unsafe.Offsetof(e.kind), 8},
		"where":  {unsafe.Offsetof(e.where), 8},
		"length": {unsafe.Offsetof(e.length), 8}, "domain": {unsafe.Offsetof(e.domain), 8},
		"puts": {unsafe.Offsetof(e.puts), 8},
	})
	require.EqualValues(t, 64, entrySize)
	require.EqualValues(t, 1<<20, verbs.MaxRegions)
	require.EqualValues(t, 63, verbs.Rights&^transport.Mappable)
}

func TestSpec_ConnectTable(t *testing.T) {
	var table connectTable
	layout(t, "Table of requests", map[string][2]uintptr{
		"version": {unsafe.Offsetof(table.version), 8}, "rank": {unsafe.Offsetof(table.rank), 8},
		"proof": {unsafe.Offsetof(table.proof), unsafe.Sizeof(table.proof)},
		"wake":  {unsafe.Offsetof(table.wake), unsafe.Sizeof(table.wake)}, "sleeping": {128, 8},
		"entries": {unsafe.Offsetof(table.entries), unsafe.Sizeof(table.entries)},
	})
	require.EqualValues(t, 128, unsafe.Offsetof(table.sleeping))
	require.EqualValues(t, 253, len(table.entries))
	var x connectEntry
	layout(t, "Request", map[string][2]uintptr{
		"state": {0, 8}, "initiator": {unsafe.Offsetof(x.initiator), 4},
		"responder":  {unsafe.Offsetof(x.responder), 4},
		"process":    {unsafe.Offsetof(x.pid), 4},
		"descriptor": {unsafe.Offsetof(x.fd), 4}, "inode": {unsafe.Offsetof(x.memory), 8},
		"block": {unsafe.Offsetof(x.block), 8},
	})
	require.Zero(t, unsafe.Offsetof(x.state))
	require.EqualValues(t, 64, unsafe.Sizeof(x))
	require.Equal(t, []int64{16384, 32768, 65536, 2 << 20, 66<<20 - 512*64},
		[]int64{doorbellsAt, firstKeysAt, frontAt, keysAt, blocksAt})
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, []int{entryFree, entryTaken, entryAsked, entryWithdrawn,
		entryStays, entryRefused})
}

func TestSpec_Block(t *testing.T) {
	var b controlBlock
	layout(t, "Block", map[string][2]uintptr{
		"tail": {unsafe.Offsetof(b.tail), 8}, "placementSeq": {unsafe.Offsetof(b.placementSeq), 8},
		"writeSeq": {unsafe.Offsetof(b.writeSeq), 8},
		"wants":    {unsafe.Offsetof(b.wants), 8}, "heartbeatSeq": {unsafe.Offsetof(b.heartbeatSeq), 8},
		"notifyEnable": {unsafe.Offsetof(b.notifyEnable), 8},
		"consumed":     {unsafe.Offsetof(b.consumed), 8}, "ring": {unsafe.Offsetof(b.ring), ringSize},
	})
}

func TestSpec_Doorbell(t *testing.T) {
	var b doorbell
	layout(t, "Doorbell", map[string][2]uintptr{
		"summary": {unsafe.Offsetof(b.summary), 8}, "sleeping": {unsafe.Offsetof(b.sleeping), 8},
		"words": {unsafe.Offsetof(b.words), unsafe.Sizeof(b.words)},
	})
}

// Each field of an Offer is given a value of its own, and its bytes are looked for where the table says.
func TestSpec_Offer(t *testing.T) {
	o := &connectInfo{arena: 1 << 38, block: 0x11_0000_0000, domain: 0x21222324,
		recv: 0x41424344, reads: 0x5152, asymmetric: true,
		queues: []queueInfo{{0x31_0000_0000, 0x171, wakeName{[16]byte{0xa1}, [16]byte{0xb1}}}},
		probe:  0x8182838485868788}
	for i := range o.secret {
		o.secret[i] = byte(0x90 + i)
	}
	bytes := o.append(nil)
	values := []string{"0000000040000000", "00000000 11000000", "24232221", "44434241", "5251",
		"01", "01", "8887868584838281",
		fmt.Sprintf("%x", o.secret), "00000000 31000000 71010000 a1" + strings.Repeat("00", 15) + "b1" +
			strings.Repeat("00", 15)}
	rows := specTable(t, "Offer", "offset")
	require.Len(t, rows, len(values))
	at := 0
	for i, row := range rows {
		off, err := strconv.Atoi(row[0])
		require.NoError(t, err)
		n, err := strconv.Atoi(row[1])
		require.NoError(t, err)
		require.Equal(t, at, off, "%v", row)
		if i > 0 {
			require.Equal(t, strings.ReplaceAll(values[i], " ", ""), fmt.Sprintf("%x", bytes[off:off+n]),
				"%v", row)
		}
		at += n
	}
	require.Len(t, bytes, at)
	back, rest, err := parseConnectInfo(append(bytes, 7, 8))
	require.NoError(t, err)
	require.Equal(t, o, back)
	require.Equal(t, []byte{7, 8}, rest)
}

func TestSpec_MessagesAndFrames(t *testing.T) {
	for _, row := range specTable(t, "Handshake", "message") {
		n, err := strconv.Atoi(row[1])
		require.NoError(t, err)
		require.Equal(t, row[0], messageType(n).String())
	}
	rows := specTable(t, "Ring", "frame")
	require.Len(t, rows, int(frameOps)-1)
	for i, row := range rows {
		require.Equal(t, strconv.Itoa(i+1), row[1])
		require.Equal(t, row[0], frameOp(i+1).String())
	}
	text, err := os.ReadFile("../../docs/internals/spec/shm.md")
	require.NoError(t, err)
	all := strings.Join(strings.Fields(string(text)), " ")
	for code := violation.Local; code <= violation.Own; code++ {
		words := code.String()
		if code == violation.Own {
			words = "the sender of the Terminate has requested what it may not access"
		}
		require.Contains(t, all, fmt.Sprintf("%d %s", code, words))
	}
	require.Contains(t, all, fmt.Sprintf("A frame is %d bytes", headerSize))
	require.Contains(t, all, fmt.Sprintf("A frame contains at most %d bytes of payload", framePayload))
	require.Contains(t, all, fmt.Sprintf("(up to %d bytes) is in the sender's arena: the frame has flag %d",
		bouncePiece, flagBounced))
	require.Contains(t, all, fmt.Sprintf("%d bytes of the ring are reserved", terminateReserve))
	require.Contains(t, all, fmt.Sprintf("one of %d places, and one of its messages is read", maxCallers))
}
