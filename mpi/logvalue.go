package mpi

import (
	"log/slog"
	"os"
)

// LogValue represents a communicator in the program's own logs (log/slog) as a group of attributes: its name,
// this process's rank in it, its size, and the host:
//
//	slog.Info("assembled", "mpi", world)
//
// weft's own log entries have the rank in the world and the host.
func (c *Comm) LogValue() slog.Value {
	if c == nil || c.commState == nil {
		return slog.StringValue("no communicator")
	}
	return slog.GroupValue(slog.String("comm", c.Name()), slog.Int("rank", c.rank), slog.Int("size", c.size),
		slog.String("host", hostName()))
}

// hostName is for people: the name that the host has for itself.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
