package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// A wrong program is a small program with one mistake, and the class that checking mode reports it as. Two
// ranks run it on a communicator of its own. The line that the report has to name is one of the program's.
type wrong struct {
	class string
	run   func(c *mpi.Comm, r int) error // r is the rank
}

var sumInts = mpi.NewOp(func(inout, in []int64) {
	for i := range inout {
		inout[i] += in[i]
	}
}, true)

func ints(n int) []int64     { return make([]int64, n) }
func floats(n int) []float64 { return make([]float64, n) }
func wait(r mpi.Request, err error) error {
	if err == nil {
		_, err = r.Wait()
	}
	return err
}

// either calls one of two functions.
func either(first bool, f, g func() error) error {
	if first {
		return f()
	}
	return g()
}

// receivePartitions receives a buffer in one partition from rank 0.
func receivePartitions[T any](c *mpi.Comm, buf []T) error {
	p, err := mpi.PrecvInit(c, buf, 1, 0, 0)
	if err != nil {
		return err
	}
	err = p.Start()
	_, err2 := p.Wait()
	return firstError(err, err2, p.Free())
}

// differ has rank 0 call f, and rank 1 g.
func differ(r int, f, g func() error) error { return either(r == 0, f, g) }

var wrongs = map[string]wrong{
	// Calls of collectives that differ.
	"Barrier and Bcast": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Barrier(c) }, func() error { return mpi.Bcast(c, ints(1), 0) })
	}},
	"Reduce and Allreduce": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Reduce(c, ints(1), ints(1), mpi.Sum[int64](), 0) },
			func() error { return mpi.Allreduce(c, ints(1), ints(1), mpi.Sum[int64]()) })
	}},
	"Gather and Scatter": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Gather(c, ints(1), ints(2), 0) },
			func() error { return mpi.Scatter(c, nil, ints(1), 0) })
	}},
	"Allgather and Alltoall": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Allgather(c, ints(1), ints(2)) },
			func() error { return mpi.Alltoall(c, ints(2), ints(2)) })
	}},
	"Scan and Exscan": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Scan(c, ints(1), ints(1), mpi.Sum[int64]()) },
			func() error { return mpi.Exscan(c, ints(1), ints(1), mpi.Sum[int64]()) })
	}},
	"Dup and Barrier": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { _, err := c.Dup(); return err }, func() error { return mpi.Barrier(c) })
	}},
	"Dup and Idup": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { _, err := c.Dup(); return err },
			func() error { return wait(c.Idup(new(*mpi.Comm))) })
	}},
	"a partition changed after Pready": {"buffer changed", func(c *mpi.Comm, r int) error {
		buf := ints(4)
		return differ(r, func() error {
			p, err := mpi.PsendInit(c, buf, 2, 1, 0)
			if err != nil {
				return err
			}
			err = firstError(p.Start(), p.PreadyRange(0, 2))
			buf[3] = 1
			_, err2 := p.Wait()
			return firstError(err, err2, p.Free())
		}, func() error { return receivePartitions(c, buf) })
	}},
	"partitions of another type": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error {
			p, err := mpi.PsendInit(c, ints(4), 2, 1, 0)
			if err != nil {
				return err
			}
			err = firstError(p.Start(), p.PreadyRange(0, 2))
			_, err2 := p.Wait()
			return firstError(err, err2, p.Free())
		}, func() error { return receivePartitions(c, floats(4)) })
	}},
	"a view of IalltoallView is used": {"overlapping buffers", func(c *mpi.Comm, r int) error {
		buf := ints(4)
		in := []mpi.View[int64]{mpi.Strided(ints(4), 2, 1, 2), mpi.Strided(ints(4), 2, 1, 2)}
		out := []mpi.View[int64]{mpi.Strided(buf, 2, 1, 2), mpi.Strided(buf[1:], 2, 1, 2)}
		all, err := mpi.IalltoallView(c, in, out)
		if err != nil {
			return err
		}
		one, err := mpi.Irecv(c, buf[2:], 1-r, 0)
		_, err2 := all.Wait()
		return firstError(err, err2, mpi.Send(c, ints(2), 1-r, 0), wait(one, nil))
	}},
	"values of AlltoallValues and AllgatherValues": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return ignoring(mpi.AlltoallValues(c, []string{"a", "b"})) },
			func() error { return ignoring(mpi.AllgatherValues(c, "a")) })
	}},
	"root of ScatterValues": {"different root", func(c *mpi.Comm, r int) error {
		return ignoring(mpi.ScatterValues(c, []string{"a", "b"}, r))
	}},
	"root of ReduceValue": {"different root", func(c *mpi.Comm, r int) error {
		return ignoring(mpi.ReduceValue(c, 1, mpi.Sum[int](), r))
	}},
	"operator of ReduceValue": {"different operator", func(c *mpi.Comm, r int) error {
		op := mpi.Sum[int64]()
		if r == 1 {
			op = mpi.Max[int64]()
		}
		return ignoring(mpi.ReduceValue(c, int64(1), op, 0))
	}},
	"type of ExscanValue": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return ignoring(mpi.ExscanValue(c, 1, mpi.Sum[int]())) },
			func() error { return ignoring(mpi.ExscanValue(c, 1.5, mpi.Sum[float64]())) })
	}},
	"type of AlltoallValues": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return ignoring(mpi.AlltoallValues(c, []int{1, 2})) },
			func() error { return ignoring(mpi.AlltoallValues(c, []float64{1, 2})) })
	}},
	"type of SendrecvValue": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return ignoring3(mpi.SendrecvValue(c, 1, 1, 0, 1, 0)) },
			func() error { return ignoring3(mpi.SendrecvValue(c, 1.5, 0, 0, 0, 0)) })
	}},
	"a value that nobody waits for": {"request never waited for", func(c *mpi.Comm, r int) error {
		if _, err := mpi.IrecvValue[string](c, 1-r, 0); err != nil {
			return err
		}
		return mpi.SendValue(c, "a", 1-r, 0)
	}},
	"a send that is only looked at": {"request never waited for", func(c *mpi.Comm, r int) error {
		s, err := mpi.IsendValue(c, "a", 1-r, 0)
		if err != nil {
			return err
		}
		_, _, err = mpi.RequestStatus(s)
		return firstError(err, ignoring3(mpi.RecvValue[string](c, 1-r, 0)))
	}},
	"count of BcastView": {"different count", func(c *mpi.Comm, r int) error {
		return mpi.BcastView(c, mpi.Strided(ints(4), 2-r, 1, 2), 0)
	}},
	"root of BcastView": {"different root", func(c *mpi.Comm, r int) error {
		return mpi.BcastView(c, mpi.Strided(ints(4), 2, 1, 2), r)
	}},
	"SplitBy and Split": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return ignoring(c.SplitBy(mpi.SameHost, 0)) },
			func() error { return ignoring(c.Split(0, 0)) })
	}},
	"IalltoallView and AlltoallViewInit": {"different collective", func(c *mpi.Comm, r int) error {
		in := []mpi.View[int64]{mpi.Strided(ints(4), 2, 1, 2), mpi.Strided(ints(4), 2, 1, 2)}
		out := []mpi.View[int64]{mpi.Strided(ints(4), 2, 1, 2), mpi.Strided(ints(4), 2, 1, 2)}
		return differ(r, func() error { return wait(mpi.IalltoallView(c, in, out)) },
			func() error { return ignoring(mpi.AlltoallViewInit(c, in, out)) })
	}},
	"type of NeighborAlltoallView": {"different type", func(c *mpi.Comm, r int) error {
		g, err := c.Cart([]int{2}, []bool{true}, false)
		if err != nil {
			return err
		}
		g.Comm().SetName(c.Name())
		return differ(r, func() error {
			two := []mpi.View[int64]{mpi.Whole(ints(1)), mpi.Whole(ints(1))}
			return mpi.NeighborAlltoallView(g, two, two)
		}, func() error {
			two := []mpi.View[float64]{mpi.Whole(floats(1)), mpi.Whole(floats(1))}
			return mpi.NeighborAlltoallView(g, two, two)
		})
	}},
	"type of SendrecvReplace": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return ignoring(mpi.SendrecvReplace(c, ints(1), 1, 0, 1, 0)) },
			func() error { return ignoring(mpi.SendrecvReplace(c, floats(1), 0, 0, 0, 0)) })
	}},
	"a view changed while IsendView sends it": {"buffer changed", func(c *mpi.Comm, r int) error {
		buf := ints(4)
		s, err := mpi.IsendView(c, mpi.Strided(buf, 2, 1, 2), 1-r, 1)
		buf[2] = 1
		return firstError(err, ignoring(mpi.Recv(c, ints(2), 1-r, 1)), wait(s, nil))
	}},
	"a receive into a view that IsendView sends": {"overlapping buffers", func(c *mpi.Comm, r int) error {
		buf := ints(4)
		s, err := mpi.IsendView(c, mpi.Strided(buf, 2, 1, 2), 1-r, 1)
		return firstError(err, ignoring(mpi.Recv(c, buf[2:], 1-r, 1)), wait(s, nil))
	}},
	"a buffer changed while SsendInit sends it": {"buffer changed", func(c *mpi.Comm, r int) error {
		buf := ints(1)
		p, err := mpi.SsendInit(c, buf, 1-r, 1)
		if err != nil {
			return err
		}
		s, err := p.Start()
		buf[0] = 1
		return firstError(err, ignoring(mpi.Recv(c, ints(1), 1-r, 1)), wait(s, nil), p.Free())
	}},
	"Dup and Split": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { _, err := c.Dup(); return err },
			func() error { _, err := c.Split(0, 0); return err })
	}},
	"BcastValue and GatherValues": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { _, err := mpi.BcastValue(c, "a", 0); return err },
			func() error { _, err := mpi.GatherValues(c, "a", 0); return err })
	}},
	"Ibarrier and Ibcast": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return wait(mpi.Ibarrier(c)) },
			func() error { return wait(mpi.Ibcast(c, ints(1), 0)) })
	}},
	"two that do not block in another order": {"different collective", func(c *mpi.Comm, r int) error {
		begin := []func() (mpi.Request, error){
			func() (mpi.Request, error) { return mpi.Ibcast(c, ints(1), 0) },
			func() (mpi.Request, error) { return mpi.Iallreduce(c, ints(1), ints(1), mpi.Sum[int64]()) },
		}
		one, err := begin[r]()
		two, err2 := begin[1-r]()
		_, err3 := one.Wait()
		_, err4 := two.Wait()
		return firstError(err, err2, err3, err4)
	}},
	"persistent ones set up in another order": {"different collective", func(c *mpi.Comm, r int) error {
		bcast := func() error { _, err := mpi.BcastInit(c, ints(1), 0); return err }
		barrier := func() error { _, err := mpi.BarrierInit(c); return err }
		return firstError(differ(r, bcast, barrier), differ(r, barrier, bcast))
	}},
	"collective one does not call": {"different collective", func(c *mpi.Comm, r int) error {
		if r == 0 {
			if err := mpi.Barrier(c); err != nil {
				return err
			}
		}
		return mpi.Bcast(c, ints(1), 0)
	}},
	"Barrier and Ibarrier": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Barrier(c) }, func() error { return wait(mpi.Ibarrier(c)) })
	}},
	"Ibcast and BcastInit": {"different collective", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return wait(mpi.Ibcast(c, ints(1), 0)) },
			func() error { _, err := mpi.BcastInit(c, ints(1), 0); return err })
	}},
	"Barrier and Bcast and then calls that fit": {"different collective", func(c *mpi.Comm, r int) error {
		err := differ(r, func() error { return mpi.Barrier(c) }, func() error { return mpi.Bcast(c, ints(1), 0) })
		return firstError(err, mpi.Bcast(c, ints(1), 0), mpi.Barrier(c))
	}},
	// Roots.
	"root of Bcast": {"different root", func(c *mpi.Comm, r int) error { return mpi.Bcast(c, ints(1), r) }},
	"roots of Bcast that wait for each other": {"different root", func(c *mpi.Comm, r int) error {
		return mpi.Bcast(c, ints(1), 1-r)
	}},
	"length of Bcast that is short at one rank": {"different count", func(c *mpi.Comm, r int) error {
		return mpi.Bcast(c, ints(1+r<<16), 0)
	}},
	"length of Allreduce that is long at one rank": {"different count", func(c *mpi.Comm, r int) error {
		return mpi.Allreduce(c, ints(1<<20>>(15*r)), ints(1<<20>>(15*r)), mpi.Sum[int64]())
	}},
	"root of Ibcast": {"different root", func(c *mpi.Comm, r int) error { return wait(mpi.Ibcast(c, ints(1), r)) }},
	"root of Reduce": {"different root", func(c *mpi.Comm, r int) error {
		return mpi.Reduce(c, ints(1), ints(1), mpi.Sum[int64](), r)
	}},
	"root of Gather": {"different root", func(c *mpi.Comm, r int) error {
		return mpi.Gather(c, ints(1), ints(2), r)
	}},
	"root of Scatter": {"different root", func(c *mpi.Comm, r int) error {
		return mpi.Scatter(c, ints(2), ints(1), r)
	}},
	"root of Gatherv": {"different root", func(c *mpi.Comm, r int) error {
		return mpi.Gatherv(c, ints(1), ints(2), []int{1, 1}, nil, r)
	}},
	"root of BcastValue": {"different root", func(c *mpi.Comm, r int) error {
		_, err := mpi.BcastValue(c, "a", r)
		return err
	}},
	"grid of Cart": {"different arguments", func(c *mpi.Comm, r int) error {
		_, err := c.Cart([]int{1, 2}, []bool{false, r == 1}, false)
		return err
	}},
	// Operators.
	"operator of Allreduce": {"different operator", func(c *mpi.Comm, r int) error {
		op := mpi.Sum[int64]()
		if r == 1 {
			op = mpi.Max[int64]()
		}
		return mpi.Allreduce(c, ints(1), ints(1), op)
	}},
	"operator of Reduce": {"different operator", func(c *mpi.Comm, r int) error {
		op := mpi.Min[int64]()
		if r == 1 {
			op = sumInts
		}
		return mpi.Reduce(c, ints(1), ints(1), op, 0)
	}},
	"operator of Iscan": {"different operator", func(c *mpi.Comm, r int) error {
		op := mpi.Prod[int64]()
		if r == 1 {
			op = mpi.BXor[int64]()
		}
		return wait(mpi.Iscan(c, ints(1), ints(1), op))
	}},
	// Types.
	"type of Bcast": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Bcast(c, ints(1), 0) },
			func() error { return mpi.Bcast(c, floats(1), 0) })
	}},
	"type of Allreduce": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Allreduce(c, ints(1), ints(1), mpi.Sum[int64]()) },
			func() error { return mpi.Allreduce(c, floats(1), floats(1), mpi.Sum[float64]()) })
	}},
	"type of Allgather": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Allgather(c, ints(1), ints(2)) },
			func() error { return mpi.Allgather(c, make([]int32, 2), make([]int32, 4)) })
	}},
	"type of a receive": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Send(c, ints(1), 1, 0) },
			func() error { _, err := mpi.Recv(c, floats(1), 0, 0); return err })
	}},
	"type of Irecv": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return wait(mpi.Isend(c, ints(5), 1, 0)) },
			func() error { return wait(mpi.Irecv(c, floats(5), 0, 0)) })
	}},
	"type of Sendrecv": {"different type", func(c *mpi.Comm, r int) error {
		_, err := mpi.Sendrecv(c, ints(1), 1-r, 0, floats(1), 1-r, 0)
		return err
	}},
	"type of Mrecv": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Ssend(c, make([]int32, 2), 1, 0) }, func() error {
			m, _, err := mpi.Mprobe(c, mpi.AnySource, mpi.AnyTag)
			_, err2 := mpi.Mrecv(&m, ints(1))
			return firstError(err, err2)
		})
	}},
	"type of RecvValue": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.SendValue(c, 7, 1, 0) },
			func() error { return ignoring3(mpi.RecvValue[float64](c, 0, 0)) })
	}},
	"value received by Recv": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.SendValue(c, 7, 1, 0) },
			func() error { return ignoring(mpi.Recv(c, make([]byte, 100), 0, 0)) })
	}},
	"elements received by RecvValue": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Send(c, floats(3), 1, 0) },
			func() error { return ignoring3(mpi.RecvValue[[]float64](c, 0, 0)) })
	}},
	"type of BcastValue": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return ignoring(mpi.BcastValue(c, 1, 0)) },
			func() error { return ignoring(mpi.BcastValue(c, 1.5, 0)) })
	}},
	"type of RecvSlice": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Send(c, floats(3), 1, 0) },
			func() error { return ignoring3(mpi.RecvSlice[int64](c, 0, 0)) })
	}},
	"part of an element": {"invalid type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Send(c, make([]byte, 12), 1, 0) },
			func() error { return ignoring(mpi.Recv(c, floats(2), 0, 0)) })
	}},
	"type of a large message": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Send(c, ints(1<<17), 1, 0) },
			func() error { _, err := mpi.Recv(c, floats(1<<17), 0, 0); return err })
	}},
	"type of a persistent receive": {"different type", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Send(c, ints(1), 1, 0) }, func() error {
			p, err := mpi.RecvInit(c, make([]complex64, 1), 0, 0)
			if err != nil {
				return err
			}
			return wait(p.Start())
		})
	}},
	// Counts.
	"count of Bcast": {"different count", func(c *mpi.Comm, r int) error { return mpi.Bcast(c, ints(1+r), 0) }},
	"count of Allreduce": {"different count", func(c *mpi.Comm, r int) error {
		return mpi.Allreduce(c, ints(3-r), ints(3-r), mpi.Sum[int64]())
	}},
	"count of Gather": {"different count", func(c *mpi.Comm, r int) error {
		return mpi.Gather(c, ints(1+r), ints(2), 0)
	}},
	"count of Alltoall": {"different count", func(c *mpi.Comm, r int) error {
		return mpi.Alltoall(c, ints(2+2*r), ints(2+2*r))
	}},
	"count of Ireduce": {"different count", func(c *mpi.Comm, r int) error {
		return wait(mpi.Ireduce(c, ints(1+r), ints(1+r), mpi.Sum[int64](), 0))
	}},
	"counts of Allgatherv": {"different count", func(c *mpi.Comm, r int) error {
		return mpi.Allgatherv(c, ints(1), ints(4), []int{1 + r, 1 + 0*r}, nil)
	}},
	"nothing at one rank": {"different count", func(c *mpi.Comm, r int) error {
		return mpi.Bcast(c, ints(r), 0)
	}},
	"counts of Alltoallv": {"invalid count", func(c *mpi.Comm, r int) error {
		return mpi.Alltoallv(c, ints(4), []int{2, 2}, nil, ints(3), []int{2 - r, 1 + r}, nil)
	}},
	"a receive too short": {"receive too short", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Send(c, ints(3), 1, 0) },
			func() error { _, err := mpi.Recv(c, ints(2), 0, 0); return err })
	}},
	"an Irecv too short": {"receive too short", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Ssend(c, ints(3), 1, 0) },
			func() error { return wait(mpi.Irecv(c, ints(2), 0, 0)) })
	}},
	// Buffers.
	"two receives into one buffer": {"overlapping buffers", func(c *mpi.Comm, r int) error {
		buf := ints(2)
		a, err := mpi.Irecv(c, buf, 1-r, 1)
		b, err2 := mpi.Irecv(c, buf[1:], 1-r, 2)
		return firstError(err, err2, mpi.Send(c, ints(2), 1-r, 1), mpi.Send(c, ints(1), 1-r, 2),
			mpi.Waitall([]mpi.Request{a, b}))
	}},
	"a send out of a buffer that is received": {"overlapping buffers", func(c *mpi.Comm, r int) error {
		buf := ints(2)
		a, err := mpi.Irecv(c, buf, 1-r, 1)
		return firstError(err, mpi.Send(c, buf, 1-r, 1), wait(a, nil))
	}},
	"Sendrecv in one buffer": {"overlapping buffers", func(c *mpi.Comm, r int) error {
		buf := ints(2)
		_, err := mpi.Sendrecv(c, buf, 1-r, 0, buf, 1-r, 0)
		return err
	}},
	"a receive into a buffer that is sent": {"overlapping buffers", func(c *mpi.Comm, r int) error {
		buf := ints(2)
		a, err := mpi.Isend(c, buf, 1-r, 1)
		_, err2 := mpi.Recv(c, buf, 1-r, 1)
		return firstError(err, err2, wait(a, nil))
	}},
	"Ibcast and Irecv of one buffer": {"overlapping buffers", func(c *mpi.Comm, r int) error {
		buf := ints(2)
		a, err := mpi.Irecv(c, buf, 1-r, 1)
		b, err2 := mpi.Ibcast(c, buf, 0)
		return firstError(err, err2, mpi.Send(c, ints(2), 1-r, 1), mpi.Waitall([]mpi.Request{a, b}))
	}},
	"Allreduce of overlapping parts": {"invalid buffer", func(c *mpi.Comm, r int) error {
		buf := ints(3)
		return mpi.Allreduce(c, buf[:2], buf[1:], mpi.Sum[int64]())
	}},
	"Allgather out of the wrong block": {"overlapping buffers", func(c *mpi.Comm, r int) error {
		buf := ints(5)
		return mpi.Allgather(c, buf[3:], buf[:4])
	}},
	"two calls whose blocks overlap": {"overlapping buffers", func(c *mpi.Comm, r int) error {
		buf := ints(7)
		a, err := mpi.Iallgatherv(c, ints(2), buf, []int{2, 2}, []int{0, 4})
		b, err2 := mpi.Iallgatherv(c, ints(1), buf, []int{1, 1}, []int{5, 6})
		return firstError(err, err2, mpi.Waitall([]mpi.Request{a, b}))
	}},
	"a block changed in Ialltoallv": {"buffer changed", func(c *mpi.Comm, r int) error {
		buf := ints(6)
		a, err := mpi.Ialltoallv(c, buf, []int{2, 2}, []int{0, 4}, ints(4), []int{2, 2}, nil)
		buf[5] = 1
		return wait(a, err)
	}},
	"a buffer changed while it is sent": {"buffer changed", func(c *mpi.Comm, r int) error {
		buf := ints(1 << 16)
		a, err := mpi.Isend(c, buf, 1-r, 1)
		buf[7] = 1
		_, err2 := mpi.Recv(c, ints(1<<16), 1-r, 1)
		return firstError(err, err2, wait(a, nil))
	}},
	"a small buffer changed while it is sent": {"buffer changed", func(c *mpi.Comm, r int) error {
		buf := ints(1)
		a, err := mpi.Issend(c, buf, 1-r, 1)
		_, err2 := mpi.Recv(c, ints(1), 1-r, 1)
		buf[0] = 1
		return firstError(err, err2, mpi.Waitall([]mpi.Request{a}))
	}},
	"a buffer changed in Iallreduce": {"buffer changed", func(c *mpi.Comm, r int) error {
		buf := ints(1)
		a, err := mpi.Iallreduce(c, buf, ints(1), mpi.Sum[int64]())
		buf[0] = 1
		return wait(a, err)
	}},
	// InPlace.
	"InPlace for a rank that is not the root": {"invalid buffer", func(c *mpi.Comm, r int) error {
		return mpi.Reduce(c, mpi.InPlace[int64](), ints(1), mpi.Sum[int64](), 1-r)
	}},
	"InPlace for the output": {"invalid buffer", func(c *mpi.Comm, r int) error {
		return mpi.Allreduce(c, ints(1), mpi.InPlace[int64](), mpi.Sum[int64]())
	}},
	"InPlace at one rank of Alltoall": {"InPlace not at all ranks", func(c *mpi.Comm, r int) error {
		return differ(r, func() error { return mpi.Alltoall(c, mpi.InPlace[int64](), ints(2)) },
			func() error { return mpi.Alltoall(c, ints(2), ints(2)) })
	}},
	// Arguments.
	"a rank that is not there": {"invalid rank", func(c *mpi.Comm, r int) error {
		return mpi.Send(c, ints(1), 2, 0)
	}},
	"a negative tag": {"invalid tag", func(c *mpi.Comm, r int) error { return mpi.Send(c, ints(1), 1-r, -5) }},
	"a root that is not there": {"invalid root", func(c *mpi.Comm, r int) error {
		return mpi.Bcast(c, ints(1), 2)
	}},
	"a freed communicator": {"invalid communicator", func(c *mpi.Comm, r int) error {
		d, err := c.Dup()
		return firstError(err, d.Free(), mpi.Barrier(d))
	}},
	"a type with a pointer": {"invalid type", func(c *mpi.Comm, r int) error {
		return mpi.Send(c, make([]string, 1), 1-r, 0)
	}},
	"a request that is used up": {"invalid request", func(c *mpi.Comm, r int) error {
		a, err := mpi.Irecv(c, ints(1), 1-r, 0)
		return firstError(err, mpi.Send(c, ints(1), 1-r, 0), wait(a, nil), wait(a, nil))
	}},
	"no operator": {"invalid operator", func(c *mpi.Comm, r int) error {
		return mpi.Allreduce(c, ints(1), ints(1), mpi.Op[int64]{})
	}},
	// What is left over.
	"a message that nobody receives": {"message never received", func(c *mpi.Comm, r int) error {
		return mpi.Send(c, ints(1), 1-r, 33)
	}},
	"a large message that nobody receives": {"message never received", func(c *mpi.Comm, r int) error {
		_, err := mpi.Isend(c, ints(1<<16), 1-r, 34)
		return err
	}},
	"a receive that nobody waits for": {"request never waited for", func(c *mpi.Comm, r int) error {
		_, err := mpi.Irecv(c, ints(1), 1-r, 35)
		return err
	}},
	"a send that nobody waits for": {"request never waited for", func(c *mpi.Comm, r int) error {
		_, err := mpi.Isend(c, ints(1), 1-r, 36)
		_, err2 := mpi.Recv(c, ints(1), 1-r, 36)
		return firstError(err, err2)
	}},
	"a collective that nobody waits for": {"request never waited for", func(c *mpi.Comm, r int) error {
		_, err := mpi.Ibarrier(c)
		return err
	}},
}

