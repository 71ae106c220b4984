package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// The length that a rank has passed is found by the tag of its message in a mailbox; where the root differs,
// no length is named.
func TestPassedBy(t *testing.T) {
	tagOf := func(call coll.Call) int {
		c := &Collective{Call: call, Signature: call.Signature()}
		c.Tag = CollectiveTag(false, 7, call.Operation, c.Signature)
		return mailboxTag(c)
	}
	mine := coll.Call{Operation: coll.OpBcast, Root: 3, Count: 20, ElemSize: 8, Size: 1024}
	c := &Collective{Call: mine}
	found := 0
	for n := range 100 {
		theirs := mine
		theirs.Count = n
		if passed := c.passedBy(tagOf(theirs)); n != mine.Count && passed != unknownLength {
			require.Equal(t, 8*n, passed)
			found++
		}
	}
	require.Greater(t, found, 90, "others have the signature of two lengths, or of a root")
	for root := range mine.Size {
		if root == mine.Root {
			continue
		}
		theirs := mine
		theirs.Root = root
		require.Equal(t, unknownLength, c.passedBy(tagOf(theirs)), "root %d", root)
	}
}
