// Package endpointtest runs the programs of tests on another endpoint than the world's.
package endpointtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/weft-mpi/weft/mpi"
)

// Variable names the endpoint; empty for that of the world. WEFT_ENDPOINTS must be larger.
const Variable = "WEFT_TEST_ENDPOINT"

// Body gives run, in place of the world, a duplicate of it on the endpoint that Variable names.
func Body(run func(ctx context.Context, world *mpi.Comm) error) func(ctx context.Context,
	world *mpi.Comm) error {
	return func(ctx context.Context, world *mpi.Comm) error {
		name := os.Getenv(Variable)
		if name == "" {
			return run(ctx, world)
		}
		number, err := strconv.Atoi(name)
		if err != nil {
			return fmt.Errorf("%s: %w", Variable, err)
		}
		c, err := world.Dup(mpi.OnEndpoint(number))
		if err != nil {
			return err
		}
		if os.Getenv("WEFT_SURVIVE") != "" { // no rank dies before all have it
			if _, err := world.Agree(0); err != nil && !errors.Is(err, mpi.ErrProcFailed) {
				return err
			}
		}
		c.SetName(world.Name())
		if err = run(ctx, c); err == nil && os.Getenv("WEFT_CHECK") != "" { // which wants that
			err = c.Free()
		}
		return err
	}
}
