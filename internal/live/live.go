// Package live is how a running job is looked at: its launcher listens on a Unix socket in a folder that only
// the user can enter, and says once in a while what the ranks do. Whoever watches can ask for nothing else.
//
// Both sides speak in frames: a length of 4 bytes, big endian, and an encoding of Job in JSON. The launcher
// begins with one that has no ranks, or says why it does not serve this caller. The caller then sends one
// byte of value Watch, and gets a frame whenever the launcher has asked the ranks.
package live

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Version is that of the encoding. A caller reads jobs of its own version only.
const Version = 2

// Watch is the byte that a caller sends to be told of the ranks.
const Watch = 1

// maxFrame bounds what a caller reads: a job of 65,536 ranks with long lines.
const maxFrame = 64 << 20

// A Job is what a launcher says of its job.
type Job struct {
	Version int
	Refused string `json:",omitempty"` // why the caller is not served; all else is empty then

	PID   int           // of the launcher
	Name  string        // of the first program, without its folder
	Size  int           // ranks
	Up    time.Duration // since the launcher's start
	Every time.Duration // between two frames
	Stuck []int         `json:",omitempty"` // ranks of which it is proven that they wait for ever
	Ranks []Rank        `json:",omitempty"`
}

// State is what a rank does.
type State string

const (
	Starting   State = "starting"
	Working    State = "working"    // a goroutine of the program is in no call, or cannot be told from one
	Waiting    State = "waiting"    // all goroutines wait in calls
	Stuck      State = "stuck"      // it is proven that they do for ever
	Finalizing State = "finalizing" // it waits in Finalize for the others
	Finished   State = "finished"   // it has left Finalize
	Stopped    State = "stopped"    // by a signal
	Silent     State = "no answer"  // it is no program of weft, or does not get to answer
	Ended      State = "ended"      // its process has ended
)

// A Rank is what the launcher knows of a rank. The counters are totals since the rank's Init.
type Rank struct {
	Rank, PID int
	Host      string
	State     State
	Call      string        `json:",omitempty"` // what it waits in, for whom, and where in the program
	For       time.Duration // it has waited

	Up, Asleep      time.Duration
	Sent, SentBytes uint64 // messages, and their bytes
	// of Sent, by endpoint; empty while one is in use
	SentBy             []uint64 `json:",omitempty"`
	Memory, Registered uint64   // bytes of the Go runtime, and of the channels' buffers
	Phases             []int    `json:",omitempty"`
	Lanes              int
	LanesLost          uint64
}

func writeJob(w io.Writer, j *Job) error {
	frame, err := encode(j)
	if err != nil {
		return err
	}
	_, err = w.Write(frame)
	return err
}

// encode makes the frame of a job.
func encode(j *Job) ([]byte, error) {
	j.Version = Version
	body, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	if len(body) > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes", len(body))
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}

// readJob reads the frame of a job. It does not trust the writer.
func readJob(r io.Reader) (*Job, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes; at most %d are read", n, maxFrame)
	}
	// The memory grows with what comes, not with what is announced.
	body, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return nil, err
	}
	if len(body) < int(n) {
		return nil, io.ErrUnexpectedEOF
	}
	j := &Job{}
	if err := json.Unmarshal(body, j); err != nil {
		return nil, err
	}
	if j.Version != Version {
		return nil, fmt.Errorf("the job's launcher speaks version %d, and this is version %d", j.Version,
			Version)
	}
	if len(j.Ranks) > 0 && len(j.Ranks) != j.Size {
		return nil, fmt.Errorf("a job of %d ranks that lists %d", j.Size, len(j.Ranks))
	}
	return j, nil
}
