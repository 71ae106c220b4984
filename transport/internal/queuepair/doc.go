// Package queuepair has what queue pairs, completion queues and devices of all providers have in common:
// their states, their queues, the flush of what is posted, completions and events, and their end. A provider
// embeds a QP, a CQ and a Device in its own and adds how bytes move. What is called for every message is in
// the provider, or is a direct call; the Provider and ProviderCQ interfaces are for what happens once in a
// connection's life.
package queuepair
