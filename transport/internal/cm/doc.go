// Package cm is the part of connection management that providers share: which of two colliding connections
// stays, the state of the connection to each peer, and a limit for reports about unauthenticated callers. The
// handshake messages are the provider's own.
package cm
