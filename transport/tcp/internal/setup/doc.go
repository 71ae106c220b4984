// Package setup sets up connections: a socket goes in, and out comes a socket whose two ends have proved to
// each other which ranks of the job they are, and know each other's parameters. The messages are in package
// message, and the certificates of encrypted connections in package certificates.
package setup
