package deadlock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/snapshot"
)

// A stage plays a Detector at a time of its own.
type stage struct {
	t     *testing.T
	d     *Detector
	now   time.Time
	state Job // what the ranks answer
	asked [][]int
	said  []Report
}

func playOn(t *testing.T, state Job) *stage {
	return &stage{t: t, d: NewDetector(len(state), 10*time.Second), now: time.Unix(0, 0), state: state}
}

// pass lets time pass, and has ranks answer at once when they are asked.
func (s *stage) pass(d time.Duration) *stage {
	for end := s.now.Add(d); ; {
		s.take()
		next := s.d.Next()
		if next.IsZero() || next.After(end) {
			s.now = end
			return s
		}
		if next.After(s.now) {
			s.now = next
		}
		s.d.Tick(s.now)
	}
}

func (s *stage) take() {
	for {
		ask, reports := s.d.Ready()
		s.said = append(s.said, reports...)
		if len(ask) == 0 {
			return
		}
		s.asked = append(s.asked, ask)
		for _, id := range ask {
			if s.state[id] != nil {
				answer := *s.state[id]
				s.d.Answer(s.now, id, &answer)
			}
		}
	}
}

func (s *stage) quiet(ids ...int) *stage {
	for _, id := range ids {
		s.d.Quiet(s.now, id)
	}
	return s
}

func (s *stage) titles() string {
	var titles []string
	for _, r := range s.said {
		titles = append(titles, r.Title)
	}
	return strings.Join(titles, "; ")
}

func TestDetector_TellsADeadlockOnce(t *testing.T) {
	s := playOn(t, jobOf(recv(1, 5, 41), recv(0, 6, 41), nil)).quiet(0, 1).pass(time.Minute)
	require.Equal(t, "deadlock: ranks 0-1 can never go on", s.titles())
	require.True(t, s.said[0].Proven)
	require.Equal(t, [][]int{{0, 1}, {0, 1, 2}}, s.asked[:2], "first the quiet ones, then all")
	s.d.Moving(0)
	s.quiet(0).pass(time.Minute)
	require.Len(t, s.said, 2, "after a rank has moved it is news again")
}

// A rank that becomes quiet while others are asked does not put the report off.
func TestDetector_OneBecomesQuietWhileOthersAreAsked(t *testing.T) {
	s := playOn(t, jobOf(recv(0, 5, 41), recv(1, 6, 41))).quiet(0).pass(200 * time.Millisecond)
	s.quiet(1).pass(2 * time.Second)
	require.Equal(t, "deadlock: no rank can ever go on", s.titles())
}

// Which reports end a job.
func TestAction(t *testing.T) {
	proven, unmoved, asked := Report{Proven: true}, Report{Unmoved: true}, Report{}
	for text, want := range map[string][3]bool{
		"report": {}, "abort": {true, false, false}, "abort-unmoved": {true, true, false},
	} {
		a, err := ParseAction(text)
		require.NoError(t, err)
		require.Equal(t, want, [3]bool{a.Why(&proven) != "", a.Why(&unmoved) != "", a.Why(&asked) != ""}, text)
	}
	_, err := ParseAction("kill")
	require.EqualError(t, err, "must be report, abort or abort-unmoved")
	require.Equal(t, "the job goes on; X=abort ends it, and so does a signal", OnlyReport.Advice(&proven, "X="))
}

func TestDetector_TellsADeadlockSoon(t *testing.T) {
	s := playOn(t, jobOf(recv(1, 5, 41), recv(0, 6, 41))).quiet(0, 1).pass(debounce + confirmAfter)
	require.Len(t, s.said, 1)
}

func TestDetector_TwoSetsOfSnapshotsMustAgree(t *testing.T) {
	s := playOn(t, jobOf(recv(1, 5, 41), recv(0, 6, 41), nil)).quiet(0, 1).pass(debounce)
	require.Len(t, s.asked, 1)
	s.state[1].Progress++
	s.pass(confirmAfter)
	require.Len(t, s.asked, 2)
	require.Empty(t, s.said)
	s.pass(askAgainAfter + confirmAfter)
	require.Equal(t, "deadlock: ranks 0-1 can never go on", s.titles())
}

