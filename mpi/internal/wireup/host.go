package wireup

import (
	"os"
	"strconv"
)

// Neighbours tells whether other ranks of the job can be expected on this host, and whether some can on others. Where the launcher has
// not said how many there are, both can. A world of one counts as a neighbour of itself.
func (j *Job) Neighbours() (here, elsewhere bool) {
	size := int(j.Identity.Size)
	if size == 1 {
		return true, false
	}
	for _, name := range []string{"WEFT_LOCAL_SIZE", "MPI_LOCALNRANKS"} {
		if local, err := strconv.Atoi(os.Getenv(name)); err == nil && local > 0 {
			return local > 1, local < size
		}
	}
	return true, true
}
