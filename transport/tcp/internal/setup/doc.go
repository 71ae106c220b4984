// Package setup runs the handshake of a connection. When it ends, both ends of the socket have proved to each
// other which ranks of the job they are, and know each other's parameters. Package message has the messages,
// and package certificates the certificates of encrypted connections.
package setup
