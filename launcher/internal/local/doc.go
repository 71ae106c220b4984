// Package local is the agent of this host: it starts ranks as processes, carries their output, input and PMI
// lines, signals them, and leaves nothing of them behind.
package local
