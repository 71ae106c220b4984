package coll

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTableOfChoices(t *testing.T) {
	ch, err := ParseSelection("allgather:ring")
	require.NoError(t, err)
	require.NoError(t, ch.ReadTable([]byte(`[
		{"operation": "allreduce", "algorithm": "ring", "minRanks": 4, "maxRanks": 8, "minBytes": 100},
		{"operation": "Allreduce", "algorithm": "reduce-bcast", "maxBytes": 1000},
		{"operation": "Allgather", "algorithm": "bruck"},
		{"operation": "Alltoallv", "algorithm": "scattered", "minRanks": 2}
	]`)))
	var s Schedule
	for _, x := range []struct {
		call   Call
		name   string
		reason Reason
	}{
		{Call{Operation: OpAllreduce, Size: 4, Count: 100, ElemSize: 1, Commutative: true}, "ring", FromTable},
		{Call{Operation: OpAllreduce, Size: 4, Count: 100, ElemSize: 1}, "reduce-bcast", FromTable}, // no ring
		{Call{Operation: OpAllreduce, Size: 4, Count: 99, ElemSize: 1, Commutative: true}, "reduce-bcast",
			FromTable},
		{Call{Operation: OpAllreduce, Size: 9, Count: 1001, ElemSize: 1, Commutative: true},
			"direct", Chosen},
		{Call{Operation: OpAllreduce, Size: 4, Count: 100, ElemSize: 1, Commutative: true, InOrder: true},
			"in-order", Chosen},
		{Call{Operation: OpAllgather, Size: 4, Count: 100, ElemSize: 1}, "ring", Forced},
	} {
		name, reason := ch.Build(&s, &x.call)
		assert.Equal(t, x.name, name)
		assert.Equal(t, x.reason, reason)
	}
	for text, says := range map[string]string{
		``:      "no list of rules",
		`{}`:    "no list of rules",
		`[] []`: "follows",
		`[{"operation": "Allreduce", "algorithm": "rign"}]`:                               "rule 1 of the table: Allreduce has no",
		`[{"operation": "Alreduce", "algorithm": "ring"}]`:                                "no collective",
		`[{"operation": "Allreduce", "algorithm": "ring", "bytes": 1}]`:                   "unknown field",
		`[{"operation": "Allreduce", "algorithm": "ring", "minBytes": -1}]`:               "negative",
		`[{"operation": "Allreduce", "algorithm": "ring", "minRanks": 3, "maxRanks": 2}]`: "below",
		`[{"operation": "Allgatherv", "algorithm": "ring", "maxBytes": 3}]`:               "different lengths",
	} {
		assert.ErrorContains(t, new(Selection).ReadTable([]byte(text)), says, text)
	}
}

func FuzzTableOfChoices(f *testing.F) {
	f.Add([]byte(`[{"operation": "Allreduce", "algorithm": "ring", "minRanks": 4, "maxBytes": 8}]`), 4, 8)
	f.Fuzz(func(t *testing.T, text []byte, size, count int) {
		var ch Selection
		if ch.ReadTable(text) != nil || size < 1 || size > 64 || count < 0 || count > 1000 {
			return
		}
		for _, o := range []Operation{OpBarrier, OpBcast, OpAllreduce, OpAllgather} {
			var s Schedule
			ch.Build(&s, &Call{Operation: o, Size: size, Count: count, ElemSize: 1})
		}
	})
}
