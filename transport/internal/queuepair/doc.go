// Package queuepair has the common parts of all providers' queue pairs, completion queues and devices: their
// states, their queues, the flushing of posted work, completions and events, and their end. A provider embeds
// a QP, a CQ and a Device in its own and adds how bytes move. Calls on the path of a message are direct; the
// Provider and ProviderCQ interfaces are for what happens once in a connection's life.
package queuepair
