package mpi

import "github.com/weft-mpi/weft/mpi/internal/engine"

// LimitContextIDs bounds the communicators that this rank can lead to about 2^bits on each endpoint. All ranks
// must call it before they make one.
func LimitContextIDs(c *Comm, bits int) { c.job.ids.Limit(bits) }

// SetHost makes the process one of another host, as far as communicators are concerned.
func SetHost(c *Comm, host uint64) { c.job.host = host }

// SetHosts places the ranks of the world on hosts, as far as the algorithms of collectives are concerned. All
// ranks call it, before any collective of a communicator.
func SetHosts(c *Comm, of []int) { c.job.placement.Hosts = of }

// CollectiveBytes returns the size of the memory that collectives of ranks of this host have on the endpoint of
// c.
func CollectiveBytes(c *Comm) int { return c.e.Stats().Collective }

// RenewMailboxesAfter sets the number of bytes after which two ranks renew their larger mailboxes. Both call it.
func RenewMailboxesAfter(bytes int) { renewedAfter = bytes }

// Mailboxes returns the communicator's present mailboxes.
func Mailboxes(c *Comm) *engine.Mailboxes { return c.coll.mailboxes.current }