// wrongVariable names the only program to run; without it all are run.
const wrongVariable = "MPI_TEST_WRONG"

// barriersVariable is how many Barriers precede a program. After some, short collectives go through mailboxes.
const barriersVariable = "MPI_TEST_BARRIERS"

func precedingBarriers(c *mpi.Comm) error {
	n, _ := strconv.Atoi(os.Getenv(barriersVariable))
	for range n {
		if err := mpi.Barrier(c); err != nil {
			return err
		}
	}
	return nil
}

// wrongBody runs the programs one after another, each on a communicator of its own. What a call returns is of
// no interest here: a program may well not look at it.
var wrongBody = body("wrong", func(_ context.Context, world *mpi.Comm) error {
	names := slices.Sorted(maps.Keys(wrongs))
	if only := os.Getenv(wrongVariable); only != "" {
		names = []string{only}
	}
	comms := map[string]*mpi.Comm{}
	for _, name := range names {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		c.SetName(strings.ReplaceAll(name, " ", "-"))
		comms[name] = c
	}
	for _, name := range names {
		if err := precedingBarriers(comms[name]); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "program %s: %v\n", name, wrongs[name].run(comms[name], world.Rank()))
	}
	return nil
})

// Each of the wrong programs is reported, by its class, with the program's communicator and a line of it.
func TestChecking_ReportsWrongPrograms(t *testing.T) {
	require.GreaterOrEqual(t, len(wrongs), 60)
	fabricsInTurn(t, func(t *testing.T, fabric string) { reportsWrongPrograms(t, fabric) })
	t.Run("through mailboxes", func(t *testing.T) { reportsWrongPrograms(t, barriersVariable+"=20") })
}

