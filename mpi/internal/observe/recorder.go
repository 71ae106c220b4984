package observe

import (
	"syscall"

	"github.com/weft-mpi/weft/internal/inherited"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// OpenRecorder opens the recorder that writes where the launcher can read; nil where there is no such place.
func OpenRecorder() (*recorder.Recorder, error) {
	fd, err := inherited.Take(inherited.Recorder)
	if err != nil || fd < 0 {
		return nil, err
	}
	defer syscall.Close(fd)
	events, err := recorder.Open(fd)
	if err != nil {
		return nil, err
	}
	events.NameOperations(engine.OperationNames())
	return events, nil
}
