package coll

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// pieceCall is a call that goes in pieces: of two ranks, or of more that share processors.
func pieceCall(o Operation, size, bytes int) Call {
	c := Call{Operation: o, Size: size, Count: bytes / suiteElem, ElemSize: suiteElem, Commutative: true,
		Fabric: Shared, Mailbox: 22 << 10, Pull: true, Quick: QuickAlways}
	if size > 2 {
		c.Processors = 2
	}
	return c
}

// nested depends on the order of its operands, and on the order in which it is applied.
var nested = operator{suiteElem, func(dst, left, right []byte) {
	for i := range dst {
		dst[i] = 3*left[i] + 5*right[i] + 1
	}
}}

// Operands are combined as by the algorithm which the call has where bytes do not move quickly, whatever the
// operator.
func TestPiecesDoNotChangeTheOrderOfOperands(t *testing.T) {
	for _, o := range []Operation{OpReduce, OpAllreduce, OpReduceScatterBlock, OpScan} {
		for size := 2; size <= 4; size++ {
			if o != OpReduce && size > 2 {
				continue
			}
			for _, bytes := range []int{9 << 10, 40<<10 + 3*suiteElem, 64 << 10, 130<<10 + suiteElem, 256 << 10} {
				for root := range size {
					for variant := range 3 {
						call := pieceCall(o, size, bytes)
						call.Root = root
						call.Commutative, call.InOrder = variant != 1, variant == 2
						plain := call
						plain.Quick = 0
						if root > 0 && o != OpReduce || !call.suitsPieces() {
							continue
						}
						require.Equal(t, runReduction(t, plain), runReduction(t, call),
							"%v of %d ranks, %d bytes, root %d, variant %d", o, size, bytes, root, variant)
					}
				}
			}
		}
	}
}

// runReduction returns the ranks' results of a call with an operator that is neither commutative nor associative.
func runReduction(t *testing.T, call Call) [][]byte {
	t.Helper()
	n := call.bytes()
	j := job{
		size: call.Size, op: nested,
		build: func(s *Schedule, rank int) {
			c := call
			c.Rank = rank
			c.Build(s)
		},
		input: func(rank int) []byte {
			if call.Operation == OpReduceScatterBlock {
				return random(rank, n*call.Size)
			}
			return random(rank, n)
		},
		output: func(rank int) int {
			if call.Operation == OpReduce && rank != call.Root {
				return 0
			}
			return n
		},
	}
	outputs, err := j.run(1)
	require.NoError(t, err)
	return outputs
}

// Calls of which a rank's mailboxes take the pieces go in pieces where bytes move quickly: their messages fit
// the mailboxes, and each is received in the round in which it is sent.
func TestPiecesFitTheMailboxes(t *testing.T) {
	for o := range inPieces {
		for size := 2; size <= 4; size++ {
			for _, bytes := range []int{9 << 10, 16 << 10, 48<<10 + suiteElem, 64 << 10, 256 << 10} {
				call := pieceCall(o, size, bytes)
				if !call.suitsPieces() || suitsMailboxes(&call) {
					continue
				}
				what := fmt.Sprintf("%v of %d ranks, %d bytes", o, size, bytes)
				require.True(t, size == 2 || o == OpBcast || o == OpReduce, what)
				schedules := make([]Schedule, size)
				rounds := -1
				for rank := range schedules {
					c := call
					c.Rank = rank
					name, _ := new(Selection).Build(&schedules[rank], &c)
					s := &schedules[rank]
					require.Equal(t, piecesName, name, what)
					require.True(t, s.Mailboxes && !s.Pulls, what)
					require.GreaterOrEqual(t, s.Rounds(), (bytes+call.Mailbox-1)/call.Mailbox, what)
					require.True(t, rank == 0 || s.Rounds() == rounds, what)
					rounds = s.Rounds()
				}
				for round := range rounds {
					messages := map[[2]int]int{} // bytes sent less those received, by sender and receiver
					for rank := range schedules {
						for _, step := range schedules[rank].Round(round) {
							switch step.Kind {
							case Send:
								require.LessOrEqual(t, step.Src.Len, call.Mailbox, what)
								messages[[2]int{rank, step.Peer}] += 1 + step.Src.Len
							case Recv:
								messages[[2]int{step.Peer, rank}] -= 1 + step.Dst.Len
							}
						}
					}
					for at, n := range messages {
						require.Zero(t, n, "%s: round %d, sender and receiver %v", what, round, at)
					}
				}
			}
		}
	}
}

