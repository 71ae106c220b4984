//go:build linux

package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// secretMemory is memory that its process can use, and that no system call copies for another one.
func secretMemory(n int) ([]byte, error) {
	const memfdSecret = 447
	fd, _, e := syscall.Syscall(memfdSecret, 0, 0, 0)
	if e != 0 {
		return nil, os.NewSyscallError("memfd_secret", e)
	}
	defer syscall.Close(int(fd))
	if err := syscall.Ftruncate(int(fd), int64(n)); err != nil {
		return nil, err
	}
	return syscall.Mmap(int(fd), 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

// TestLongMessages_OfSecretMemory: a message of memory that its receiver cannot read, or into memory that its
// sender cannot write, comes all the same, and so do those after it.
func TestLongMessages_OfSecretMemory(t *testing.T) {
	mem, err := secretMemory(os.Getpagesize())
	if err != nil {
		t.Skip(err)
	}
	if err := syscall.Munmap(mem); err != nil {
		t.Fatal(err)
	}
	ranks(t, 2, secretly, "WEFT_FABRIC=shm")
}

var secretly = body("secretly", func(_ context.Context, world *mpi.Comm) error {
	const n, rounds = 1 << 20, 6
	secret, err := secretMemory(n)
	if err != nil {
		return err
	}
	ordinary := make([]byte, n)
	for i := range rounds {
		for from := range 2 { // first the sender's memory is secret, then the receiver's
			buf := ordinary
			if i < rounds/2 && (from == world.Rank()) == (i%2 == 0) {
				buf = secret
			}
			if world.Rank() == from {
				for k := range buf {
					buf[k] = byte(k*7 + i)
				}
				if err := mpi.Send(world, buf, 1-from, 0); err != nil {
					return err
				}
				continue
			}
			if _, err := mpi.Recv(world, buf, from, 0); err != nil {
				return err
			}
			for k := range buf {
				if buf[k] != byte(k*7+i) {
					return fmt.Errorf("round %d: byte %d of rank %d is another one", i, k, from)
				}
			}
		}
	}
	return errors.Join(syscall.Munmap(secret), mpi.Barrier(world))
})
