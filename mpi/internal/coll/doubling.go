package coll

// In the doubling algorithms a rank exchanges a message with one partner in each round, at twice the distance
// of the round before. Through mailboxes, where a round is short, that suits more ranks than the direct
// algorithms do, in which a rank reads a message of every other: 4 lines of memory instead of 15 between 16
// ranks. Ranks that share processors do better with few rounds, if messages are short.

const doublingName = "doubling"

// doublingRanks is the smallest number of ranks for which doubling is faster than direct.
const doublingRanks = 8

// doublingShared, in bytes for each rank, is the length from which that is so for 4 ranks and more that share
// processors.
const doublingShared = 256

// doubling has the doubling algorithms by operation.
var doubling = map[Operation]algorithm{
	OpBarrier:   {doublingName, sizePowerOfTwo, barrierDoubling},
	OpAllreduce: {doublingName, sizePowerOfTwo, allreduceInMailboxes},
}

// doubles reports whether doubling is the fastest for a call, if the ranks' mailboxes take its messages. All
// ranks find the same.
func (c *Call) doubles() bool {
	switch {
	case c.Operation != OpAllreduce && c.Operation != OpBarrier || !powerOfTwo(c.Size) || c.InOrder:
		return false
	case c.sharesProcessors(): // one round suits short vectors, few operands suit longer ones
		return c.Size >= 4 && c.bytes() > doublingShared*c.Size && c.bytes() <= eagerMax
	}
	return c.Size >= doublingRanks && c.longestMessage() <= directMax
}

func barrierDoubling(s *Schedule, c *Call) {
	s.inMailboxes(c)
	for distance := 1; distance < c.Size; distance *= 2 {
		s.recv(c.Rank^distance, Span{})
		s.send(c.Rank^distance, Span{})
		s.round()
	}
}

func allreduceInMailboxes(s *Schedule, c *Call) {
	s.inMailboxes(c)
	allreduceDoubling(s, c.Rank, c.Size, c.Count, c.ElemSize)
}
