package wireup

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/transport/fabric"
	"github.com/weft-mpi/weft/transport/fabrics"
)

// Neighbors reports whether other ranks of the job can be expected on this host, and whether some can on
// others. Where the launcher has not said how many there are, both can. A world of one counts as a neighbor
// of itself.
func (j *Job) Neighbors() (here, elsewhere bool) {
	size := int(j.Identity.Size)
	if size == 1 || j.Together() {
		return true, false
	}
	local := j.way.local()
	return local != 1, local < size
}

// kernelBound reports whether a provider reaches only processes of the same kernel, in the same network
// namespace, where the names of its sockets are.
func kernelBound(provider string) bool {
	return slices.ContainsFunc(fabrics.All, func(f fabric.Fabric) bool {
		return f.Local && f.Name == provider
	})
}

// kernelKey is the name under which a card tells which kernel its rank runs on.
const kernelKey = "kernel"

const unknownKernel = "unknown"

// kernel identifies the running kernel and this process's network namespace. Hosts of equal names differ in
// it, and so do containers with networks of their own. It only says where a try is worthwhile: the proof that
// two ranks share memory is that one has got the other's descriptor.
var kernel = sync.OnceValue(func() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return unknownKernel
	}
	namespace, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		namespace = "unknown"
	}
	sum := sha256.Sum256(append(boot, namespace...))
	return hex.EncodeToString(sum[:8])
})
