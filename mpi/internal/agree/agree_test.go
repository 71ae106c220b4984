package agree

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// world is a number of members and the messages between them, each pair's in order. Failures become known to
// each member at a moment of its own.
type world struct {
	t        *testing.T
	rng      *rand.Rand
	n        int
	tables   []*Table
	dead     []bool
	links    map[[2]int][]Message
	unknown  []notice // failures that a member does not know yet
	calls    []uint32 // agreements begun
	returned []map[uint32]Value
	rounds   uint32
	// members learn of a failure by a connection: if they wait for the failed one, or one has sent to the other
	alone bool
	met   map[[2]int]bool
	seed  uint64
}

type notice struct{ at, failed int }

func newWorld(t *testing.T, n int, rounds uint32, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 20)), n: n, links: map[[2]int][]Message{}, rounds: rounds,
		seed: seed, met: map[[2]int]bool{},
		dead: make([]bool, n), calls: make([]uint32, n)}
	for i := range n {
		w.tables = append(w.tables, NewTable(i, n))
		w.returned = append(w.returned, map[uint32]Value{})
	}
	return w
}

// post puts messages on their links; a member that dies meanwhile has sent some of them.
func (w *world) post(from int, out []Send) {
	for _, s := range out {
		w.met[[2]int{from, s.To}], w.met[[2]int{s.To, from}] = true, true
		if w.dead[s.To] {
			continue
		}
		w.links[[2]int{from, s.To}] = append(w.links[[2]int{from, s.To}], s.Message)
	}
	for k := w.calls[from]; k > 0; k-- {
		if v, ok := w.tables[from].Decision(k - 1); ok {
			if _, again := w.returned[from][k-1]; !again {
				w.returned[from][k-1] = v
			}
		}
	}
}

// kill ends a member. What it has sent last may be lost, on each link from some message on: connections break
// at any point.
func (w *world) kill(i int) {
	w.dead[i] = true
	for link, queue := range w.links {
		if link[0] == i {
			w.links[link] = queue[:w.rng.IntN(len(queue)+1)]
		} else if link[1] == i {
			delete(w.links, link)
		}
	}
	for at := range w.n {
		if at != i && !w.dead[at] {
			w.unknown = append(w.unknown, notice{at, i})
		}
	}
}

// step does one thing at random; false if nothing is left to do.
func (w *world) step() bool {
	var do []func()
	for i := range w.n {
		begun := w.calls[i]
		_, done := w.returned[i][begun-1]
		if !w.dead[i] && begun < w.rounds && (begun == 0 || done) {
			do = append(do, func() {
				v := Neutral
				v.And, v.Max = w.contribution(i, begun), uint64(i)
				for f := range w.n {
					if w.tables[i].tree.failed[f] {
						v.Add(f)
					}
				}
				w.calls[i]++
				_, out := w.tables[i].Start(v)
				w.post(i, out)
			})
		}
	}
	for from := range w.n {
		for to := range w.n {
			link := [2]int{from, to}
			if queue := w.links[link]; len(queue) > 0 {
				do = append(do, func() {
					w.links[link] = queue[1:]
					out, err := w.tables[to].Receive(from, &queue[0])
					require.NoError(w.t, err)
					require.Nil(w.t, w.tables[to].Misled())
					require.False(w.t, w.tables[to].Excluded())
					w.post(to, out)
				})
			}
		}
	}
	for k, u := range w.unknown {
		if w.alone && !w.dead[u.at] && !w.met[[2]int{u.at, u.failed}] && (w.calls[u.at] == 0 ||
			!slices.Contains(w.tables[u.at].AwaitedFrom(w.calls[u.at]-1), u.failed)) {
			continue
		}
		do = append(do, func() {
			w.unknown = append(w.unknown[:k:k], w.unknown[k+1:]...)
			if !w.dead[u.at] {
				w.post(u.at, w.tables[u.at].Fail(u.failed))
				// the connection is cut: nothing of the failed one is taken any more
				delete(w.links, [2]int{u.failed, u.at})
			}
		})
	}
	if len(do) == 0 {
		return false
	}
	do[w.rng.IntN(len(do))]()
	return true
}