// In one process, each of the wrong programs is a job of its own.
func TestChecking_ReportsWrongProgramsInOneProcess(t *testing.T) {
	for name, w := range wrongs {
		if raceDetector && w.class == "buffer changed" {
			continue // the race detector reports it, as the engine reads the buffer meanwhile
		}
		t.Run(name, func(t *testing.T) {
			err := mpitest.Try(t, 2, func(_ context.Context, c *mpi.Comm) error {
				_ = w.run(c, c.Rank()) // a program may well not look at what calls return
				return nil
			})
			require.Error(t, err)
			require.Regexp(t, `(?m)^rank \d: `+w.class+`: .*checking_test\.go:\d+`, err.Error())
			require.NotContains(t, err.Error(), "deadlock")
		})
	}
}

func reportsWrongPrograms(t *testing.T, env string) {
	r := launch(t, 2, wrongBody, "WEFT_CHECK=1", env)
	require.Error(t, r.Failure, "mistakes make the job fail")
	assert.NotContains(t, r.Err, "panic")
	for name, w := range wrongs {
		mark := strings.ReplaceAll(name, " ", "-")
		report := regexp.MustCompile(`weft: check: rank \d: ` + w.class + `: .*` + regexp.QuoteMeta(mark) +
			`(\.| |,|:|;|$)`)
		line := ""
		for l := range strings.Lines(r.Err) { // most are soon found to be of other programs
			if strings.Contains(l, mark) && report.MatchString(strings.TrimSuffix(l, "\n")) {
				line = l
				break
			}
		}
		assert.NotEmpty(t, line, "%s: no report of %q", name, w.class)
		assert.Regexp(t, `checking_test\.go:\d+`, line, name)
	}
	if t.Failed() {
		t.Log(r.Err)
	}
}

