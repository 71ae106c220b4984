// Solver is the program of docs/guide/debugging.md. Its argument says what it does, or does wrong.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	mode := "tags"
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	if mode == "absent" && os.Getenv("PMI_RANK") == "3" {
		time.Sleep(time.Minute)
	}
	run := map[string]func(*mpi.Comm) error{"tags": tags, "slow": slow, "absent": mpi.Barrier, "wrong": wrong,
		"steps": steps, "input": input, "log": log}[mode]
	err := mpi.Run(context.Background(), func(_ context.Context, c *mpi.Comm) error { return run(c) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tags has rank 1 wait for another tag than rank 0 has sent.
func tags(c *mpi.Comm) error {
	field, sum := make([]float64, 2), make([]float64, 2)
	switch c.Rank() {
	case 0:
		if err := mpi.Send(c, field, 1, 6); err != nil {
			return err
		}
		if _, err := mpi.Recv(c, field, 1, 6); err != nil {
			return err
		}
	case 1:
		if _, err := mpi.Recv(c, field, 0, 5); err != nil {
			return err
		}
	}
	return mpi.Allreduce(c, field, sum, mpi.Sum[float64]())
}

// slow has the others wait for rank 0.
func slow(c *mpi.Comm) error {
	if c.Rank() == 0 {
		time.Sleep(time.Minute)
	}
	return mpi.Barrier(c)
}

// wrong does what checking mode finds.
func wrong(c *mpi.Comm) error {
	field, other := make([]float64, 4), 1-c.Rank()
	if c.Rank() == 0 {
		r, err := mpi.Irecv(c, field, other, 5)
		if err != nil {
			return err
		}
		if err := mpi.Send(c, field, other, 6); err != nil {
			return err
		}
		if _, err := r.Wait(); err != nil {
			return err
		}
	} else {
		if err := mpi.Send(c, make([]int64, 4), other, 5); err != nil {
			return err
		}
		if _, err := mpi.Recv(c, field, other, 6); err != nil {
			return err
		}
	}
	return mpi.Bcast(c, field, c.Rank())
}

// steps is a computation of 500 steps, or as many as the second argument says. Rank 2 has the largest part.
func steps(c *mpi.Comm) error {
	count := 500
	if len(os.Args) > 2 {
		var err error
		if count, err = strconv.Atoi(os.Args[2]); err != nil {
			return err
		}
	}
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	out, in, sum := make([]float64, 8192), make([]float64, 8192), make([]float64, 1)
	for range count {
		if _, err := mpi.Sendrecv(c, out, next, 1, in, before, 1); err != nil {
			return err
		}
		parts := 1
		if c.Rank() == 2 {
			parts = 4
		}
		for range parts {
			for i := range out {
				out[i] = math.Sin(in[i] + 1)
			}
		}
		if err := mpi.Allreduce(c, out[:1], sum, mpi.Sum[float64]()); err != nil {
			return err
		}
	}
	return nil
}

// input reads a file that is not there.
func input(*mpi.Comm) error {
	_, err := os.ReadFile("input.dat")
	return err
}

// log says in the program's own log which rank it is of.
func log(c *mpi.Comm) error {
	slog.Info("assembled", "mpi", c)
	return nil
}
