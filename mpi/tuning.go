package mpi

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/tuning"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/start"
)

func init() {
	tuning.Algorithms = func(operation string) ([]string, error) {
		for _, o := range coll.Operations() {
			if o.String() == operation {
				return coll.Algorithms(o), nil
			}
		}
		return nil, fmt.Errorf("no collective is called %q", operation)
	}
	tuning.Select = func(comm any, text string) error {
		choices, err := start.Selection(text)
		if err == nil {
			c := comm.(*Comm)
			c.coll.mu.Lock()
			defer c.coll.mu.Unlock()
			c.choices = &choices
			for i := range c.coll.own {
				// their schedules are by other choices
				c.coll.own[i].Call, c.coll.keys[i] = coll.Call{}, callKey{}
			}
		}
		return err
	}
	tuning.Used = func(comm any) string {
		k := &comm.(*Comm).coll
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.used[k.latest]
	}
	tuning.ForceWay = func(comm any, w tuning.Way) { comm.(*Comm).e.Sends.ForceWay(w) }
}
