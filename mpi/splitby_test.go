package mpi_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi"
)

func TestSplitBy(t *testing.T) {
	onFabricsAndChecked(t, func(t *testing.T, setting string) { together(t, 5, splitBy, setting) })
}

// Ranks of two hosts, on the first and the last processor, come together by what their processors share,
// ordered by key; where the
// system does not tell, they get nothing.
var splitBy = body("SplitBy", func(_ context.Context, world *mpi.Comm) error {
	me := world.Rank()
	mpi.SetHost(world, uint64(100+me/3)) // 0, 1 and 2, and 3 and 4
	cpus, err := sys.Affinity()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // for good: the thread is not used again
	cpu := cpus[0]
	if me%2 == 1 {
		cpu = cpus[len(cpus)-1]
	}
	if err := sys.SetAffinity([]int{cpu}); err != nil {
		return err
	}
	for kind := mpi.SameHost; kind <= mpi.SameL3; kind++ {
		part := map[mpi.Domain]string{
			mpi.SameHost:   "host",
			mpi.SameSocket: textOf("topology/physical_package_id", cpu),
			mpi.SameNUMA:   textOf("node*", cpu),
			mpi.SameL3:     textOf("cache/index3/shared_cpu_list", cpu),
		}[kind]
		// each rank is told the part of every other
		parts, err := mpi.AllgatherValues(world, []string{part, fmt.Sprint(me / 3)})
		if err != nil {
			return err
		}
		size, below := 0, 0
		for rank, p := range parts {
			if p[0] == part && p[1] == fmt.Sprint(me/3) {
				size++
				if rank > me {
					below++ // the keys fall
				}
			}
		}
		c, err := world.SplitBy(kind, -me)
		switch {
		case err != nil:
			return err
		case part == "":
			if c != nil {
				return fmt.Errorf("%v: a communicator of %d ranks, and the system does not tell", kind, c.Size())
			}
		default:
			if err := firstError(want("size", c.Size(), size), want("rank", c.Rank(), below),
				checkedSum(c, 7), c.Free()); err != nil {
				return fmt.Errorf("%v: %w", kind, err)
			}
		}
	}
	kind := mpi.SameHost
	if me == 1 {
		kind = mpi.Undefined
	}
	c, err := world.SplitBy(kind, 0)
	if err != nil || me == 1 {
		return firstError(err, want("left out", c == nil, me == 1))
	}
	return firstError(want("size", c.Size(), 2), want("rank", c.Rank(), map[int]int{2: 1, 4: 1}[me]), c.Free())
})

// textOf is what the system says in a file, or the name of it.
func textOf(file string, cpu int) string {
	found, _ := filepath.Glob(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/%s", cpu, file))
	if len(found) == 0 {
		return ""
	}
	if text, err := os.ReadFile(found[0]); err == nil {
		if text := strings.TrimSpace(string(text)); text != "-1" {
			return text
		}
		return ""
	}
	return filepath.Base(found[0])
}