// notCalled has one rank come to its end while the others wait for it.
var notCalled = worldBody("not called", func(_ context.Context, world *mpi.Comm) error {
	if err := precedingBarriers(world); err != nil || world.Rank() == 1 {
		return err
	}
	return mpi.Barrier(world)
})

// A collective that one rank does not call is reported when that rank comes to its end, without a wait.
func TestChecking_CollectiveThatOneRankDoesNotCall(t *testing.T) {
	for _, run := range []struct {
		ranks    int
		barriers string
	}{{2, "0"}, {3, "0"}, {2, "20"}, {3, "20"}} {
		r := launch(t, run.ranks, notCalled, "WEFT_CHECK=1", barriersVariable+"="+run.barriers)
		require.Error(t, r.Failure)
		require.Regexp(t, `check: rank \d: different collective: Barrier on world at checking_test\.go:\d+, where `+
			`rank 1 called Finalize`, r.Err)
	}
}

// freedAtOnce frees communicators whose collectives are under way.
var freedAtOnce = body("freed at once", func(_ context.Context, world *mpi.Comm) error {
	for range 50 {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		r, err := mpi.Ibarrier(c)
		if err := firstError(err, c.Free()); err != nil {
			return err
		}
		if _, err := r.Wait(); err != nil {
			return err
		}
	}
	return nil
})

