// Ring sends a token round the ranks: 0 to 1, 1 to 2, and from the last back to 0.
//
//	weft run -n 4 ./examples/ring
//	weft run -n 4 ./examples/ring -n 1000 -size 100000
//
// It is the program to begin with. All ranks run the same main; what a rank does follows from its number,
// Rank, and from how many there are, Size. A message goes to a rank with a tag, and the receiver asks for
// that rank and that tag.
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

// journey is what all ranks must know. It travels in a message, so it has a fixed size and no pointers.
type journey struct {
	Laps int // 0 if there is nothing to do
	Size int // of the token, in numbers
}

func ring(_ context.Context, world *mpi.Comm) error {
	// Rank 0 reads the flags, and Bcast gives everyone what it has read: a wrong flag is complained about
	// once. The error that it returns ends the whole job, also the ranks that wait in Bcast.
	j := make([]journey, 1)
	if world.Rank() == 0 {
		var err error
		if j[0], err = parse(os.Args[1:]); err != nil {
			return err
		}
	}
	if err := mpi.Bcast(world, j, 0); err != nil {
		return err
	}
	if j[0].Laps == 0 {
		return nil // rank 0 was asked for help
	}
	return travel(world, j[0])
}

// travel takes the token round. It starts as the numbers 0, 1, 2 …, and every pass adds one to each of them,
// so every rank knows what it must receive: a pass that is lost, comes twice or out of turn shows, and so
// does any damage.
func travel(world *mpi.Comm, j journey) error {
	rank, size := world.Rank(), world.Size()
	next, previous := (rank+1)%size, (rank+size-1)%size
	token := make([]int64, j.Size)
	fill(token, 0)
	arrival := make([]int64, j.Size)
	begin := mpi.Wtime()
	for lap := range j.Laps {
		passes := lap * size // before this lap
		if rank == 0 {
			// Rank 0 sends before it receives. Irecv says already where the token shall go when it comes
			// back: when rank 0 is alone it sends to itself, and a Send may wait until the message can be
			// received.
			back, err := mpi.Irecv(world, arrival, previous, tokenTag)
			if err != nil {
				return err
			}
			fill(token, passes+1)
			if err := mpi.Send(world, token, next, tokenTag); err != nil {
				return err
			}
			status, err := back.Wait()
			if err != nil {
				return err
			}
			if err := check(rank, arrival[:status.Count], j.Size, passes+size); err != nil {
				return err
			}
		} else {
			// The others receive before they send, so they wait here until it is their turn.
			status, err := mpi.Recv(world, arrival, previous, tokenTag)
			if err != nil {
				return err
			}
			if err := check(rank, arrival[:status.Count], j.Size, passes+rank); err != nil {
				return err
			}
			fill(token, passes+rank+1)
			if err := mpi.Send(world, token, next, tokenTag); err != nil {
				return err
			}
		}
		if lap == 0 {
			// The ranks take turns, but their output comes by ways of its own: the lines may be in another
			// order.
			fmt.Printf("rank %d of %d has the token from rank %d\n", rank, size, previous)
		}
	}
	if rank == 0 {
		passes := j.Laps * size
		took := time.Duration((mpi.Wtime() - begin) * float64(time.Second))
		fmt.Printf("%d passes of %d bytes, each as it must be, in %v: %v a pass\n",
			passes, 8*j.Size, took.Round(time.Microsecond),
			(took / time.Duration(passes)).Round(10*time.Nanosecond))
	}
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

// parse reads the flags. When help is asked for it prints it and returns the zero journey.
func parse(args []string) (journey, error) {
	var j journey
	flags := flag.NewFlagSet("ring", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned, and printed once
	flags.IntVar(&j.Laps, "n", 3, "laps of the token")
	flags.IntVar(&j.Size, "size", 8, "numbers in the token, of eight bytes each")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("ring sends a token round the ranks: weft run -n RANKS ./examples/ring [flags]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return journey{}, nil
	case err != nil:
		return journey{}, err
	case flags.NArg() > 0:
		return journey{}, fmt.Errorf("%q is not a flag; -h lists them", flags.Arg(0))
	case j.Laps < 1:
		return journey{}, fmt.Errorf("-n %d: must be 1 or more", j.Laps)
	case j.Size < 0 || j.Size > maxSize:
		return journey{}, fmt.Errorf("-size %d: must be from 0 to %d", j.Size, maxSize)
	}
	return j, nil
}
