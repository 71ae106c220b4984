// Package plain has queue pairs and completion queues for a provider that needs nothing of its own in them:
// their life, their queues, their completions, and how a driver sleeps. The provider's part is a Carrier: how
// bytes move. Package inproc in transport/verbstest is an example. Where every nanosecond of a queue pair
// counts, a provider has its own, of the parts in package verbs.
package plain
