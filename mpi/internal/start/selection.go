package start

import (
	"fmt"
	"os"

	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// Selection reads the value of WEFT_COLL, and the tables that it names.
func Selection(text string) (coll.Selection, error) {
	choices, err := coll.ParseSelection(text)
	if err != nil {
		return coll.Selection{}, err
	}
	for _, file := range choices.Tables {
		table, err := os.ReadFile(file)
		if err == nil {
			err = choices.ReadTable(table)
		}
		if err != nil {
			return coll.Selection{}, fmt.Errorf("%s: %w", file, err)
		}
	}
	return choices, nil
}
