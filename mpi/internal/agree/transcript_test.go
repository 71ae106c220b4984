package agree

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden transcripts anew")

// scene is a number of members whose messages arrive one at a time, in the order in which they were sent. It
// writes down all that happens.
type scene struct {
	t        *testing.T
	tables   []*Table
	dead     []bool
	queue    []letter
	returned []int
	text     strings.Builder
}

type letter struct {
	from int
	Send
}

func newScene(t *testing.T, n int) *scene {
	s := &scene{t: t, dead: make([]bool, n), returned: make([]int, n)}
	for i := range n {
		s.tables = append(s.tables, NewTable(i, n))
	}
	return s
}

func (s *scene) say(format string, args ...any) { fmt.Fprintf(&s.text, format+"\n", args...) }

// starts has members contribute: the and of all but a bit of their own, their index, and what failed.
func (s *scene) starts(members ...int) {
	for _, i := range members {
		v := Value{And: 0xff &^ (1 << i), Max: uint64(i)}
		for _, f := range s.tables[i].Failed() {
			v.Add(f)
		}
		number, out := s.tables[i].Start(v)
		s.say("%d begins agreement %d with %s", i, number, describe(&v))
		s.sends(i, out)
	}
}

func describe(v *Value) string {
	var set []int
	for e := range SetSize {
		if v.Has(e) {
			set = append(set, e)
		}
	}
	return fmt.Sprintf("and %08b, max %d, set %v", v.And&0xff, v.Max, set)
}

// sends puts messages in the queue, and says what the member has decided.
func (s *scene) sends(from int, out []Send) {
	for _, m := range out {
		s.queue = append(s.queue, letter{from, m})
		text := fmt.Sprintf("  %d -> %d  %v %d, ballot %d", from, m.To, m.Kind, m.Instance, m.Ballot)
		if m.HasAccepted {
			text += fmt.Sprintf(", accepted in ballot %d", m.Accepted)
		}
		if m.Kind.hasValue() {
			text += ": " + describe(&m.Value)
		}
		s.say("%s", text)
	}
	if v, ok := s.tables[from].Decision(uint32(s.returned[from])); ok {
		s.say("%d returns from agreement %d with %s", from, s.returned[from], describe(&v))
		s.returned[from]++
	}
}

// arrive takes messages until one is next that stop chooses, or none is left; it reports which.
func (s *scene) arrive(stop func(letter) bool) bool {
	for len(s.queue) > 0 {
		l := s.queue[0]
		if stop != nil && stop(l) {
			return true
		}
		s.queue = s.queue[1:]
		if s.dead[l.To] {
			continue
		}
		s.say("%d takes %v %d of %d", l.To, l.Kind, l.Instance, l.from)
		out, err := s.tables[l.To].Receive(l.from, &l.Message)
		require.NoError(s.t, err)
		s.sends(l.To, out)
	}
	return false
}

// dies ends a member: what it has sent and has not arrived is lost.
func (s *scene) dies(i int) {
	s.say("%d dies", i)
	s.dead[i] = true
	kept := s.queue[:0]
	for _, l := range s.queue {
		if l.from != i && l.To != i {
			kept = append(kept, l)
		}
	}
	s.queue = kept
}

// notice has members learn of a failure.
func (s *scene) notice(failed int, members ...int) {
	for _, i := range members {
		if !s.dead[i] {
			s.say("%d learns that %d has failed", i, failed)
			s.sends(i, s.tables[i].Fail(failed))
		}
	}
}

// next stops before a message of a kind from a member to another one.
func next(kind Kind, from, to int) func(letter) bool {
	return func(l letter) bool { return l.Kind == kind && l.from == from && l.To == to }
}

// The messages of whole agreements, as testdata has them.
func TestTranscripts(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		play func(s *scene)
	}{
		{"nobody-fails", 5, func(s *scene) {
			s.starts(0, 1, 2, 3, 4)
			s.arrive(nil)
		}},
		{"two-in-a-row", 3, func(s *scene) {
			s.starts(2, 1, 0)
			s.arrive(next(Commit, 0, 2)) // 0 and 1 have returned
			s.starts(0, 1)
			s.arrive(nil)
			s.starts(2)
			s.arrive(nil)
		}},
		{"root-dies-before-it-proposes", 4, func(s *scene) {
			s.starts(1, 2, 3)
			s.arrive(nil)
			s.dies(0)
			s.notice(0, 1, 2, 3)
			s.arrive(nil)
		}},
		{"root-dies-with-its-decision", 4, func(s *scene) {
			s.starts(0, 1, 2, 3)
			s.arrive(next(Commit, 0, 1)) // it has returned, and nobody else has
			s.dies(0)
			s.notice(0, 3, 2, 1)
			s.arrive(nil)
		}},
		{"one-with-members-below-dies", 4, func(s *scene) {
			s.starts(0, 1, 2, 3)
			s.arrive(next(Propose, 1, 3))
			s.dies(1)
			s.notice(1, 3, 0, 2)
			s.arrive(nil)
		}},
		{"two-roots-die", 5, func(s *scene) {
			s.starts(0, 1, 2, 3, 4)
			s.arrive(next(Ack, 1, 0)) // the first half has accepted
			s.dies(0)
			s.notice(0, 1, 2, 3, 4)
			s.arrive(next(Commit, 1, 3))
			s.dies(1)
			s.notice(1, 4, 3, 2)
			s.arrive(nil)
		}},
		{"late-for-the-ballot", 3, func(s *scene) {
			s.starts(0, 1)
			s.dies(0)
			s.notice(0, 1)
			s.starts(2) // its UP goes to 0, whose death it does not know
			s.queue = nil
			s.say("1 sends NEWER, as to one of ballot 0")
			s.sends(1, []Send{{To: 2, Message: Message{Kind: Newer, Ballot: 1}}})
			s.arrive(nil)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, c.n)
			c.play(s)
			for i := range s.tables {
				if !s.dead[i] {
					require.Positive(t, s.returned[i], "member %d has not returned\n%s", i, s.text.String())
				}
			}
			path := filepath.Join("testdata", c.name+".txt")
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o777))
				require.NoError(t, os.WriteFile(path, []byte(s.text.String()), 0o666))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), s.text.String())
		})
	}
}
