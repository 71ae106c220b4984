package coll

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// between counts the messages and the bytes of an algorithm's schedules that go from one host to another.
func between(x trial, a *algorithm, hosts *Hosts) (messages, bytes int) {
	for rank := range x.size {
		var s Schedule
		a.build(&s, x.call(rank))
		for _, step := range s.steps {
			if step.Kind == Send && hosts.of[rank] != hosts.of[step.Peer] {
				messages++
				bytes += step.Src.Len
			}
		}
	}
	return messages, bytes
}

// With two levels each host gets and sends what one rank would, whatever ranks it has; and of the algorithms
// that are chosen none has less between hosts.
func TestTwoLevelsSendLittleBetweenHosts(t *testing.T) {
	const ranksOfHost, hostCount = 8, 6
	const size = ranksOfHost * hostCount
	for what, hostOf := range map[string]func(rank int) int{
		"in turn": func(rank int) int { return rank % hostCount },
		"blocks":  func(rank int) int { return rank / ranksOfHost },
	} {
		of := make([]int, size)
		for rank := range of {
			of[rank] = hostOf(rank)
		}
		hosts := NewHosts(of)
		hosts.Inside = Shared
		for _, count := range []int{1, 4096, 65536} {
			n := count * suiteElem
			for o, limit := range map[Operation]struct{ messages, bytes int }{
				OpBarrier: {hostCount * 3, 0}, // dissemination among the leaders
				OpBcast:   {hostCount * 10, 2*hostCount*n + n},
				OpReduce:  {hostCount * 10, 2 * hostCount * n},
				// a short vector goes from each leader to all others at once
				OpAllreduce: {hostCount * (hostCount - 1), (hostCount - 1) * hostCount * n},
			} {
				x := trial{operation: o, size: size, count: count, root: 5, commutative: true, hosts: hosts}
				if o == OpBarrier {
					x.count = 0
				}
				if o == OpAllreduce || o == OpBarrier {
					x.root = 0
				}
				i, _ := operations[o].cheapest(x.call(0))
				require.Equal(t, "two-level", operations[o].algorithms[i].name, "%v, %s", x, what)
				messages, bytes := between(x, &operations[o].algorithms[i], hosts)
				require.LessOrEqual(t, bytes, limit.bytes, "%v, %s", x, what)
				if count == 1 {
					require.LessOrEqual(t, messages, limit.messages, "%v, %s", x, what)
				}
				for k := range operations[o].algorithms {
					a := &operations[o].algorithms[k]
					if k == i || o == OpBcast || a.fits != nil && !a.fits(x.call(0)) || what == "blocks" {
						continue
					}
					others, theirs := between(x, a, hosts)
					require.True(t, others >= messages || theirs >= bytes, "%v, %s: %s has %d messages and %d bytes, "+
						"two-level %d and %d", x, what, a.name, others, theirs, messages, bytes)
				}
			}
		}
	}
}
