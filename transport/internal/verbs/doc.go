// Package verbs has the verbs objects that all software providers share: protection domains, regions
// with their keys, the queues of a queue pair, and the checks of posted requests. How bytes move is the
// provider's own.
package verbs

import "github.com/weft-mpi/weft/transport"

var (
	_ transport.PD = (*PD)(nil)
	_ transport.MR = (*Region)(nil)
)
