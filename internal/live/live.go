// Package live lets a user watch a running job: its launcher listens on a Unix socket in a folder that only
// the user can enter, and periodically reports what the ranks do. A watcher cannot ask for anything else.
//
// The launcher sends frames: a length of 4 bytes, big endian, and a Job in JSON. The first one has no ranks,
// or says why it does not serve this caller. The caller then sends one byte of value Watch, and gets a frame
// whenever the launcher has asked the ranks.
package live

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Version is the version of the encoding. A caller reads only jobs of its own version.
const Version = 2

// Watch is the byte that a caller sends to get reports on the ranks.
const Watch = 1

// maxFrame bounds the frames that a caller reads: a job of 65,536 ranks with long lines.
const maxFrame = 64 << 20

// A Job is a launcher's report on its job.
type Job struct {
	Version int
	Refused string `json:",omitempty"` // why the caller is not served; all other fields are empty then

	PID   int           // of the launcher
	Name  string        // of the first program, without its folder
	Size  int           // ranks
	Up    time.Duration // since the launcher's start
	Every time.Duration // between two frames
	Stuck []int         `json:",omitempty"` // ranks that provably wait forever
	Ranks []Rank        `json:",omitempty"`
}

// State is the state of a rank.
type State string

const (
	Starting   State = "starting"
	Working    State = "working"    // a goroutine of the program is in no call, or may be
	Waiting    State = "waiting"    // all goroutines wait in calls
	Stuck      State = "stuck"      // provably forever
	Finalizing State = "finalizing" // it waits in Finalize for the others
	Finished   State = "finished"   // it has left Finalize
	Stopped    State = "stopped"    // by a signal
	Silent     State = "no answer"  // it is not a weft program, or cannot answer
	Ended      State = "ended"      // its process has ended
)

// A Rank describes a rank. The counters are totals since its Init.
type Rank struct {
	Rank, PID int
	Host      string
	State     State
	Call      string        `json:",omitempty"` // the call in which it waits, its peer, and its source line
	For       time.Duration // how long it has waited

	Up, Asleep      time.Duration
	Sent, SentBytes uint64 // messages, and their bytes
	// Sent by endpoint; empty while only one is in use
	SentBy             []uint64 `json:",omitempty"`
	Memory, Registered uint64   // bytes of the Go runtime, and of the channels' buffers
	// channels in each phase, from the first one: the phase of a channel is the index of the slot size
	// (WEFT_PHASES) that it uses now
	Phases    []int  `json:",omitempty"`
	Lanes     int    // TCP connections that carry data now
	LanesLost uint64 // since Init
}

func writeJob(w io.Writer, j *Job) error {
	frame, err := encode(j)
	if err != nil {
		return err
	}
	_, err = w.Write(frame)
	return err
}

// encode returns the frame of a job.
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
	// The memory grows with the received bytes, not with the announced length.
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
