// Ring sends a token round the ranks: 0 to 1, 1 to 2, and from the last back to 0.
//
//	weft run -n 4 ./examples/ring
//	weft run -n 4 ./examples/ring -n 1000 -size 100000
//
// All ranks run the same main; what a rank does follows from its number, Rank, and from how many there are,
// Size. A message goes to a rank with a tag, and the receiver asks for that rank and that tag.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

// maxSize is the longest token: 128 MiB.
const maxSize = 1 << 24

// tokenTag marks the token's messages. A program with messages of several kinds gives each kind a tag.
const tokenTag = 0

func main() {
	log.SetFlags(0)
	log.SetPrefix("ring: ")
	if err := mpi.Run(context.Background(), ring); err != nil {
		log.Fatal(err)
	}
}

// ring takes the token round. It is the numbers 0, 1, 2 …, and every pass adds one to each of them, so every
// rank knows what it must receive: a pass that is lost, comes twice or out of turn shows, and so does damage.
func ring(_ context.Context, world *mpi.Comm) error {
	rank, size := world.Rank(), world.Size()
	laps, numbers, err := parse(os.Args[1:], rank == 0)
	if err != nil || laps == 0 {
		return err // the first rank that returns an error ends the whole job
	}
	next, previous := (rank+1)%size, (rank+size-1)%size
	in, out := make([]int64, numbers), make([]int64, numbers)
	passes, sending, begin := laps*size, mpi.Request{}, mpi.Wtime()
	for pass := rank; pass < passes || rank == 0 && pass == passes; pass += size {
		if pass > 0 {
			status, err := mpi.Recv(world, in, previous, tokenTag)
			if err != nil {
				return err
			}
			if err := check(rank, in[:status.Count], numbers, pass); err != nil {
				return err
			}
			if pass <= size { // the ranks take turns, but their lines may come in another order
				fmt.Printf("rank %d of %d has the token from rank %d\n", rank, size, previous)
			}
			if pass >= size { // out was sent a lap ago, and belongs to that Isend until Wait returns
				if _, err := sending.Wait(); err != nil {
					return err
				}
			}
		}
		if pass < passes {
			fill(out, pass+1)
			// Isend does not wait for the receiver, which is this rank itself if it is alone.
			if sending, err = mpi.Isend(world, out, next, tokenTag); err != nil {
				return err
			}
		}
	}
	if rank > 0 {
		_, err := sending.Wait()
		return err
	}
	took := time.Duration((mpi.Wtime() - begin) * float64(time.Second))
	fmt.Printf("%d passes of %d bytes, each as it must be, in %v: %v a pass\n", passes, 8*numbers,
		took.Round(time.Microsecond), (took / time.Duration(passes)).Round(10*time.Nanosecond))
	return nil
}

// fill makes the token what it is after a number of passes.
func fill(token []int64, passes int) {
	for i := range token {
		token[i] = int64(i + passes)
	}
}

// check finds out whether the token is what it must be after a number of passes.
func check(rank int, token []int64, size, passes int) error {
	if len(token) != size {
		return fmt.Errorf("rank %d: pass %d: the token has %d numbers instead of %d", rank, passes,
			len(token), size)
	}
	for i, got := range token {
		if want := int64(i + passes); got != want {
			return fmt.Errorf("rank %d: pass %d: number %d of the token is %d instead of %d", rank, passes,
				i, got, want)
		}
	}
	return nil
}

// parse reads the flags, which are the same for all ranks. When help is asked for, a rank that talks prints
// it, and there are no laps.
func parse(args []string, talks bool) (laps, numbers int, err error) {
	flags := flag.NewFlagSet("ring", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned
	flags.IntVar(&laps, "n", 3, "laps of the token")
	flags.IntVar(&numbers, "size", 8, "numbers in the token, of eight bytes each")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		if talks {
			fmt.Println("ring sends a token round the ranks: weft run -n RANKS ./examples/ring [flags]")
			flags.SetOutput(os.Stdout)
			flags.PrintDefaults()
		}
		return 0, 0, nil
	case err != nil:
		return 0, 0, err
	case flags.NArg() > 0:
		return 0, 0, fmt.Errorf("%q is not a flag; -h lists them", flags.Arg(0))
	case laps < 1:
		return 0, 0, fmt.Errorf("-n %d: must be 1 or more", laps)
	case numbers < 0 || numbers > maxSize:
		return 0, 0, fmt.Errorf("-size %d: must be from 0 to %d", numbers, maxSize)
	}
	return laps, numbers, nil
}
