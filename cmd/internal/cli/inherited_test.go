package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"

	"github.com/weft-mpi/weft/internal/inherited"
	"github.com/weft-mpi/weft/mpi"
)

// usurper is a program between launcher and rank: it puts the file named by its second argument where the rank
// finds the file of the launcher that is named by the first one, and then becomes the program after them.
func usurper() {
	number := regexp.MustCompile(os.Args[1] + `=(\d+):`).FindStringSubmatch(os.Getenv(inherited.Variable))
	err := func() error {
		fd, err := strconv.Atoi(number[1])
		if err != nil {
			return err
		}
		file, err := syscall.Open(os.Args[2], syscall.O_RDWR, 0)
		if err != nil {
			return err
		}
		if err := syscall.Dup3(file, fd, 0); err != nil {
			return err
		}
		program, err := exec.LookPath(os.Args[3])
		if err != nil {
			return err
		}
		return syscall.Exec(program, os.Args[3:], os.Environ())
	}()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// hello is a program whose rank 0 says how many ranks there are.
func hello() {
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 0 {
			fmt.Println("hello from", world.Size())
		}
		return mpi.Barrier(world)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
