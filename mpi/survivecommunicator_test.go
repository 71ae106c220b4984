package mpi_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/weft-mpi/weft/mpi"
)

// struckCreations are the calls that make communicators in which ranks die.
var struckCreations = []strike{
	{"Dup", func(c *mpi.Comm, n int64) error {
		d, err := c.Dup()
		if err != nil {
			return err
		}
		return errors.Join(works(d, n), d.Free())
	}},
	{"Idup", func(c *mpi.Comm, n int64) error {
		var d *mpi.Comm
		if err := waited(c.Idup(&d)); err != nil {
			return err
		}
		return errors.Join(works(d, n), d.Free())
	}},
	{"SplitBy", func(c *mpi.Comm, n int64) error {
		d, err := c.SplitBy(mpi.SameHost, -c.Rank())
		return childWorks(d, n, err)
	}},
	{"Split", func(c *mpi.Comm, n int64) error {
		d, err := c.Split((c.Rank()+int(n))%2, -c.Rank())
		return childWorks(d, n, err)
	}},
	{"SplitShared", func(c *mpi.Comm, n int64) error {
		d, err := c.SplitShared()
		return childWorks(d, n, err)
	}},
	{"Create", func(c *mpi.Comm, n int64) error {
		g, err := c.Group().Excl(rootOf(c, n))
		if err != nil {
			return err
		}
		d, err := c.Create(g)
		return childWorks(d, n, err)
	}},
	{"CreateGroup", func(c *mpi.Comm, n int64) error {
		g, err := c.Group().Excl(rootOf(c, n))
		if err != nil {
			return err
		}
		var d *mpi.Comm
		if g.Rank() >= 0 {
			d, err = c.CreateGroup(g, int(n)%7)
		}
		return childWorks(d, n, err)
	}},
	{"Cart", func(c *mpi.Comm, n int64) error {
		t, err := c.Cart([]int{c.Size()}, []bool{n%2 == 0}, n%3 == 0)
		return childWorks(t.Comm(), n, err)
	}},
	{"CartSub", func(c *mpi.Comm, n int64) error {
		rows1 := min(2, c.Size())
		t, err := c.Cart([]int{rows1, c.Size() / rows1}, []bool{false, true}, false)
		var rows *mpi.Cart
		if err == nil && t != nil {
			rows, err = t.Sub(false, true)
			err = errors.Join(err, t.Comm().Free())
		}
		return childWorks(rows.Comm(), n, err)
	}},
	{"Graph", func(c *mpi.Comm, n int64) error {
		size := c.Size()
		left, right1 := (c.Rank()+size-1)%size, (c.Rank()+1)%size
		g, err := c.Graph([]int{left, left}, []int{right1, right1}, n%2 == 0)
		if err != nil {
			return err
		}
		out := make([]int64, 2)
		err = mpi.NeighborAllgather(g, []int64{of(c.Rank(), n, 0)}, out)
		return errors.Join(right("NeighborAllgather", out, err, func(int) int64 { return of(left, n, 0) }),
			g.Comm().Free())
	}},
	{"Reproducible", func(c *mpi.Comm, n int64) error {
		d, err := c.Reproducible()
		if err != nil {
			return err
		}
		sum := []float64{0.1}
		err = mpi.Allreduce(d, mpi.InPlace[float64](), sum, mpi.Sum[float64]())
		if want := 0.1 * float64(c.Size()); err == nil && (sum[0] < want-1e-9 || sum[0] > want+1e-9) {
			err = fmt.Errorf("Allreduce: %v, not %v", sum[0], want)
		}
		return errors.Join(err, works(d, n), d.Free())
	}},
}

// struckAgreements are the calls in which the ranks agree, whoever dies.
var struckAgreements = []strike{
	{"Agree", func(c *mpi.Comm, n int64) error {
		bit := uint64(1) << (c.Rank() + int(n)%2*16)
		flag, err := c.Agree(^bit)
		return agreed(c, n, flag, err)
	}},
	{"Iagree", func(c *mpi.Comm, n int64) error {
		flag := ^(uint64(1) << (c.Rank() + int(n)%2*16))
		err := waited(c.Iagree(&flag))
		return agreed(c, n, flag, err)
	}},
	{"Shrink", func(c *mpi.Comm, n int64) error {
		s, err := c.Shrink()
		if err != nil {
			return err
		}
		return errors.Join(works(s, n), s.Free())
	}},
	{"Ishrink", func(c *mpi.Comm, n int64) error {
		var s *mpi.Comm
		err := waited(c.Ishrink(&s))
		if err != nil {
			return err
		}
		return errors.Join(works(s, n), s.Free())
	}},
}

// works uses a new communicator.
func works(c *mpi.Comm, n int64) error {
	out := contribution(c.Rank(), n, 2)
	err := mpi.Allreduce(c, mpi.InPlace[int64](), out, mpi.Sum[int64]())
	return right("Allreduce of "+c.Name(), out, err, sumOver(0, c.Size(), n))
}

// childWorks uses a communicator of some ranks of another one, nil at the others. Where a call has failed to
// make it, it is revoked for the others.
func childWorks(c *mpi.Comm, n int64, err error) error {
	if err != nil || c == nil {
		return err
	}
	if err = works(c, n); err == nil && c.Size() > 1 { // messages of ranks that do not fail
		err = sendRing(1)(c, n)
	}
	if err != nil {
		err = errors.Join(err, c.Revoke())
	}
	return errors.Join(err, c.Free())
}

// agreed wants every bit that some rank has given as 0, but for those of ranks that may have died.
func agreed(c *mpi.Comm, n int64, flag uint64, err error) error {
	if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
		return err
	}
	missing := 0
	for r := range c.Size() {
		if flag>>(r+int(n)%2*16)&1 != 0 {
			missing++
		}
		flag |= 1 << (r + int(n)%2*16)
	}
	if missing > len(victimsOf(os.Getenv("SURVIVE_VICTIMS"))) || flag != ^uint64(0) {
		return fmt.Errorf("Agree: %x, without %d ranks", flag, missing)
	}
	return err
}
