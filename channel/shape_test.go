package channel_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
)

// kept are the lines that data leaves free, half of them to CREDIT alone.
const kept = 12

// works tells whether a threshold is right for a ring, as docs/spec/channel.md wants it: five of them are more than the ring, so that
// CREDITs never fill the lines that are theirs; and when less than one is owed the greatest message finds room wherever it begins.
func works(threshold, lines, slot int) bool {
	for pos := range lines {
		total := slot
		if rest := lines - pos; rest < slot {
			total += rest
		}
		if total+kept > lines-(threshold-1) {
			return false
		}
	}
	return 5*threshold > lines
}

// shapes calls f with every shape that New accepts, and checks that those are the ones for which there is a threshold.
func shapes(t *testing.T, f func(cfg channel.Config)) {
	pd := channeltest.NewPair().A.PD()
	accepted := 0
	for size := 0; size <= 2112; size += 32 {
		for slots := -1; slots <= 8192/128+1; slots++ {
			cfg := channel.Config{SlotSize: size, Slots: slots}
			if cfg == (channel.Config{}) {
				continue // which stands for Default
			}
			possible := size >= 128 && size <= 2048 && size%64 == 0 && slots >= 1 && size*slots <= 8192
			if possible {
				lines, slot := size/64*slots, size/64
				possible = false
				for threshold := 1; threshold <= lines && !possible; threshold++ {
					possible = works(threshold, lines, slot)
				}
			}
			c, err := channel.New(pd, cfg)
			require.Equal(t, possible, err == nil, "%+v: %v", cfg, err)
			if err != nil {
				continue
			}
			require.NoError(t, c.Close())
			accepted++
			f(cfg)
		}
	}
	require.Greater(t, accepted, 100)
}

// TestShape_E12_TheThresholdInUseIsRight counts the lines that a rank consumes until it tells, in every shape.
func TestShape_E12_TheThresholdInUseIsRight(t *testing.T) {
	shapes(t, func(cfg channel.Config) {
		l := open(t, cfg)
		threshold := 0
		for ; l.b.Stats().Credits == 0; threshold++ {
			require.True(t, put(t, l.a, channel.Eager, nil, false), "%+v", cfg)
			l.drive(t)
			require.Len(t, take(t, l.b), 1)
			progress(t, l.b)
		}
		require.True(t, works(threshold, cfg.SlotSize/64*cfg.Slots, cfg.SlotSize/64), "%+v: %d lines", cfg, threshold)
	})
}

// TestShape_E12_DataNeverStarvesControlOrCredit fills both rings with data, whatever the shape and wherever they stand, while nobody
// reads. Control messages still go, and when one side reads it can tell; at last there is room for the greatest message.
func TestShape_E12_DataNeverStarvesControlOrCredit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	shapes(t, func(cfg channel.Config) {
		l := open(t, cfg)
		for range 2 {
			for i := range rng.IntN(cfg.SlotSize / 64 * cfg.Slots) { // so that the rings stand anywhere, each on its own
				from, to := l.a, l.b
				if i%3 == 0 {
					from, to = to, from
				}
				require.True(t, put(t, from, channel.Eager, nil, false))
				l.drive(t)
				take(t, to)
				progress(t, to)
				l.drive(t)
				take(t, from)
			}
			var sent [2][][]byte
			for i, c := range []*channel.Channel{l.a, l.b} {
				for n := c.MaxBody(); n >= 0; { // what data can take, to the last line
					body := bytes.Repeat([]byte{byte(len(sent[i]))}, rng.IntN(n+1))
					if put(t, c, channel.Eager, body, false) {
						sent[i] = append(sent[i], body)
					} else {
						n = len(body) - 1
					}
				}
				require.Nil(t, c.Reserve(0))
				for range kept / 2 {
					body := []byte{byte(len(sent[i]))}
					require.True(t, put(t, c, channel.RTS, body, false), "%+v: a control message finds no room", cfg)
					sent[i] = append(sent[i], body)
				}
				l.drive(t)
			}
			require.Equal(t, sent[0], take(t, l.b), "%+v", cfg)
			credits := l.b.Stats().Credits
			progress(t, l.b)
			require.Equal(t, credits+1, l.b.Stats().Credits, "%+v: a full ring was read and nothing told", cfg)
			l.drive(t)
			require.Equal(t, sent[1], take(t, l.a), "%+v", cfg)
			require.True(t, put(t, l.a, channel.Eager, letters(l.a.MaxBody()), false), "%+v: a full message finds no room", cfg)
			progress(t, l.a)
			l.drive(t)
			require.Len(t, take(t, l.b), 1)
			progress(t, l.b)
			l.drive(t)
			require.Empty(t, take(t, l.a))
		}
	})
}

// TestShape_E12_ACreditAlwaysFindsRoom has B, whose own ring is full of what A does not read, read all that A can send, line by line. Five
// CREDITs are the most that this takes, and none of them may have to wait.
func TestShape_E12_ACreditAlwaysFindsRoom(t *testing.T) {
	shapes(t, func(cfg channel.Config) {
		l := open(t, cfg)
		for put(t, l.b, channel.Eager, nil, false) {
		}
		for put(t, l.b, channel.RTS, nil, false) {
		}
		l.drive(t)
		for put(t, l.a, channel.RTS, nil, false) {
			l.drive(t)
			require.Len(t, take(t, l.b), 1)
			progress(t, l.b)
		}
		require.LessOrEqual(t, l.b.Stats().Credits, uint64(5), "%+v", cfg)
		require.Positive(t, l.b.Stats().Credits, "%+v", cfg)
	})
}

// TestShape_E12_ACreditNeverWaits lets both ranks send whatever there is room for, data and control, and read one message now and then.
// Each tells at once when it owes: there is room in every order of these.
func TestShape_E12_ACreditNeverWaits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var credits uint64
	shapes(t, func(cfg channel.Config) {
		l := open(t, cfg)
		ends := [2]*channel.Channel{l.a, l.b}
		eager := rng.IntN(2) // this one reads more than it sends
		for range 300 {
			i := rng.IntN(2)
			c := ends[i]
			if i == eager || rng.IntN(3) == 0 {
				_, _, _, err := c.Next()
				require.NoError(t, err)
				c.Release()
				progress(t, c)
			} else {
				kind, n := channel.RTS, 0
				if rng.IntN(2) == 0 {
					kind, n = channel.Eager, rng.IntN(c.MaxBody()+1)
				}
				put(t, c, kind, letters(n), false)
			}
			l.drive(t)
		}
		credits += l.a.Stats().Credits + l.b.Stats().Credits
	})
	require.Greater(t, credits, uint64(1000))
}
