package bench

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi"
)

// readSizes are the sizes of the transfers.
var readSizes = []int{1 << 10, 64 << 10, 4 << 20}

// readRepeats is the number of transfers of each size.
const readRepeats = 10

// reads counts the bytes that rank 0 copies to answer a Read of rank 1, per byte read: of a message, which
// may not change until it is received, and of a window, which the program may write meanwhile.
func reads(s *session) error {
	s.heading()
	for _, n := range readSizes {
		buf := make([]byte, n)
		message, err := s.copiesOf(n, func() error {
			if s.world.Rank() == 0 {
				return mpi.Send(s.world, buf, 1, dataTag)
			}
			_, err := mpi.Recv(s.world, buf, 0, dataTag)
			return err
		})
		if err != nil {
			return err
		}
		win, err := mpi.WinAllocate[byte](s.world, n)
		if err != nil {
			return err
		}
		get, err := s.copiesOf(n, func() error { return getFromRoot(s, win, buf) })
		if err != nil {
			return err
		}
		if err := win.Free(); err != nil {
			return err
		}
		if s.world.Rank() == 0 {
			s.row([]float64{float64(n), message, get})
		}
	}
	return s.out.err
}

func getFromRoot(s *session, win *mpi.Win[byte], into []byte) error {
	if s.world.Rank() == 0 {
		return nil
	}
	if err := win.Lock(0, mpi.Shared); err != nil {
		return err
	}
	if err := win.Get(into, 0, 0); err != nil {
		return err
	}
	return win.Unlock(0)
}

// copiesOf calls do on both ranks, in which rank 1 reads n bytes of rank 0, and returns how many bytes rank 0
// copied per byte.
func (s *session) copiesOf(n int, do func() error) (float64, error) {
	bytes, copied := s.readsAnswered()
	for range readRepeats {
		if err := do(); err != nil {
			return 0, err
		}
	}
	if err := mpi.Barrier(s.world); err != nil {
		return 0, err
	}
	all, allCopied := s.readsAnswered()
	if moved := all - bytes; s.world.Rank() == 0 && moved < uint64(n)*readRepeats {
		return 0, fmt.Errorf("%s: %d of %d bytes were read; messages of %d bytes do not go by Reads "+
			"with %s=%v, %s=%v, %s=%v", s.Name, moved, n*readRepeats, n,
			setting.Fabric.Name, s.settings.Of(setting.Fabric),
			setting.EagerMax.Name, s.settings.Of(setting.EagerMax),
			setting.Rendezvous.Name, s.settings.Of(setting.Rendezvous))
	}
	return float64(allCopied-copied) / float64(max(all-bytes, 1)), nil
}

// readsAnswered returns the bytes of Reads that this rank has answered, and how many of them it copied.
func (s *session) readsAnswered() (bytes, copied uint64) {
	for _, c := range s.world.Stats().Channels {
		bytes, copied = bytes+c.ReadBytes, copied+c.ReadBytesCopied
	}
	return bytes, copied
}

// readColumns returns columns for the job's own settings, and for a job with checksums.
func readColumns() []column {
	own := []column{
		{name: "message", heading: "Message", width: 20},
		{name: "get", heading: "Get", width: 20},
	}
	return append(append([]column{sizeColumn}, own...),
		besideColumns(1, "checksum", "Checksums:", own...)...)
}
