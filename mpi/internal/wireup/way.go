package wireup

import (
	"context"
	"net/netip"
	"os"
	"strconv"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/route"
	"github.com/weft-mpi/weft/mpi/internal/wireup/coordinator"
)

// way is a bootstrap: the exchange of addresses among ranks before they can send messages. The
// implementations are alone (a single rank), launcher (PMI), rank0 (rank 0 coordinates) and attendee (all
// ranks in this process).
type way interface {
	Put(ctx context.Context, key, value string) error
	Get(ctx context.Context, key string) (string, error)
	Barrier(ctx context.Context) error
	Finalize(ctx context.Context) error
	Close() error
	// Abort ends the job with an exit status.
	Abort(code int) error
	// PeerLost reports that this rank has lost the connection to another one, or, if the number is negative,
	// has heard of a loss. It does not wait.
	PeerLost(rank int)

	// local returns the number of ranks on this host; 0 if unknown. Through rank 0 it is the number of ranks
	// with the same kernel and network namespace.
	local() int
	// address returns this host's address for the other hosts, if ranks may be elsewhere; invalid if there is
	// none.
	address(elsewhere bool) netip.Addr
}

// alone is the way of a single rank without a launcher.
type alone struct{}

func (alone) Put(context.Context, string, string) error   { return nil }
func (alone) Get(context.Context, string) (string, error) { return "", coordinator.ErrNotFound }
func (alone) Barrier(context.Context) error               { return nil }
func (alone) Finalize(context.Context) error              { return nil }
func (alone) Close() error                                { return nil }
func (alone) Abort(int) error                             { return nil }
func (alone) PeerLost(int)                                {}
func (alone) local() int                                  { return 1 }
func (alone) address(bool) netip.Addr                     { return netip.Addr{} }

// launcher is the way through a launcher, weft's or another one, that speaks PMI-1.1.
type launcher struct{ *pmi.Client }

// underWeft reports whether the launcher is weft run.
func underWeft() bool { return os.Getenv("WEFT_JOB") != "" }

// Abort returns, under weft run, when the launcher has ended the other ranks or is gone, so that later output
// of this rank comes last and is complete.
func (l launcher) Abort(code int) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	if err := l.Client.Abort(ctx, code); err != nil || !underWeft() {
		return err
	}
	ctx, cancel = context.WithTimeout(context.Background(), hangUpWithin)
	defer cancel()
	l.AwaitHangUp(ctx)
	return nil
}

func (l launcher) PeerLost(rank int) {
	if underWeft() {
		l.Client.PeerLost(rank)
	}
}

func (l launcher) local() int {
	for _, name := range []string{"WEFT_LOCAL_SIZE", "MPI_LOCALNRANKS"} {
		if local, err := strconv.Atoi(os.Getenv(name)); err == nil && local > 0 {
			return local
		}
	}
	if os.Getenv("SLURM_STEP_NUM_NODES") == "1" {
		return l.Size()
	}
	return 0
}

func (launcher) address(elsewhere bool) netip.Addr {
	if !elsewhere {
		return netip.Addr{}
	}
	addr, err := route.Towards(knownHosts(os.Getenv))
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

// rank0 is the way through rank 0 as the coordinator, without a launcher.
type rank0 struct{ *coordinator.Client }

func (r rank0) Abort(code int) error {
	ctx, cancel := context.WithTimeout(context.Background(), directWithin)
	defer cancel()
	return r.Client.Abort(ctx, code)
}

// PeerLost passes over a loss without a number: rank 0 starts no job again.
func (r rank0) PeerLost(rank int) {
	if rank >= 0 {
		r.Client.PeerLost(rank)
	}
}

func (r rank0) local() int              { return r.Local() }
func (r rank0) address(bool) netip.Addr { return r.Address() }
