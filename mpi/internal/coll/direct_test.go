package coll

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Up to four ranks that share processors combine directly where rounds would wait for turns, two ranks scatter
// what they reduce over a network directly, and two that need not copy scan in one message.
func TestChoicesWhereOneRoundIsFaster(t *testing.T) {
	const doubling, chain = "recursive-doubling", "pipelined-chain"
	for _, x := range []struct {
		o                Operation
		size, processors int
		fabric           Fabric
		predefined       bool
		bytes            int
		want             string
	}{
		{OpExscan, 4, 2, Shared, false, 1 << 20, directName}, {OpExscan, 5, 2, Shared, false, 1 << 20, doubling},
		{OpExscan, 4, 0, Shared, false, 1 << 20, doubling}, {OpExscan, 4, 2, Network, false, 1 << 20, doubling},
		{OpScan, 4, 2, Shared, false, 16 << 10, directName}, {OpScan, 4, 2, Shared, false, 32 << 10, chain},
		{OpReduceScatterBlock, 4, 2, Shared, false, 512 << 10, directName},
		{OpReduceScatterBlock, 4, 2, Shared, false, 1 << 20, pullName},
		{OpReduceScatterBlock, 8, 2, Shared, false, 512 << 10, pullName},
		{OpReduceScatterBlock, 2, 0, Loopback, false, 64, directName},
		{OpReduceScatterBlock, 2, 0, Network, true, 1 << 20, directName},
		{OpReduceScatterBlock, 3, 0, Network, true, 1 << 20, "pairwise"},
		{OpScan, 2, 0, Shared, true, 1 << 20, doubling}, {OpScan, 2, 0, Shared, false, 1 << 20, chain},
	} {
		c := Call{Operation: x.o, Size: x.size, Count: x.bytes / 8, ElemSize: 8, Commutative: true,
			Predefined: x.predefined, Fabric: x.fabric, Processors: x.processors, Mailbox: 432, Pull: x.fabric == Shared}
		name, _ := new(Selection).Build(new(Schedule), &c)
		assert.Equal(t, x.want, name, "%+v", x)
	}
}
