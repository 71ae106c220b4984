package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/transport/fabrics"
)

// costFacts are what copies take between ranks of this host, and how messages therefore move.
type costFacts struct {
	Costs        []cost    `json:"costs"`
	Awaited      int       `json:"awaited_bytes"`
	Streamed     int       `json:"streamed_bytes"`
	InPieces     int       `json:"pieces_bytes"`
	Staged       int       `json:"staged_bytes"`
	StagedByBoth int       `json:"staged_by_both_bytes"`
	Ways         []sendWay `json:"awaited_sends"`
}

// cost is one of copycost.Costs.
type cost struct {
	Name   string        `json:"name"`
	Value  time.Duration `json:"ns"`
	Source string        `json:"source"`
}

// sendWay is how a blocking send of so many bytes moves whose receiver waits.
type sendWay struct {
	Fabric string `json:"fabric"`
	Bytes  int    `json:"bytes"`
	Way    string `json:"way"`
}

func theCosts(ctx context.Context) (*costFacts, error) {
	set := setting.Environment()
	slots, err := throughSlots(set)
	if err != nil {
		return nil, err
	}
	c, call, mapped, err := findCosts(ctx, set)
	if err != nil {
		return nil, err
	}
	whole := min(slots, fabrics.Choose("shm", true, false)[0].EagerMax)
	f := &costFacts{Awaited: c.Awaited(), Streamed: max(whole, c.Streamed()), Staged: c.Staged(),
		StagedByBoth: c.StagedByBoth(), InPieces: c.Pieces(copycost.MaxPiece)}
	f.Costs = []cost{
		{"call that copies another process's memory, before the first byte", c.Call, call},
		{"the call then, for each KiB", c.CallKiB, call},
		{"both copies through shared memory, for each KiB", c.MappedKiB, mapped},
		{"writing to memory that the other process has read, for each KiB", c.RewriteKiB, mapped},
	}
	if set.Of(setting.EagerMax).String() != "" {
		f.Awaited, f.Streamed = slots, slots // it decides for all messages
	}
	for n := 2 << 10; n <= 2*copycost.MaxMapped; n *= 2 {
		f.Ways = append(f.Ways, sendWay{"shm", n, wayOf(n, f.Awaited)})
	}
	announced := "announced, and written into the receiver's buffer"
	if set.Of(setting.Rendezvous).String() == "read" {
		announced = "announced, and fetched by the receiver"
	}
	for n := 2 << 10; n <= 2*copycost.MaxMapped; n *= 2 {
		way := "through the ring"
		if n > slots {
			way = announced
		}
		f.Ways = append(f.Ways, sendWay{"tcp", n, way})
	}
	return f, nil
}

// throughSlots returns the length up to which messages go through the ring where copies do not decide.
func throughSlots(set setting.Values) (int, error) {
	if v := set.Of(setting.EagerMax); v.String() != "" {
		return v.Bytes(1)
	}
	phases, err := channel.ParsePhases(set.Of(setting.Phases).String())
	if err != nil {
		return 0, fmt.Errorf("%s: %w", setting.Phases.Name, err)
	}
	const heads = 64 // bytes of a slot besides the payload, at most
	return phases[len(phases)-1] - heads, nil
}

// findCosts returns the costs that a job of two ranks finds here, and where those of the call and of shared
// memory come from.
func findCosts(ctx context.Context, set setting.Values) (c copycost.Costs, call, mapped string, err error) {
	assumed, by := copycost.Default, "assumed, as it cannot be measured: %v"
	if given := set.Of(setting.CopyCosts).String(); given != "" {
		start := false
		if assumed, start, err = copycost.Parse(given); err != nil {
			return c, "", "", fmt.Errorf("%s: %w", setting.CopyCosts.Name, err)
		}
		if !start {
			return assumed, setting.CopyCosts.Name, setting.CopyCosts.Name, nil
		}
		by = "of " + setting.CopyCosts.Name + ", as it cannot be measured: %v"
	}
	call, mapped = "measured", "measured by two ranks"
	if c.Call, c.CallKiB, err = sys.TimeOwnCall(); err != nil {
		call = fmt.Sprintf(by, err)
	}
	if c.MappedKiB, c.RewriteKiB, err = ranksMeasure(ctx); err != nil {
		mapped = fmt.Sprintf(by, err)
	}
	return c.Or(assumed), call, mapped, nil
}

