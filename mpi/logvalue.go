package mpi

import (
	"log/slog"
	"os"
)

// LogValue makes a communicator a group of attributes in the program's own logs (log/slog): its name, this
// process's rank in it, its size, and the host:
//
//	slog.Info("assembled", "mpi", world)
//
// What weft itself logs has the rank in the world and the host.
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
