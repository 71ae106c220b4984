package keepalive

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var epoch0 = time.Unix(1000, 0)

const testPeriod = 25 * time.Millisecond

// ticking is one end of a connection, as far as it ticks: a machine and its clock, and what they have said.
type ticking struct {
	State
	Clock
	lost bool
}

func newTicking() *ticking {
	return &ticking{State: NewState(), Clock: Clock{Period: testPeriod}}
}

// at ticks at a time, and reports whether the peer is to hear something.
func (e *ticking) at(now time.Time) (say bool) {
	due, counts := e.Clock.Tick(now)
	if !due {
		return false
	}
	say, lost := e.State.Tick(counts)
	e.lost = e.lost || lost
	return say
}

// Whenever a peer falls silent, it is lost no sooner than after the timeout; and no later than a period after
// it, if the ticks come in time.
func TestKeepalive_SilenceIsFoundInTimeAndNotBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		late := time.Duration(rapid.Int64Range(0, int64(testPeriod)).Draw(t, "most that a tick is late"))
		before := rapid.IntRange(0, 5).Draw(t, "ticks before the silence")
		e, now := newTicking(), epoch0
		step := func() {
			now = now.Add(testPeriod + time.Duration(rapid.Int64Range(0, int64(late)).Draw(t, "late")))
		}
		var last time.Time // that something came
		e.at(now)
		for range before {
			last = now.Add(time.Duration(rapid.Int64Range(0, int64(testPeriod)-1).Draw(t, "after the tick")))
			e.Received = true
			step()
			e.at(now)
			require.False(t, e.lost)
		}
		if before == 0 { // it is connected now, and silent from the beginning
			last = now.Add(time.Duration(rapid.Int64Range(0, int64(testPeriod)-1).Draw(t, "after the tick")))
			e.State = NewState()
		}
		for !e.lost {
			step()
			e.at(now)
		}
		silence := now.Sub(last)
		require.GreaterOrEqual(t, silence, MaxMissed*testPeriod)
		require.LessOrEqual(t, silence, (MaxMissed+1)*(testPeriod+late))
	})
}

// Two ends that have nothing to say never lose each other while they tick in time, however their ticks fall.
func TestKeepalive_IdleEndsKeepEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ends := [2]*ticking{newTicking(), newTicking()}
		due := [2]time.Time{epoch0, epoch0.Add(time.Duration(rapid.Int64Range(0, int64(testPeriod)).Draw(t,
			"phase")))}
		type message struct {
			to int
			at time.Time
		}
		var way []message
		for range 200 {
			who := 0
			if due[1].Before(due[0]) {
				who = 1
			}
			now := due[who]
			for len(way) > 0 && !way[0].at.After(now) {
				ends[way[0].to].Received = true
				way = way[1:]
			}
			if ends[who].at(now) {
				ends[who].Sent = true
				way = append(way, message{1 - who, now.Add(testPeriod / 4)})
			}
			require.False(t, ends[who].lost)
			due[who] = now.Add(testPeriod + time.Duration(rapid.Int64Range(0, int64(testPeriod)/2).Draw(t,
				"late")))
		}
	})
}

// An end says something only where it has said nothing for a whole period.
func TestKeepalive_WhoSpeaksSaysNothingMore(t *testing.T) {
	e, now := newTicking(), epoch0
	require.True(t, e.at(now))
	for i := range 10 {
		now = now.Add(testPeriod)
		e.Sent = i%2 == 0
		require.Equal(t, i%2 == 1, e.at(now))
	}
}

// A whole job that is stopped and goes on: the first tick after the stop, however late, is not counted
// against the peer, which says something at its own first tick. So is every later stop.
func TestKeepalive_StoppedTogether(t *testing.T) {
	for _, stop := range []time.Duration{2*testPeriod + 1, MaxMissed * testPeriod, time.Hour} {
		e, now := newTicking(), epoch0
		for range 100 {
			now = now.Add(stop)
			e.at(now)
			require.False(t, e.lost, "a stop of %v", stop)
		}
		require.Zero(t, e.Missed)
		for range MaxMissed {
			require.False(t, e.lost)
			now = now.Add(testPeriod)
			e.at(now)
		}
		require.True(t, e.lost, "a peer that stays silent after the stop is lost all the same")
	}
}

// Ticks that come too often are none: the timeout is measured in time.
func TestKeepalive_TooManyTicks(t *testing.T) {
	e, now := newTicking(), epoch0
	for now.Sub(epoch0) < MaxMissed*testPeriod {
		e.at(now)
		require.False(t, e.lost)
		now = now.Add(time.Millisecond)
	}
	for now.Sub(epoch0) <= (MaxMissed+1)*testPeriod {
		e.at(now)
		now = now.Add(time.Millisecond)
	}
	require.True(t, e.lost)
}