// contribution has some bits that all members have and some that one lacks.
func (w *world) contribution(i int, round uint32) uint64 { return ^(1 << ((uint32(i) + round) % 64)) }

// check wants every survivor to have returned, and all who have returned the same value.
func (w *world) check() {
	for k := range w.rounds {
		var agreed *Value
		for i := range w.n {
			v, ok := w.returned[i][k]
			if !ok {
				require.True(w.t, w.dead[i], "seed %d, alone %t: member %d has not returned from agreement %d", w.seed,
					w.alone, i, k)
				continue
			}
			if agreed == nil {
				agreed = &v
			}
			require.Equal(w.t, *agreed, v, "member %d, agreement %d", i, k)
		}
		for i := range w.n {
			if !w.dead[i] {
				require.Zero(w.t, agreed.And&^w.contribution(i, k), "member %d's contribution is missing", i)
				require.GreaterOrEqual(w.t, agreed.Max, uint64(i))
			}
		}
	}
}

// play runs a world to its end, and kills members at random moments.
func play(t *testing.T, n, deaths int, rounds uint32, seed uint64, alone bool) *world {
	w := newWorld(t, n, rounds, seed)
	w.alone = alone
	at := map[int]bool{}
	for range deaths {
		at[w.rng.IntN(8*n*int(rounds))] = true
	}
	for step := 0; w.step(); step++ {
		if at[step] {
			if victim := w.rng.IntN(n); !w.dead[victim] && deaths > 0 {
				w.kill(victim)
			}
		}
	}
	w.check()
	return w
}

// runs is how often something random is tried: AGREE_RUNS of the environment, or few.
func runs(few int) int {
	if n, err := strconv.Atoi(os.Getenv("AGREE_RUNS")); err == nil {
		return n
	}
	return few
}

// All members return the same value, whoever fails at whatever step, whether something tells all members of
// failures or not.
func TestAgreementIsUniform(t *testing.T) {
	for seed := range runs(2000) {
		n := 1 + seed%9
		deaths := seed / 9 % 3
		if n <= deaths {
			deaths = n - 1
		}
		play(t, n, deaths, 3, uint64(seed), seed/27%2 == 1)
		if t.Failed() {
			t.Fatalf("n=%d deaths=%d seed=%d", n, deaths, seed)
		}
	}
}

// Ten failures one after another, and more, leave an agreement among those who are left.
func TestManyFailures(t *testing.T) {
	for seed := range runs(100) {
		play(t, 16, 10, 4, uint64(seed), seed%2 == 1)
	}
}

// When nobody fails a member sends and receives at most six messages, and there are four sweeps over a tree
// of logarithmic depth.
func TestMessagesAreFew(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8, 100, 1000, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			type letter struct {
				from int
				Send
			}
			var queue []letter
			tables, sent, received := make([]*Table, n), make([]int, n), make([]int, n)
			post := func(from int, out []Send) {
				for _, s := range out {
					sent[from]++
					queue = append(queue, letter{from, s})
				}
			}
			for i := range n {
				tables[i] = NewTable(i, n)
				_, out := tables[i].Start(Neutral)
				post(i, out)
			}
			for len(queue) > 0 {
				l := queue[0]
				queue = queue[1:]
				received[l.To]++
				out, err := tables[l.To].Receive(l.from, &l.Message)
				require.NoError(t, err)
				post(l.To, out)
			}
			for i := range n {
				_, decided := tables[i].Decision(0)
				require.True(t, decided)
				require.LessOrEqual(t, sent[i], 6)
				require.LessOrEqual(t, received[i], 6)
			}
			depth := 0
			for i := n - 1; i > 0; depth++ {
				i = tables[0].tree.parent(i)
			}
			require.LessOrEqual(t, depth, bits.Len(uint(n)))
		})
	}
}