// Where bytes do not move quickly, or the mailboxes take no piece, nothing goes in pieces. Calls that may go
// in pieces ask for mailboxes that take these, whether or not bytes move quickly.
func TestPiecesAreChosenWhereBytesMoveQuickly(t *testing.T) {
	for _, x := range []struct {
		what   string
		change func(c *Call)
		want   string
	}{
		{"quick", func(*Call) {}, piecesName},
		{"beyond the limit, as halves that were read are written slowly", func(c *Call) {
			c.Count, c.Rewrite, c.Quick = 2*piecesReducedMax/suiteElem, RewriteSlow, 64<<10
		}, piecesName},
		{"beyond that limit", func(c *Call) {
			c.Count, c.Rewrite, c.Quick = 2*piecesReducedMax/suiteElem+1, RewriteSlow, 64<<10
		}, pullName},
		{"halves are written slowly, but bytes move slowly, too", func(c *Call) {
			c.Count, c.Rewrite, c.Quick = 128<<10/suiteElem, RewriteSlow, 32<<10
		}, pullName},
		{"halves are written very slowly", func(c *Call) {
			c.Predefined, c.Rewrite, c.Quick = true, RewriteVerySlow, 0
		}, directName},
		{"halves are written very slowly, and are long", func(c *Call) {
			c.Count, c.Predefined, c.Rewrite, c.Quick = 2<<20/suiteElem, true, RewriteVerySlow, 0
		}, pullName},
		{"halves are written very slowly, as the bits could differ", func(c *Call) {
			c.Rewrite, c.Quick = RewriteVerySlow, 0
		}, pullName},
		{"up to the limit", func(c *Call) { c.Count = piecesReducedMax / suiteElem }, piecesName},
		{"beyond the limit", func(c *Call) { c.Count = piecesReducedMax/suiteElem + 1 }, pullName},
		{"half of it each", func(c *Call) { c.Count, c.Predefined = 16<<10/suiteElem, true }, piecesName},
		{"half of it each, in place at one", func(c *Call) {
			c.Count, c.Predefined, c.OwnRight = 16<<10/suiteElem, true, true
		}, piecesName},
		{"whole, as the bits could differ", func(c *Call) { c.Count = 16 << 10 / suiteElem }, directName},
		{"whole, as lines move slowly", func(c *Call) {
			c.Count, c.Predefined, c.Quick = 16<<10/suiteElem, true, 64<<10
		}, directName},
		{"short", func(c *Call) { c.Count = 1 }, directName},
		{"quick up to both halves", func(c *Call) { c.Quick = 32 << 10 }, piecesName},
		{"quick up to less", func(c *Call) { c.Quick = 16 << 10 }, pullName},
		{"not quick", func(c *Call) { c.Quick = 0 }, pullName},
		{"halves at the same time", func(c *Call) { c.Quick, c.Predefined = 0, true }, piecesName},
		{"longer halves", func(c *Call) {
			c.Quick, c.Predefined, c.Count = 0, true, 128<<10/suiteElem
		}, pullName},
		{"in one round", func(c *Call) {
			c.Quick, c.Predefined, c.Count = 0, true, 32<<10/suiteElem
		}, directName},
		{"not in one round, as the bits could differ", func(c *Call) {
			c.Quick, c.Count = 0, 32<<10/suiteElem
		}, pullName},
		{"small mailboxes", func(c *Call) { c.Mailbox = 432 }, pullName},
		{"two ranks that share a processor", func(c *Call) { c.Processors = 1 }, pullName},
		{"long elements", func(c *Call) { c.Count, c.ElemSize = 4, 20<<10 }, pullName},
	} {
		call := pieceCall(OpAllreduce, 2, 64<<10)
		x.change(&call)
		name, _ := new(Selection).Build(new(Schedule), &call)
		require.Equal(t, x.want, name, x.what)
	}
	reduce := pieceCall(OpReduce, 4, 64<<10) // of ranks that share processors
	reduce.Quick = 0
	name, _ := new(Selection).Build(new(Schedule), &reduce)
	require.Equal(t, piecesName, name)
	reduce.Processors = 4
	name, _ = new(Selection).Build(new(Schedule), &reduce)
	require.Equal(t, binomialName, name)
	for _, quick := range []int{QuickAlways, 16 << 10, 0} {
		call := pieceCall(OpAllreduce, 2, 64<<10)
		call.Quick, call.Mailbox = quick, 432
		require.True(t, call.OutgrowsMailboxes(32<<10))
		require.False(t, call.OutgrowsMailboxes(8<<10))
		call.Mailbox = 32 << 10
		require.False(t, call.OutgrowsMailboxes(32<<10))
	}
}

