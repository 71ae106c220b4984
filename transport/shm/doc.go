// Package shm implements the verbs over shared memory, for ranks of one host. docs/internals/spec/shm.md
// specifies the shared memory; docs/internals/adr/0017 gives the reasons.
//
// A device has one arena, which all its peers map. Memory of PD.Alloc that peers may reach lies there, and
// they access it directly. They Read, Get and Put other memory if the system allows it (process_vm_readv,
// process_vm_writev). Everything else goes through a small ring in each direction, whose frames the target
// carries out in its passes.
//
// # What is particular
//
//   - Keys, protection domains, rights and bounds are checked by the user of a key, in the owner's table:
//     they are enforced by cooperation, as between the threads of a program. Processes of other users, and
//     those that do not know the job's secret, cannot connect at all.
//   - A Write into memory of PD.Alloc is placed when PostSend returns, unless earlier requests or a fence
//     hold it back. It leaves no trace but its bytes: see DeviceAttr.MaxPolledQPs.
//   - Reads and Atomics on such memory need nothing of the peer; they are carried out in the initiator's
//     passes, or in Get.
//   - A peer that is stopped in the middle of a Write can wake up and finish it. Memory that it may be
//     writing is quarantined, and reused when the peer has continued or its process has ended. The memory's
//     owner may see such bytes after Deregister (or Detach) has returned; nobody else does.
//   - A process has ended when its wake socket is gone (the socket at which peers wake a sleeping completion
//     queue; the kernel removes it with the process). A goroutine probes the sockets of all peers at least
//     five times a second or, with more than 100 peers, less often. A stopped process is detected by its
//     missing Ticks.
//
// A barrier is the membarrier system call: with it, a peer that revokes a key makes all its peers' earlier
// stores visible, so that they need no fences on the path of a Write. Where the system lacks it, they use
// fences.
//
// It needs Linux. Elsewhere it builds, and New returns an error.
package shm

import "github.com/weft-mpi/weft/transport"

var (
	_ transport.Device   = (*Device)(nil)
	_ transport.Endpoint = (*endpoint)(nil)
	_ transport.CQ       = (*cq)(nil)
	_ transport.QP       = (*qp)(nil)
)
