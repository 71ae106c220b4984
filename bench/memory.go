package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi"
)

// preallocated is what a connection takes where every peer gets large buffers at once: 16 slots of 8 KiB each way. It is the
// arrangement that small rings take the place of.
const preallocated = 256 << 10

// memory has rank 0 connect to one peer after the other and prints what that takes: bytes of registered buffers, as counted, and resident
// memory of the process, as the system sees it; beside what large buffers for each peer take, allocated and touched here. The first
// connection is made before the count: it also brings in code and tables that all of them share.
func memory(s *session) error {
	s.heading()
	one := make([]byte, 1)
	if err := s.touch(one, 1); err != nil {
		return err
	}
	before, err := resident()
	if err != nil {
		return err
	}
	base := s.world.Stats().Registered
	for peer := 2; peer < s.world.Size(); peer++ {
		if err := s.touch(one, peer); err != nil {
			return err
		}
		peers := peer - 1
		if s.world.Rank() != 0 || peers&(peers-1) != 0 && peer != s.world.Size()-1 {
			continue // 1, 2, 4 … and all
		}
		now, err := resident()
		if err != nil {
			return err
		}
		registered := s.world.Stats().Registered - base
		large, err := residentOf(peers * preallocated)
		if err != nil {
			return err
		}
		s.out.printf("%-10d%20d%20d%20d%20d\n", peers, registered/peers, max(0, now-before)/peers, preallocated, large/peers)
	}
	return mpi.Barrier(s.world)
}

// touch has rank 0 and a peer exchange a message, and so connect.
func (s *session) touch(one []byte, peer int) error {
	switch s.world.Rank() {
	case 0:
		if err := mpi.Send(s.world, one, peer, 1); err != nil {
			return err
		}
		_, err := mpi.Recv(s.world, one, peer, 1)
		return err
	case peer:
		if _, err := mpi.Recv(s.world, one, 0, 1); err != nil {
			return err
		}
		return mpi.Send(s.world, one, 0, 1)
	}
	return nil
}

// residentOf measures how much resident memory n bytes of fresh buffers take when all of them have been written.
func residentOf(n int) (int, error) {
	before, err := resident()
	if err != nil {
		return 0, err
	}
	b, err := sys.Map(n)
	if err != nil {
		return 0, err
	}
	defer sys.Unmap(b)
	for i := 0; i < n; i += os.Getpagesize() {
		b[i] = 1
	}
	after, err := resident()
	return after - before, err
}

// resident is this process's resident memory in bytes.
func resident() (int, error) {
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "Rss:"); ok {
			kb, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				return 0, fmt.Errorf("resident memory: %w", err)
			}
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("resident memory: /proc/self/smaps_rollup has no Rss")
}
