package wireup

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport/fabric"
	"github.com/weft-mpi/weft/transport/fabrics"
)

// Neighbors reports whether other ranks of the job may be on this host, and whether some may be elsewhere.
// Both are true if the launcher does not say. A world of one counts as a neighbor of itself.
func (j *Job) Neighbors() (here, elsewhere bool) {
	size := int(j.Identity.Size)
	if size == 1 || j.Together() {
		return true, false
	}
	local := j.way.local()
	return local != 1, local < size
}

// kernelBound reports whether a provider, named as its fabric, reaches only processes of the same kernel and
// network namespace, which holds the names of its sockets.
func kernelBound(provider string) bool {
	return slices.ContainsFunc(fabrics.All, func(f fabric.Fabric) bool {
		return f.Local && f.Name == provider
	})
}

// kernelKey is the key of a card for the kernel that its rank runs on.
const kernelKey = "kernel"

const unknownKernel = "unknown"

// kernel identifies the running kernel and this process's network namespace. It tells apart hosts of equal
// names and containers with their own networks. It only says where an attempt is worthwhile: ranks share
// memory if one has received the other's descriptor.
var kernel = sync.OnceValue(func() string {
	boot, err := sys.BootID()
	if err != nil {
		return unknownKernel
	}
	namespace, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		namespace = "unknown"
	}
	sum := sha256.Sum256([]byte(boot + namespace))
	return hex.EncodeToString(sum[:8])
})
