package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/weft-mpi/weft/mpi"
)

// Reshape converts the states of a checkpoint with a different number of ranks.
type Reshape struct {
	// Split cuts the state of rank from, of a checkpoint with old ranks, into pieces for the new ranks, whose
	// number is ranks. pieces is indexed by the new rank. A piece may be empty.
	Split func(state []byte, from, old, ranks int) (pieces [][]byte, err error)
	// Join makes the state of a new rank from the pieces that it received, indexed by the rank of the
	// checkpoint from which they come. ranks is the number of new ranks.
	Join func(pieces [][]byte, rank, ranks int) (state []byte, err error)
}

// Load returns the step and this rank's state of the latest checkpoint for which the states of all ranks are
// present and undamaged, on any hosts. It returns ErrNone if no checkpoint was ever finished, and another
// error if the finished ones are lost. A checkpoint with a different number of ranks needs a Reshape; if
// reshape is nil, it is refused. The error is the same at all ranks.
//
// Load saves a checkpoint again if the loss of another host would destroy it.
func (s *Store) Load(reshape *Reshape) (step int, state []byte, err error) {
	step, state, err = s.load(reshape)
	return step, state, s.leave(err)
}

func (s *Store) load(reshape *Reshape) (step int, state []byte, err error) {
	all, err := s.inventory()
	if err != nil {
		return 0, nil, err
	}
	for {
		chosen, err := choose(all, s.comm.Size())
		switch {
		case err != nil:
			return 0, nil, err
		case chosen == nil:
			return 0, nil, ErrNone
		case chosen.what != s.what:
			return 0, nil, fmt.Errorf("checkpoint: the one in %s is of %q, not of %q: name another "+
				"folder, or remove its files", s.dir, chosen.what, s.what)
		case chosen.Size != s.comm.Size() && (reshape == nil || reshape.Split == nil || reshape.Join == nil):
			return 0, nil, fmt.Errorf("checkpoint: the one in %s is of %d ranks, not of %d, and Load "+
				"needs a Reshape to convert it", s.dir, chosen.Size, s.comm.Size())
		}
		states, damaged, err := s.read(chosen)
		if err != nil {
			return 0, nil, err
		}
		if len(damaged) > 0 {
			all = slices.DeleteFunc(all, func(p part) bool {
				return slices.Contains(damaged, fileOn{p.Host, p.Name})
			})
			continue
		}
		if chosen.Size == s.comm.Size() {
			state, err = s.hand(chosen, states)
		} else {
			state, err = s.reshape(chosen, states, reshape)
		}
		if err != nil {
			return 0, nil, err
		}
		s.latest = chosen.setID
		return int(chosen.Step), state, s.saveAgain(chosen, state)
	}
}

// saveAgain saves what was loaded where it would not survive another loss.
func (s *Store) saveAgain(chosen *set, state []byte) error {
	if chosen.Size == s.comm.Size() && (s.oneHost() || chosen.spread()) {
		return nil
	}
	return s.Save(int(chosen.Step), state)
}

func (s *Store) oneHost() bool {
	return !slices.ContainsFunc(s.hosts, func(host int) bool { return host != s.hosts[0] })
}

// inventory lists the files of all hosts. On a shared file system every host has every file.
func (s *Store) inventory() ([]part, error) {
	var mine []part
	var err error
	if s.sweeper {
		mine, err = list(s.dir, s.hosts[s.comm.Rank()])
	}
	if err := s.agree(err); err != nil {
		return nil, err
	}
	lists, err := mpi.AllgatherValues(s.comm, mine)
	return slices.Concat(lists...), err
}

// fileOn is a file of a host.
type fileOn struct {
	Host int
	Name string
}

// read reads the states of the set that this rank is the reader of, by their ranks. It returns the files of
// all hosts that are damaged.
func (s *Store) read(chosen *set) (states map[int][]byte, damaged []fileOn, err error) {
	states = map[int][]byte{}
	var mine []fileOn
	for rank := range chosen.Size {
		reader, file := chosen.reader(rank, s.hosts)
		if reader != s.comm.Rank() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(s.dir, file.Name))
		if err == nil {
			var h header
			if h, states[rank], err = parseFile(b); err == nil && h != file.Header {
				err = errors.New("another header than before")
			}
		}
		if err != nil {
			mine = append(mine, fileOn{file.Host, file.Name})
		}
	}
	lists, err := mpi.AllgatherValues(s.comm, mine)
	return states, slices.Concat(lists...), err
}

// hand sends each state to its rank.
func (s *Store) hand(chosen *set, states map[int][]byte) (state []byte, err error) {
	var sends []mpi.Request
	defer func() { err = s.sent(sends, err) }()
	for rank, b := range states {
		if rank == s.comm.Rank() {
			state = b
			continue
		}
		r, err := mpi.Isend(s.comm, b, rank, 0)
		if err != nil {
			return nil, err
		}
		sends = append(sends, r)
	}
	if from, _ := chosen.reader(s.comm.Rank(), s.hosts); from != s.comm.Rank() {
		if state, err = s.receive(from, 0); err != nil {
			return nil, err
		}
	}
	return state, nil
}

// sent waits for sends, and after an error ends them.
func (s *Store) sent(sends []mpi.Request, err error) error {
	s.leave(err)
	if failed := mpi.Waitall(sends); err == nil {
		err = failed
	}
	return err
}

// reshape cuts the states, exchanges the pieces, and joins them.
func (s *Store) reshape(chosen *set, states map[int][]byte, by *Reshape) (state []byte, err error) {
	size := s.comm.Size()
	cut := map[int][][]byte{}
	for rank, b := range states {
		pieces, splitErr := by.Split(b, rank, chosen.Size, size)
		if splitErr == nil && len(pieces) != size {
			splitErr = fmt.Errorf("%d pieces for %d ranks", len(pieces), size)
		}
		if splitErr != nil {
			err = fmt.Errorf("checkpoint: the state of rank %d of %d cannot be split: %w", rank, chosen.Size,
				splitErr)
		}
		cut[rank] = pieces
	}
	if err := s.agree(err); err != nil {
		return nil, err
	}
	got, err := s.exchange(chosen, cut)
	if err != nil {
		return nil, err
	}
	if state, err = by.Join(got, s.comm.Rank(), size); err != nil {
		err = fmt.Errorf("checkpoint: the state of rank %d of %d cannot be joined: %w", s.comm.Rank(), size,
			err)
	}
	return state, s.agree(err)
}

// exchange sends the pieces of the states to their ranks, and returns what has come from each state.
func (s *Store) exchange(chosen *set, cut map[int][][]byte) (got [][]byte, err error) {
	var sends []mpi.Request
	defer func() { err = s.sent(sends, err) }()
	for rank, pieces := range cut {
		for to, piece := range pieces {
			r, err := mpi.Isend(s.comm, piece, to, rank)
			if err != nil {
				return nil, err
			}
			sends = append(sends, r)
		}
	}
	got = make([][]byte, chosen.Size)
	for rank := range got {
		from, _ := chosen.reader(rank, s.hosts)
		if got[rank], err = s.receive(from, rank); err != nil {
			return nil, err
		}
	}
	return got, nil
}
