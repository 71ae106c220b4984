package start

import (
	"fmt"
	"hash/fnv"
	"os"

	"github.com/weft-mpi/weft/transport/shm"
)

// Host returns a number that is equal at processes that share memory, and different at others.
func Host() (uint64, error) {
	name, err := shm.Host()
	if err != nil {
		if name, err = os.Hostname(); err != nil {
			return 0, fmt.Errorf("which host this is: %w", err)
		}
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64(), nil
}