// TestReducePair: two ranks reduce long vectors with one message, which both copy, from where that is faster
// than if they share the combining.
func TestReducePair(t *testing.T) {
	for _, x := range []struct {
		bytes   int
		quick   int
		rewrite Rewrite
		want    string
	}{
		{128 << 10, QuickAlways, RewriteQuick, piecesName},
		{256 << 10, QuickAlways, RewriteQuick, directName},
		{128 << 10, 64 << 10, RewriteSlow, directName},
		{256 << 10, 32 << 10, RewriteSlow, pullName},
		{512 << 10, 0, RewriteSlow, directName},
		{512 << 10, 0, RewriteVerySlow, pullName},
		{1 << 20, 0, RewriteVerySlow, directName},
		{16 << 20, QuickAlways, RewriteQuick, directName},
		{32 << 20, QuickAlways, RewriteQuick, pullName},
	} {
		c := pieceCall(OpReduce, 2, x.bytes)
		c.Predefined, c.Quick, c.Rewrite = true, x.quick, x.rewrite
		name, _ := new(Selection).Build(new(Schedule), &c)
		require.Equal(t, x.want, name, "%+v", x)
		c.Predefined = false // the bits must not depend on what copies cost
		name, _ = new(Selection).Build(new(Schedule), &c)
		require.NotEqual(t, directName, name, "%+v", x)
	}
}

// TestPiecesVerySlow: where lines take long, long pieces do not suit calls that combine nothing.
func TestPiecesVerySlow(t *testing.T) {
	for _, o := range []Operation{OpBcast, OpAllgather, OpAlltoall, OpReduce} {
		for _, bytes := range []int{16 << 10, 32 << 10} {
			for _, rewrite := range []Rewrite{RewriteSlow, RewriteVerySlow} {
				c := pieceCall(o, 2, bytes)
				c.Quick, c.Rewrite = 32<<10, rewrite
				want := piecesName
				if o != OpReduce && bytes > 16<<10 && rewrite == RewriteVerySlow {
					want = pullName
				}
				name, _ := new(Selection).Build(new(Schedule), &c)
				require.Equal(t, want, name, "%v of %d bytes", o, bytes)
			}
		}
	}
}

// TestPiecesRewritten: where it takes long to write what the other rank has read, two ranks pull from a lower limit
// on.
func TestPiecesRewritten(t *testing.T) {
	for _, o := range []Operation{OpReduceScatterBlock, OpAllgather} {
		for rewrite, want := range map[Rewrite]string{RewriteQuick: piecesName, RewriteSlow: pullName} {
			c := pieceCall(o, 2, 128<<10)
			c.Rewrite = rewrite
			name, _ := new(Selection).Build(new(Schedule), &c)
			require.Equal(t, want, name, "%v", o)
			c.Count /= 2
			name, _ = new(Selection).Build(new(Schedule), &c)
			require.Equal(t, piecesName, name, "%v", o)
		}
	}
}

// TestOutgrowsMailboxes_WhateverTheAccess: a rank asks for larger mailboxes after the same call as one that does not
// know the access.
func TestOutgrowsMailboxes_WhateverTheAccess(t *testing.T) {
	for o := range inPieces {
		for bytes := 8; bytes <= 1<<20; bytes *= 2 {
			for _, size := range []int{2, 4} {
				c := pieceCall(o, size, bytes)
				c.Mailbox, c.Pull, c.Quick = 432, false, 0
				want := c.OutgrowsMailboxes(32 << 10)
				for rewrite := range RewriteVerySlow + 1 {
					for _, quick := range []int{0, 16 << 10, 64 << 10, QuickAlways} {
						c.Pull, c.Quick, c.Rewrite = true, quick, rewrite
						require.Equal(t, want, c.OutgrowsMailboxes(32<<10), "%v of %d bytes, %d ranks", o, bytes, size)
					}
				}
			}
		}
	}
}
