// Package checkpoint saves the state of a job's ranks, so that the job can go on from there when it is
// restarted, as `weft run --restarts` does, or when its survivors shrink their communicator.
//
// Each rank has its state in a file on its own host, and a copy in a file on another host, that of its buddy.
// So a checkpoint survives the loss of any one host with its disk, and needs no shared file system. A shared
// file system works as well.
//
//	store, err := checkpoint.Open(world, dir, "heat 768x512")
//	…
//	step, state, err := store.Load(nil)
//	if errors.Is(err, checkpoint.ErrNone) {
//		step, state, err = 0, initial(), nil
//	}
//	…
//	for ; step < steps; step++ {
//		if step%interval == 0 {
//			err = store.Save(step, state)
//		}
//		…
//	}
//
// A file appears complete or not at all, and has checksums. The last two checkpoints are kept, so if one was
// not finished, or has a damaged file, the previous one remains. All calls are collective.
//
// docs/internals/spec/checkpoint.md specifies the format of the files.
package checkpoint

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/together"
)

// ErrNone says that there is no checkpoint to go on from: none was ever finished.
var ErrNone = errors.New("no checkpoint")

// none is the step of a checkpoint that does not exist.
const none = -1

// A Store saves and loads the checkpoints of the ranks of a communicator. Its calls are collective: all ranks
// make them in the same order.
type Store struct {
	comm *mpi.Comm
	dir  string
	what string
	run  uint64 // of the next set; random at first

	hosts   []int // by rank: the number of its host
	buddy   int   // the rank that keeps a copy of this rank's state, or mpi.ProcNull
	wards   []int // of whose states this rank keeps copies
	sweeper bool  // this rank removes old files of its host

	latest setID // what has been saved or loaded last
}

// Open opens the checkpoints in the folder dir, which it creates if it does not exist. Each host uses its own
// folder of that name, best on its own disk. Only one job at a time may use the folder. The text what
// identifies the state, for example by the size of the problem. It has at most 1000 bytes and is the same at
// all ranks: Load refuses a state with a different text. If a rank fails during Open, Open may revoke c.
func Open(c *mpi.Comm, dir, what string) (*Store, error) {
	comm, err := together.Dup(c, "checkpoints")
	if err != nil {
		return nil, err
	}
	s := &Store{comm: comm, dir: dir, what: what, latest: setID{Step: none}}
	if err := s.open(); err != nil {
		return nil, errors.Join(s.leave(err), comm.Free())
	}
	return s, nil
}

func (s *Store) leave(err error) error { return together.Leave(s.comm, err) }

// Revoke ends the use of the Store, except for Close: every current or later call at any rank returns
// mpi.ErrRevoked, or success if it was already done. In a job that goes on when ranks fail, a rank that
// learns of a failure revokes the Store together with its communicator, shrinks the communicator, and opens a
// new Store.
func (s *Store) Revoke() error { return s.comm.Revoke() }

func (s *Store) open() error {
	var err error
	if len(s.what) > maxWhat {
		err = fmt.Errorf("checkpoint: the description of the state (what) has %d bytes; at most %d are "+
			"allowed", len(s.what), maxWhat)
	} else if err = os.MkdirAll(s.dir, 0o777); err == nil {
		err = tryFolder(s.dir)
	}
	if err := s.agree(err); err != nil {
		return err
	}
	host, err := hostOf(s.comm)
	if err != nil {
		return err
	}
	s.hosts = make([]int, s.comm.Size())
	if err := mpi.Allgather(s.comm, []int{host}, s.hosts); err != nil {
		return err
	}
	s.buddy, s.wards = place(s.hosts, s.comm.Rank())
	s.sweeper = firstOf(s.hosts, host) == s.comm.Rank()
	var random [8]byte
	rand.Read(random[:])
	run := []uint64{binary.LittleEndian.Uint64(random[:])}
	if err := mpi.Bcast(s.comm, run, 0); err != nil {
		return err
	}
	s.run = run[0]
	if s.sweeper {
		removeUnfinished(s.dir)
	}
	return mpi.Barrier(s.comm) // a rank that writes now would lose its file to the sweeper
}

// Close releases the Store's communicator. The files stay.
func (s *Store) Close() error { return s.comm.Free() }

// hostOf is together.HostOf. A test has hosts of its own.
var hostOf = together.HostOf

// Save saves the state of every rank after a step, a number of at least 0 that is the same at all ranks. It
// returns when all ranks have saved theirs. Until then, the program may read but not change the state. If a
// state cannot be saved, Save returns an error at all ranks, and the previous checkpoints remain.
func (s *Store) Save(step int, state []byte) error { return s.leave(s.save(step, state)) }

func (s *Store) save(step int, state []byte) error {
	id := setID{Step: int64(step), Run: s.run, Size: s.comm.Size()}
	s.run++
	var err error
	if step < 0 {
		err = fmt.Errorf("checkpoint: step %d: it must be 0 or more", step)
	}
	if err := s.agree(err); err != nil {
		return err
	}
	h := header{Set: id, Rank: s.comm.Rank(), Before: s.latest.Step, Length: int64(len(state)),
		What: s.what}
	parts := h.frame(state)
	toBuddy, err := mpi.IsendVec(s.comm, parts, s.buddy, 0)
	if err != nil {
		return err
	}
	failed, err := s.write(h, parts)
	if err != nil {
		s.leave(err) // or the wait may have no end
	}
	if _, sent := toBuddy.Wait(); err == nil {
		err = sent
	}
	if err != nil {
		return err
	}
	if err := s.agree(failed); err != nil {
		if s.sweeper {
			discard(s.dir, id)
		}
		return err
	}
	if s.sweeper {
		keep := []setID{id}
		if s.latest.Step <= id.Step {
			keep = append(keep, s.latest)
		}
		sweep(s.dir, keep...)
	}
	s.latest = id
	return nil
}

// write writes this rank's file and those that it keeps copies of. What goes wrong with a file, failed, must
// not keep others from theirs.
func (s *Store) write(h header, parts [][]byte) (failed, err error) {
	failed = writeFile(s.dir, h.name(false), parts...)
	for _, ward := range s.wards {
		b, err := s.receive(ward, 0)
		if err != nil {
			return nil, err
		}
		h := header{Set: h.Set, Rank: ward}
		if err := writeFile(s.dir, h.name(true), b); failed == nil {
			failed = err
		}
	}
	if failed == nil {
		failed = syncFolder(s.dir)
	}
	return failed, nil
}

// receive receives a message of any length.
func (s *Store) receive(from, tag int) ([]byte, error) {
	m, st, err := mpi.Mprobe(s.comm, from, tag)
	if err != nil {
		return nil, err
	}
	b := make([]byte, st.Bytes())
	_, err = mpi.Mrecv(&m, b)
	return b, err
}

// agree returns an error at all ranks if one has one: that of the lowest.
func (s *Store) agree(err error) error { return together.Agree(s.comm, err) }