// Collectives of a communicator that is freed meanwhile are compared all the same, so Finalize waits for none.
func TestChecking_OfACommunicatorThatIsFreed(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		r := launch(t, 2, freedAtOnce, "WEFT_CHECK=1", "WEFT_LOG=debug", fabric)
		require.NoError(t, r.Failure, r.Err)
		require.NotContains(t, r.Err, "could not be compared")
	})
}

// differentAndFreed has one rank begin a call when the other has begun another one and freed the communicator.
var differentAndFreed = body("different and freed", func(_ context.Context, world *mpi.Comm) error {
	c, err := world.Dup()
	if err != nil {
		return err
	}
	if world.Rank() == 0 {
		if _, err := mpi.Recv(world, ints(1), 1, 0); err != nil {
			return err
		}
	}
	r, err := mpi.Ibcast(c, ints(1), world.Rank())
	if err := firstError(err, c.Free()); err != nil {
		return err
	}
	if world.Rank() == 1 {
		if err := mpi.Send(world, ints(1), 0, 0); err != nil {
			return err
		}
	}
	_ = wait(r, nil) // which may be over before the calls have been compared
	return nil
})

// Free does not keep the ranks from telling each other what they have called.
func TestChecking_ExplainsCallsOnACommunicatorThatIsFreed(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		r := launch(t, 2, differentAndFreed, "WEFT_CHECK=1", fabric)
		require.Error(t, r.Failure)
		for rank := range 2 {
			require.Contains(t, r.Err, fmt.Sprintf("check: rank %d: different root: Ibcast", rank))
		}
	})
}