// measureFlag has weft info measure, as one of two ranks.
const measureFlag = "measure-as-rank"

// ranksMeasure runs a job of two ranks, which find what copies through shared memory take for each KiB, and
// writes to memory that the other one has read.
func ranksMeasure(ctx context.Context) (mapped, rewrite time.Duration, err error) {
	m, err := topology.Read()
	switch {
	case err != nil:
		return 0, 0, err
	case m.UsableCores() < 2:
		return 0, 0, errors.New("this process may use only one core")
	}
	job, err := selfJob(2, []string{"info", "--" + measureFlag})
	if err != nil {
		return 0, 0, err
	}
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return 0, 0, err
	}
	defer nowhere.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return 0, 0, err
	}
	defer out.Close()
	job.Out, job.Err, job.Timeout, job.Sole = in, nowhere, time.Minute, true
	for _, s := range setting.All { // with others, ranks may not sample, or not start
		job.Env = append(job.Env, s.Name+"=")
	}
	job.Env = append(job.Env, setting.Fabric.Name+"=shm")
	err = launcher.Run(ctx, job)
	in.Close()
	var found [2]time.Duration
	if err == nil {
		err = json.NewDecoder(out).Decode(&found)
	}
	if err == nil && found[0] <= 0 {
		err = errors.New("no message was sampled")
	}
	return found[0], found[1], err
}

// measureAsRank is what each of the two ranks does: it sends messages, of which copies are sampled, and calls
// collectives of long messages until the set-up of their mailboxes has measured. Rank 0 prints the result; 0
// for none.
func measureAsRank(ctx context.Context) error {
	return mpi.Run(ctx, func(_ context.Context, world *mpi.Comm) error {
		const messages, within = 2000, 50 * time.Millisecond // whichever ends first
		b, peer, began := make([]byte, 16<<10), 1-world.Rank(), time.Now()
		for i, last := 0, false; !last; i++ {
			if world.Rank() == 0 && (i == messages || time.Since(began) > within) {
				b[0] = 1
			}
			for turn := range 2 {
				var err error
				if turn == world.Rank() {
					err = mpi.Send(world, b, peer, 0)
				} else {
					_, err = mpi.Recv(world, b, peer, 0)
				}
				if err != nil {
					return err
				}
			}
			last = b[0] == 1
		}
		for range 20 {
			if err := mpi.Bcast(world, b, 0); err != nil {
				return err
			}
		}
		if world.Rank() != 0 {
			return nil
		}
		c := world.Stats().Channels[0]
		found := [...]time.Duration{c.MappedKiB, c.RewriteKiB}
		if sys.Ticks() == 0 {
			clear(found[:]) // there is no clock that is cheap enough
		}
		return json.NewEncoder(os.Stdout).Encode(found)
	})
}

func wayOf(n, awaited int) string {
	switch fragment := copycost.Fragment(n); {
	case n > awaited:
		return "the receiver reads it in one copy"
	case n > fragment:
		return fmt.Sprintf("through the ring, in fragments of up to %d bytes", fragment)
	}
	return "through the ring"
}

func (f *costFacts) print(w io.Writer) {
	fmt.Fprintln(w, "COST\tVALUE\tSOURCE")
	for _, c := range f.Costs {
		fmt.Fprintf(w, "%s\t%v\t%s\n", c.Name, c.Value, c.Source)
	}
	fmt.Fprintln(w, "CHOICE, shm\tBYTES\tREASON")
	fmt.Fprintf(w, "a collective of two ranks goes in pieces through shared memory\tup to %d\t%s\n",
		f.InPieces, "one copies in while the other copies out")
	fmt.Fprintf(w, "what the other rank reads is copied to shared memory\tup to %d\t%s\n", f.Staged,
		"one call against a second copy")
	fmt.Fprintf(w, "the same if both read\tup to %d\tboth copy at once\n", f.StagedByBoth)
	fmt.Fprintf(w, "nonblocking sends of a stream go through the ring\tup to %d\t%s\n", f.Streamed,
		"one copies in while the other copies out")
	fmt.Fprintln(w, "BLOCKING SEND THAT IS LIKELY AWAITED\tBYTES\tWAY")
	for _, v := range f.Ways {
		fmt.Fprintf(w, "%s\t%d\t%s\n", v.Fabric, v.Bytes, v.Way)
	}
}