// When f members die a member sends at most (f+1)(3f+10) messages, however many members there are: there are at
// most f+1 ballots, in each of them a member has at most f+2 below it, whom it sends NEWER, PROPOSE and COMMIT,
// and it sends UP and ACK once, and once more when the member above it dies.
func TestMessagesAreFewWhenMembersDie(t *testing.T) {
	for _, n := range []int{4, 30, 300, 2000} {
		for _, f := range []int{1, 2, 10} {
			if f >= n {
				continue
			}
			t.Run(fmt.Sprintf("%d of %d", f, n), func(t *testing.T) {
				for seed := range runs(max(8/f, 1)) {
					maxSent := messagesWithDeaths(t, n, f, uint64(seed))
					require.LessOrEqual(t, maxSent, (f+1)*(3*f+10), "seed %d", seed)
				}
			})
		}
	}
}

// messagesWithDeaths has members agree once, and f of them die at random moments, every other one a root. It
// returns the most messages that a member has sent.
func messagesWithDeaths(t *testing.T, n, f int, seed uint64) int {
	type event struct {
		to, failed int // a member learns of a failure, if failed is not -1
		from       int
		m          Message
	}
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	var events []event
	tables, sent, dead := make([]*Table, n), make([]int, n), make([]bool, n)
	post := func(from int, out []Send) {
		for _, s := range out {
			sent[from]++
			events = append(events, event{s.To, -1, from, s.Message})
		}
	}
	for i := range n {
		tables[i] = NewTable(i, n)
		_, out := tables[i].Start(Neutral)
		post(i, out)
	}
	deaths := make([]int, f) // after so many events
	for i := range deaths {
		deaths[i] = rng.IntN(7 * n)
	}
	kill := func() {
		victim := rng.IntN(n)
		if rng.IntN(2) == 0 {
			victim = 0
		}
		for dead[victim] {
			victim = (victim + 1) % n
		}
		dead[victim] = true
		for i := range n {
			events = append(events, event{to: i, failed: victim})
		}
	}
	for step := 0; len(events) > 0; step++ {
		for _, at := range deaths {
			if at == step {
				kill()
			}
		}
		// Some come late, but those of one pair keep their order.
		k := 0
		if late := rng.IntN(min(len(events), 50)); events[late].failed >= 0 {
			k = late
		}
		e := events[k]
		copy(events[1:k+1], events[:k])
		events = events[1:]
		switch {
		case dead[e.to]:
		case e.failed >= 0:
			post(e.to, tables[e.to].Fail(e.failed))
		default:
			out, err := tables[e.to].Receive(e.from, &e.m)
			require.NoError(t, err)
			post(e.to, out)
		}
	}
	var decided *Value
	maxSent := 0
	for i := range n {
		maxSent = max(maxSent, sent[i])
		if dead[i] {
			continue
		}
		v, ok := tables[i].Decision(0)
		require.True(t, ok, "member %d has not decided", i)
		if decided == nil {
			decided = &v
		}
		require.Equal(t, *decided, v)
	}
	return maxSent
}

// A member that others take for failed learns it, and cannot return another value than they.
func TestExcludedMember(t *testing.T) {
	a := NewTable(0, 3)
	_, out := a.Start(Neutral)
	require.Empty(t, out)
	out, err := a.Receive(1, &Message{Kind: Newer, Ballot: 1})
	require.NoError(t, err)
	require.Empty(t, out)
	require.True(t, a.Excluded())
}

// Messages that no member can have sent are errors.
func TestViolations(t *testing.T) {
	a := NewTable(0, 3)
	_, err := a.Receive(1, &Message{Kind: Up, Ballot: 3})
	require.ErrorContains(t, err, "ballot 3")
	_, err = a.Receive(1, &Message{Kind: Up, Instance: 1})
	require.ErrorContains(t, err, "agreement 1")
}

