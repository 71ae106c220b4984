package coll

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCall_Repeats: a call repeats its like, whatever is alike for all calls of its communicator, and no call
// that differs in anything that its schedule follows.
func TestCall_Repeats(t *testing.T) {
	call := Call{Operation: OpBcast, Rank: 1, Size: 2, Root: 1, Count: 8, ElemSize: 4}
	same := call
	same.Fabric, same.Processors, same.Hosts = call.Fabric+1, 7, &Hosts{}
	require.True(t, same.Repeats(&call))
	require.False(t, new(Call).Repeats(&call))
	require.False(t, call.Repeats(new(Call)))
	for what, change := range map[string]func(c *Call){
		"operation":   func(c *Call) { c.Operation = OpReduce },
		"root":        func(c *Call) { c.Root = 0 },
		"count":       func(c *Call) { c.Count = 9 },
		"element":     func(c *Call) { c.ElemSize = 8 },
		"commutative": func(c *Call) { c.Commutative = true },
		"in order":    func(c *Call) { c.InOrder = true },
		"in place":    func(c *Call) { c.InPlace = true },
		"bounced":     func(c *Call) { c.Bounced = true },
		"mailbox":     func(c *Call) { c.Mailbox = 4096 },
		"predefined":  func(c *Call) { c.Predefined = true },
		"quick":       func(c *Call) { c.Quick = 1 },
		"rewrite":     func(c *Call) { c.Rewrite = RewriteSlow },
		"pull":        func(c *Call) { c.Pull = true },
	} {
		other := call
		change(&other)
		require.False(t, other.Repeats(&call), what)
	}
}

// TestMessages: the messages of a round stand before its other steps.
func TestMessages(t *testing.T) {
	var s Schedule
	c := Call{Operation: OpAllreduce, Rank: 1, Size: 3, Count: 1, ElemSize: 8, Mailbox: 4096}
	allreduceDirect(&s, &c)
	require.Equal(t, 4, Messages(s.Round(0)))
	require.Greater(t, len(s.Round(0)), 4)
	require.Zero(t, Messages(s.Round(0)[4:]))
	require.Equal(t, 1, Messages(s.Round(0)[:1]))
}
