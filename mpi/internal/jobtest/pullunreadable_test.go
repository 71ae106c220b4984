package jobtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// TestLongCollectives_MemoryThatCannotBeRead: a rank that cannot read what it is to read fails and says why,
// all others end too, and neither later collectives nor other memory have anything of it.
func TestLongCollectives_MemoryThatCannotBeRead(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { ranks(t, n, unreadable, "WEFT_FABRIC=shm", "WEFT_COLL=bcast:pull") })
	}
}

var unreadable = body("unreadable", func(_ context.Context, world *mpi.Comm) error {
	const n, page, root = 2 << 20, 4096, 1 // longer than what the root copies for others to read
	c, err := world.Dup()
	if err != nil {
		return err
	}
	for range 20 {
		if err := mpi.Barrier(c); err != nil {
			return err
		}
	}
	buf, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return err
	}
	for round := range 3 {
		if world.Rank() == root {
			for i := range buf {
				buf[i] = byte(i + round)
			}
			if err := syscall.Mprotect(buf[17*page:18*page], syscall.PROT_NONE); err != nil {
				return err
			}
		}
		switch err := mpi.Bcast(c, buf, root); {
		case err == nil:
			return errors.New("memory was read that nobody may read")
		case !strings.Contains(err.Error(), "cannot be reached"):
			return err
		}
		if world.Rank() == root {
			if err := syscall.Mprotect(buf, syscall.PROT_READ|syscall.PROT_WRITE); err != nil {
				return err
			}
		}
		if err := mpi.Bcast(c, buf, root); err != nil {
			return fmt.Errorf("after a refused read: %w", err)
		}
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(i + round)
		}
		if !bytes.Equal(buf, want) {
			return errors.New("other bytes than the root's")
		}
	}
	return firstError(syscall.Munmap(buf), c.Free())
})