// between has calls use the blocks of one array while what lies between is used otherwise.
var between = body("between blocks", func(_ context.Context, c *mpi.Comm) error {
	counts, even, odd, all := []int{2, 2}, []int{0, 4}, []int{2, 6}, ints(8)
	a, err := mpi.Igatherv(c, ints(2), all, counts, even, 0)
	b, err2 := mpi.Igatherv(c, ints(2), all, counts, odd, 0)
	if err := firstError(err, err2, mpi.Waitall([]mpi.Request{a, b})); err != nil {
		return err
	}
	a, err = mpi.Ialltoallv(c, ints(4), counts, nil, all, counts, even)
	b, err2 = mpi.Iallgatherv(c, ints(2), all, counts, odd)
	if err := firstError(err, err2, mpi.Waitall([]mpi.Request{a, b})); err != nil {
		return err
	}
	a, err = mpi.Iscatterv(c, all, counts, even, ints(2), 0)
	all[2], all[7] = 1, 1
	if err := wait(a, err); err != nil {
		return err
	}
	// without displacements they end before the end of the array
	a, err = mpi.Iallgatherv(c, ints(2), all, counts, nil)
	all[4] = 1
	b, err2 = mpi.IreduceScatter(c, ints(4), all[4:], counts, mpi.Sum[int64]())
	return firstError(err, err2, mpi.Waitall([]mpi.Request{a, b}))
})

