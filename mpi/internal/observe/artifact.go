package observe

import (
	"errors"
	"runtime"
	"time"

	"github.com/weft-mpi/weft/internal/snapshot"
)

const (
	// artifactPart is the number of bytes of an artifact in a frame.
	artifactPart = 256 << 10
	// takenWithin bounds how long a rank that ends waits for its launcher to take an artifact, which is a
	// report file.
	takenWithin = 5 * time.Second
	maxStacks   = 4 << 20 // bytes
)

// artifact sends the parts of an artifact.
func (r *Reporter) artifact(what snapshot.Artifact, data []byte) error {
	data = data[:min(len(data), snapshot.MaxArtifact)]
	for {
		part := data[:min(len(data), artifactPart)]
		data = data[len(part):]
		last := byte(0)
		if len(data) == 0 {
			last = 1
		}
		body := append([]byte{byte(what), last}, part...)
		if err := r.send(snapshot.ArtifactPart, body); err != nil || last == 1 {
			return err
		}
	}
}

var errNoLauncher = errors.New("there is no launcher to send it to: weft run starts one")

// leave sends an artifact, and waits until the launcher has it, because it would be lost when the rank ends.
func (r *Reporter) leave(what snapshot.Artifact, data []byte) error {
	if r == nil || !r.takes {
		return errNoLauncher
	}
	if err := r.artifact(what, data); err != nil {
		return err
	}
	select {
	case <-r.taken:
		return nil
	case <-time.After(takenWithin):
		return errors.New("the launcher has not taken it")
	}
}

// stacks returns the stacks of all goroutines, as far as they fit.
func stacks() []byte {
	trace := make([]byte, maxStacks)
	return trace[:runtime.Stack(trace, true)]
}
