// Package verbs has the objects of the verbs that every provider in software keeps in the same way:
// protection domains, regions and windows with their keys, the queues of a queue pair, and the checks of what
// is posted to them. How bytes move is the provider's own.
package verbs

import "github.com/weft-mpi/weft/transport"

var (
	_ transport.PD = (*PD)(nil)
	_ transport.MR = (*Region)(nil)
	_ transport.MW = (*Window)(nil)
)