func TestDetector_AMessageOnItsWay(t *testing.T) {
	state := jobOf(recv(1, 5, 41), recv(0, 6, 41))
	state[0].Channels = []snapshot.Channel{{Peer: 1, Sent: 1}}
	state[1].Channels = []snapshot.Channel{{Peer: 0}}
	s := playOn(t, state).quiet(0, 1).pass(9 * time.Second)
	require.Empty(t, s.said)
	state[0].Still, state[1].Still = 20*time.Second, 20*time.Second
	s.pass(20 * time.Second)
	require.Equal(t, "nothing has moved for 10s; what the ranks do", s.titles(), "it proves nothing")
}

func TestDetector_ARankThatEndsReleasesNobody(t *testing.T) {
	s := playOn(t, jobOf(recv(1, 5, 41), nil)).quiet(0).pass(time.Second)
	require.Empty(t, s.said)
	s.d.Ended(s.now, 1)
	s.pass(time.Second)
	require.Equal(t, "deadlock: rank 0 can never go on", s.titles())
	require.Contains(t, s.said[0].Lines[len(s.said[0].Lines)-1], "rank 1 has finished and sends no more")
}

func TestDetector_NothingHasMovedForLong(t *testing.T) {
	state := jobOf(recv(1, 5, 41), nil)
	state[1].Active, state[1].At = 1, "solver.go:70"
	s := playOn(t, state).quiet(0).pass(9 * time.Second)
	require.Empty(t, s.said)
	state[0].Still, state[1].Still = 10*time.Second, 4*time.Second
	s.pass(2 * time.Second)
	require.Empty(t, s.said, "rank 1 has moved 4 s ago")
	state[1].Still = 10 * time.Second
	s.pass(time.Minute)
	require.Equal(t, "nothing has moved for 10s; what the ranks do", s.titles())
	require.False(t, s.said[0].Proven)
}

// A rank that is stopped does not answer, and has not moved.
func TestDetector_NoAnswer(t *testing.T) {
	state := jobOf(recv(1, 5, 41), nil)
	state[1] = nil
	state[0].Still = 10 * time.Second
	s := playOn(t, state).quiet(0).pass(time.Minute)
	require.Equal(t, "nothing has moved for 10s; what the ranks do", s.titles())
	require.Equal(t, 1, s.said[0].Answers)
}

func TestDetector_Explain(t *testing.T) {
	s := playOn(t, jobOf(recv(1, 5, 41), nil))
	s.d.Explain(s.now)
	s.pass(time.Second)
	require.Equal(t, "what the ranks do", s.titles())
	require.Equal(t, 2, s.said[0].Answers)
	require.Equal(t, [][]int{{0, 1}}, s.asked)
}

// A question of the user is answered also while the detector asks for itself.
func TestDetector_ExplainWhileAsking(t *testing.T) {
	state := jobOf(recv(1, 5, 41), nil)
	state[0] = nil // it does not answer
	s := playOn(t, state).quiet(0).pass(debounce)
	s.d.Explain(s.now)
	s.pass(3 * answerWithin)
	require.Equal(t, "what the ranks do", s.titles())
}

func TestDetector_OthersSnapshotsAreDropped(t *testing.T) {
	s := playOn(t, jobOf(recv(1, 5, 41), recv(0, 6, 41)))
	s.d.Answer(s.now, 0, s.state[0]) // nobody has asked
	s.d.Explain(s.now)
	s.d.Answer(s.now, 0, &snapshot.Rank{Rank: 1, Size: 2})
	s.state[0] = nil
	s.pass(2 * answerWithin)
	require.Equal(t, 1, s.said[0].Answers)
}