func TestMessagesAreReadBack(t *testing.T) {
	v := Neutral
	v.Add(3)
	for _, m := range []Message{
		{Instance: 7, Kind: Up, Ballot: 2, Value: v},
		{Instance: 7, Kind: Up, Ballot: 2, Value: v, HasAccepted: true, Accepted: 1},
		{Kind: Propose, Value: v}, {Kind: Ack, Ballot: 9}, {Kind: Commit, Value: v},
		{Kind: Newer, Ballot: 1, History: 1<<60 + 1},
	} {
		b := m.Append(nil)
		require.LessOrEqual(t, len(b), MaxLen)
		got, err := Parse(b)
		require.NoError(t, err)
		require.Equal(t, m, got)
		_, err = Parse(b[:len(b)-1])
		require.Error(t, err)
	}
}

func FuzzParse(f *testing.F) {
	m := Message{Kind: Up, HasAccepted: true, Value: Neutral, History: 1 << 60}
	f.Add(m.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err == nil {
			require.Equal(t, b, m.Append(nil))
		}
	})
}

// deliver takes messages until none is left, and changes those of one member on their way.
func deliver(t *testing.T, tables []*Table, from int, out []Send, change func(*Send)) {
	t.Helper()
	for _, s := range out {
		if change(&s); s.To < 0 {
			continue
		}
		more, err := tables[s.To].Receive(from, &s.Message)
		require.NoError(t, err)
		deliver(t, tables, s.To, more, change)
	}
}

// A member that was told another decision than the others by one that has failed since learns of it from the
// one above, in the same agreement and in later ones: it knows who it was, and the others go on.
func TestMisled(t *testing.T) {
	for later := range 3 {
		tables := []*Table{NewTable(0, 4), NewTable(1, 4), NewTable(2, 4), NewTable(3, 4)}
		wrong := Neutral
		wrong.Max = 7
		for round := range later + 1 {
			lie := func(s *Send) { // of 1, above 3
				if s.To == 3 && round == 0 && s.Kind == Commit {
					s.Value = wrong
				}
			}
			for i, table := range tables {
				_, out := table.Start(Neutral)
				if i == 3 && round > 0 { // whose history 1 does not mind
					for k := range out {
						out[k].History = 0
					}
				}
				deliver(t, tables, i, out, func(s *Send) {
					if lie(s); s.To == 1 || s.To == 3 {
						s.History = 0
					}
				})
			}
		}
		v, ok := tables[3].Decision(uint32(later))
		require.True(t, ok)
		require.Equal(t, later == 0, v == wrong)
		for _, i := range []int{3, 0, 2} {
			deliver(t, tables, i, tables[i].Fail(1), func(*Send) {})
		}
		require.Equal(t, &Misled{By: 1, Above: 0}, tables[3].Misled(), "%d later", later)
		require.Nil(t, tables[0].Misled())
		require.Nil(t, tables[2].Misled())
	}
}

// Nothing is decided before all have contributed, whoever says so: who is told otherwise was left out. And
// who says two things is wrong.
func TestDecisionThatCannotBe(t *testing.T) {
	a := NewTable(1, 3)
	_, err := a.Receive(0, &Message{Kind: Commit, Value: Neutral})
	require.NoError(t, err)
	_, ok := a.Decision(0)
	require.False(t, ok)
	require.True(t, a.Excluded(), "others go on without it")
	a = NewTable(1, 3)
	a.Start(Neutral)
	_, err = a.Receive(0, &Message{Kind: Commit, Value: Neutral})
	require.NoError(t, err)
	_, err = a.Receive(0, &Message{Kind: Commit})
	require.ErrorContains(t, err, "COMMIT of agreement 0 contradicts")
	require.Nil(t, a.Misled())
}
