package bench

import (
	"time"

	"github.com/weft-mpi/weft/mpi"
)

// largeSlots are the slots of channels with large buffers from the start: the default second phase.
const largeSlots = "16448"

// memory prints the memory of all connections and mailboxes of rank 0 in jobs of 2, 4, 8 … ranks in which all
// ranks communicate. Such a job consists of the first ranks of this one; the others do not communicate yet.
func memory(s *session) error {
	c, err := newCensus(s)
	if err != nil {
		return err
	}
	c.resizeTimeout = time.Minute
	s.heading()
	last := s.world.Size()
	for before, n := 1, 2; ; before, n = n, min(2*n, last) {
		if s.world.Rank() < n {
			if err := c.job(before, n); err != nil {
				return err
			}
		}
		if n == last {
			return s.out.err
		}
	}
}

// job measures the first n ranks of the world, after the first before ranks.
func (c *census) job(before, n int) error {
	if err := c.admit(before, n); err != nil {
		return err
	}
	if err := c.meet(n); err != nil {
		return err
	}
	ranks := make([]int, n)
	for r := range ranks {
		ranks[r] = r
	}
	group, err := c.world.Group().Incl(ranks...)
	if err != nil {
		return err
	}
	all, err := c.world.CreateGroup(group, pingTag)
	if err != nil {
		return err
	}
	for range mailboxCalls {
		if err := mpi.Barrier(all); err != nil {
			return err
		}
	}
	if c.world.Rank() == 0 {
		err = c.memoryRow(n)
	} else {
		err = c.echo()
	}
	if err != nil {
		return err
	}
	return all.Free()
}

// mailboxCalls is enough collectives for a communicator of ranks of one host to get mailboxes.
const mailboxCalls = 16

// admit lets ranks from before on begin: they wait for a message of rank 0.
func (c *census) admit(before, n int) error {
	switch me := c.world.Rank(); {
	case me >= before:
		_, err := mpi.Recv(c.world, c.message[:0], 0, pingTag)
		return err
	case me > 0:
		return nil
	}
	for r := before; r < n; r++ {
		if err := mpi.Send(c.world, c.message[:0], r, pingTag); err != nil {
			return err
		}
	}
	return nil
}

// meet makes each of the first n ranks exchange a message with each other one.
func (c *census) meet(n int) error {
	me := c.world.Rank()
	for step := 1; step < n; step++ {
		if _, err := mpi.Sendrecv(c.world, []byte{0}, (me+step)%n, dataTag, make([]byte, 1), (me+n-step)%n,
			dataTag); err != nil {
			return err
		}
	}
	return nil
}

// memoryRow measures rank 0 after all its rings have been written, since registered memory that an adapter
// accesses has all its pages.
func (c *census) memoryRow(n int) error {
	registered, _, err := c.measured(n-1, 0)
	if err != nil {
		return err
	}
	resident, err := c.settledResident()
	if err != nil {
		return err
	}
	mailboxes := c.world.Stats().Collective
	registered += mailboxes
	c.row([]float64{float64(n), float64(registered), float64(mailboxes), float64(max(0, resident-c.before)),
		float64(n-1) * (1 << 30) / float64(registered)})
	if c.out.err != nil {
		return c.out.err
	}
	return c.end(n - 1)
}

// memoryColumns returns columns for the job's own settings, and for a job with large buffers from the start.
func memoryColumns() []column {
	own := []column{
		{name: "registered", heading: "Registered", unit: "bytes", width: 14, form: whole},
		{name: "mailboxes", heading: "Mailboxes", unit: "bytes", width: 14, form: whole},
		{name: "resident", heading: "Resident", unit: "bytes", width: 14, form: whole},
		{name: "connections_per_gib", heading: "Connections/GiB", width: 18, form: whole},
	}
	columns := append([]column{{name: "ranks", heading: "# Ranks", width: -10, form: whole}}, own...)
	return append(columns, besideColumns(1, "large", "Large:", own[0], own[2], own[3])...)
}

// memoryLines returns the lines of a plot.
func memoryLines(columns []column, rows [][]float64) *panel {
	p := &panel{axes: memoryAxes}
	for i, c := range columns {
		if c.unit != "bytes" {
			continue
		}
		for _, row := range rows {
			p.add(trimHeading(c.heading), row[0], row[i])
		}
	}
	return p
}
