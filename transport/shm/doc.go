// Package shm is the verbs over shared memory, for ranks of one host. docs/internals/spec/shm.md tells what
// two ends share, docs/internals/adr/0017 and 0018 why.
//
// A device has one arena, which all its peers map. Memory of PD.Alloc lies there, and peers write, read and
// change it themselves; other memory they read where the system lets them (process_vm_readv), and all else
// goes through a small ring in each direction, which the target's pass carries out.
//
// # What is particular
//
//   - Keys, protection domains, rights and bounds are checked by the user of a key, in the owner's table:
//
// they
//
//	  are enforced by cooperation, as between the threads of a program. Processes of other users, and those
//	  that do not know the job's secret, are not let in at all.
//	- A Write into memory of PD.Alloc is placed when PostSend returns, unless earlier requests or a fence
//	  hold it back. It leaves no trace but its bytes: see DeviceAttr.MaxPolledQPs.
//	- Reads and Atomics on such memory need nothing of the peer; they are carried out in the initiator's
//	  passes, or in Get.
//	- A peer that is stopped in the middle of a Write can wake up and finish it. Memory that it may be
//	  writing is set aside, and used again when it has gone on or its process has ended. The memory's owner
//	  may see such bytes after Deregister (Detach, a window's end) has returned; nobody else does.
//	- A process has ended when its wake socket is gone. A goroutine probes the sockets of all peers five times
//	  a second or, with more than 100 peers, less often. A process that is stopped is noticed by its missing
//	  Ticks.
//
// It needs Linux. Elsewhere it builds, and New says so.
package shm

import "github.com/weft-mpi/weft/transport"

var (
	_ transport.Device   = (*Device)(nil)
	_ transport.Endpoint = (*endpoint)(nil)
	_ transport.CQ       = (*cq)(nil)
	_ transport.QP       = (*qp)(nil)
)
