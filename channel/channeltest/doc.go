// Package channeltest is what the tests of the protocol layers share: the least provider there can be (Pair)
// and a channel over it (Open), two ranks of package sim (Sim), and a reader of what goes through a ring,
// written from docs/internals/spec/channel.md and not from package channel's code, with which protocols are
// written down message by message (Transcript).
package channeltest
