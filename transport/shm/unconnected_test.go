package shm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/firstmessage"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// taker is a rank that takes messages without a connection, and notes what comes in which order.
type taker struct {
	*end
	ep    transport.Endpoint
	notes chan string
}

func (r *taker) Unconnected(peer uint32, message []byte) {
	r.notes <- fmt.Sprintf("%d: %s", peer, message)
}

func (r *taker) Connected(peer uint32, q transport.QP, private []byte) {
	r.notes <- fmt.Sprintf("%d is connected", peer)
	r.end.Connected(peer, q, private)
}

// takers are the ranks of a host, which share memory for first messages.
func takers(t *testing.T) (list []*taker) {
	t.Helper()
	var ranks []int
	for rank := range firstmessage.MinRanks {
		ranks = append(ranks, rank)
	}
	fd, err := firstmessage.New(ranks)
	require.NoError(t, err)
	defer sys.CloseShared(fd)
	for rank := range ranks {
		m, err := firstmessage.Attach(fd)
		require.NoError(t, err)
		dev, err := New(Options{FirstMessages: m})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dev.Close()) })
		r := &taker{end: &end{dev: dev, made: make(chan transport.QP, len(ranks))},
			notes: make(chan string, 2*len(ranks))}
		r.pd, err = dev.AllocPD()
		require.NoError(t, err)
		r.cq, err = dev.CreateCQ(64, 0)
		require.NoError(t, err)
		r.ep, err = dev.Listen(transport.Identity{Job: "takers", Rank: uint32(rank), Size: uint32(len(ranks))}, r)
		require.NoError(t, err)
		list = append(list, r)
	}
	return list
}

func (r *taker) send(t *testing.T, peer uint32, text string) {
	t.Helper()
	require.True(t, r.ep.(transport.UnconnectedSender).SendUnconnected(peer, []byte(text)))
}

// Every rank gets the first message of every other, once these are told to wake it.
func TestUnconnected_WakesThePeers(t *testing.T) {
	all := takers(t)
	for i, r := range all {
		for peer := range all {
			if peer != i {
				r.send(t, uint32(peer), "hello")
			}
		}
		r.ep.(transport.UnconnectedSender).Ask()
	}
	for i, r := range all {
		from := map[string]bool{}
		for range len(all) - 1 {
			from[<-r.notes] = true
		}
		for peer := range all {
			require.Equal(t, peer != i, from[fmt.Sprintf("%d: hello", peer)])
		}
		require.False(t, r.ep.(transport.UnconnectedSender).SendUnconnected(uint32((i+1)%len(all)), nil),
			"the first message has gone")
	}
}

// A message precedes the connection, whoever makes it, although nobody was woken for the message.
func TestUnconnected_PrecedesTheConnection(t *testing.T) {
	for name, connect := range map[string]func(t *testing.T, from, to *taker){
		"in memory": func(t *testing.T, from, to *taker) {
			b := from.ep.(transport.Beginner)
			require.True(t, b.Begin(from.rankOf(to), to.ep.Addr(), func() { t.Error("failed") }))
			b.Ask()
		},
		"through the socket": func(t *testing.T, from, to *taker) {
			require.NoError(t, from.ep.Connect(t.Context(), from.rankOf(to), to.ep.Addr()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := takers(t)
			for sender, receiver := 0, 1; receiver < len(all); sender, receiver = sender+2, receiver+2 {
				s, r := all[sender], all[receiver]
				s.send(t, uint32(receiver), "first")
				if receiver%4 == 1 {
					connect(t, s, r)
				} else {
					connect(t, r, s)
				}
				require.Equal(t, fmt.Sprintf("%d: first", sender), <-r.notes)
				require.Equal(t, fmt.Sprintf("%d is connected", sender), <-r.notes)
				require.Equal(t, fmt.Sprintf("%d is connected", receiver), <-s.notes)
			}
		})
	}
}

// rankOf returns the rank of another taker.
func (r *taker) rankOf(other *taker) uint32 { return other.dev.end.id.Rank }

// Ports other than a rank's first have no such memory, and neither have devices without.
func TestUnconnected_NeedsMemory(t *testing.T) {
	all := takers(t)
	require.False(t, all[0].ep.(transport.UnconnectedSender).SendUnconnected(transport.PeerAt(1, 1), nil))
	d := openDoor(t, Options{})
	require.False(t, d.ep.(transport.UnconnectedSender).SendUnconnected(1, nil))
}
