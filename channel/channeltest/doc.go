// Package channeltest has the common parts of the tests of the protocol layers: a minimal provider (Pair) and
// a channel over it (Open), two ranks of package sim (Sim), and a recorder of the messages of a ring
// (Transcript), written by docs/internals/spec/channel.md and not by package channel's code.
package channeltest
