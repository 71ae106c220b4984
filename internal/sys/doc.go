// Package sys is the only place that talks to the system directly: raw sockets, polling, memory maps,
// processes, assembly. Its functions are thin and typed; policy is elsewhere.
package sys