// Memory between the blocks of a call is not the call's: nothing is reported.
func TestChecking_BetweenBlocks(t *testing.T) {
	r := launch(t, 2, between, "WEFT_CHECK=1")
	require.NoError(t, r.Failure, r.Err)
	require.NotContains(t, r.Err, "check:")
}

// Calls that consist of others. Each is wrong once at each of two ranks, in a line of its own.
var composed = body("composed calls", func(_ context.Context, c *mpi.Comm) error {
	peer := 1 - c.Rank()
	views := []mpi.View[int64]{mpi.Strided(ints(4), 2, 1, 2), mpi.Strided(ints(4), 2, 1, 2)}
	other := slices.Clone(views)
	other[peer] = mpi.Strided(ints(4), 1, 1, 2)
	first, second := [][]byte{make([]byte, 2)}, [][]byte{make([]byte, 1)}
	sent, err := mpi.IsendVec(c, first, peer, 3)
	if err != nil {
		return err
	}
	for _, err := range []error{
		ignoring(mpi.Sendrecv(c, ints(2), peer, 0, ints(1), peer, 0)),
		ignoring(mpi.SendrecvView(c, views[0], peer, 0, other[peer], peer, 0)),
		ignoring(mpi.RecvVec(c, second, peer, 3)),
		mpi.AlltoallView(c, views, other),
		mpi.SendValue(c, "", 7, 0),
		ignoring3(mpi.RecvValue[string](c, 7, 0)),
		ignoring(mpi.AllreduceValue(c, int64(1), mpi.Op[int64]{})),
	} {
		if err == nil {
			return errors.New("a wrong call has not failed")
		}
	}
	return wait(sent, nil)
})

