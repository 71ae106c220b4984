// Package inproc is a provider for the ranks of one process, over Go memory. It is an example of what a
// provider takes where speed does not matter: regions, queues, completion handlers and connection
// management are the shared parts in transport/internal, and only how bytes move is here.
package inproc
