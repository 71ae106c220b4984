package mpi

import (
	"os"
	"strconv"
	"syscall"

	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// openRecorder opens the recorder that writes where the launcher can read; nil where there is no such place.
func openRecorder() *recorder.Recorder {
	fd, err := strconv.Atoi(os.Getenv(recorder.Variable))
	if err != nil || fd < 3 {
		return nil
	}
	os.Unsetenv(recorder.Variable)
	r, err := recorder.Open(fd)
	if err != nil {
		return nil // a program between launcher and rank has closed it, or this system has no shared memory
	}
	syscall.Close(fd)
	r.NameOperations(engine.OperationNames())
	return r
}