func ignoring[T any](_ T, err error) error { return err }

func ignoring3[T, U any](_ T, _ U, err error) error { return err }

// A mistake is reported once, by the name of the call that the program makes.
func TestChecking_CallsThatConsistOfOthers(t *testing.T) {
	r := launch(t, 2, composed, "WEFT_CHECK=1")
	require.Error(t, r.Failure)
	for rank := range 2 {
		var calls []string
		for _, m := range regexp.MustCompile(fmt.Sprintf(`weft: check: rank %d: .*: mpi: (\w+)`, rank)).
			FindAllStringSubmatch(r.Err, -1) {
			calls = append(calls, m[1])
		}
		require.Equal(t, []string{"Sendrecv", "SendrecvView", "RecvVec", "AlltoallView", "SendValue",
			"RecvValue", "AllreduceValue"}, calls, r.Err)
	}
}

var errorsInRing = body("one differs", func(_ context.Context, world *mpi.Comm) error {
	if err := precedingBarriers(world); err != nil {
		return err
	}
	root := 0
	if world.Rank() == 2 {
		root = 1
	}
	return mpi.Bcast(world, make([]int, 3), root)
})

// With more ranks a neighbor of the one that differs reports.
func TestChecking_OneRankOfFiveDiffers(t *testing.T) {
	for _, barriers := range []string{"0", "20"} {
		r := launch(t, 5, errorsInRing, "WEFT_CHECK=1", barriersVariable+"="+barriers)
		require.Error(t, r.Failure)
		require.Regexp(t, `check: rank [123]: different root: Bcast on world at checking_test\.go:\d+, where `+
			`rank [123] called Bcast at checking_test\.go:\d+: root \d and root \d`, r.Err)
	}
}

var oneDoesNotBlock = body("one does not block", func(_ context.Context, world *mpi.Comm) error {
	if err := precedingBarriers(world); err != nil {
		return err
	}
	if world.Rank() == 1 {
		return wait(mpi.Ibarrier(world))
	}
	return mpi.Barrier(world)
})

// Both neighbors find the difference, by words and by messages, and neither ends the job with less than a
// report.
func TestChecking_OneRankDoesNotBlock(t *testing.T) {
	for range 5 {
		r := launch(t, 3, oneDoesNotBlock, "WEFT_CHECK=1", barriersVariable+"=20")
		require.Error(t, r.Failure)
		require.NotContains(t, r.Err, "as that rank found")
		require.Regexp(t, `check: rank \d: different collective: I?barrier on world at checking_test\.go:\d+, where `+
			`rank \d called I?barrier at checking_test\.go`, strings.ReplaceAll(r.Err, "Barrier", "barrier"))
	}
}
