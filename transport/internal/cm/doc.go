// Package cm is the part of connection management that providers share: which of two colliding connections
// stays, what is known of each peer, and how often unauthenticated callers are reported. Handshake itself,
// message by message, is the provider's own.
package cm
