package file

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

const (
	benchSize   = 32 << 20 // bytes of each rank
	benchBlock  = 64       // bytes of an interleaved block
	benchStream = 4 << 20  // bytes of a call of a single stream
)

// filePatterns writes and reads a file in each way once, and prints the seconds of the ways.
var filePatterns = body("file-patterns", func(c *mpi.Comm, dir string) error {
	f, err := Open(c, filepath.Join(dir, "data"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	me, n := c.Rank(), c.Size()
	mine := make([]byte, benchSize)
	for i := range mine {
		mine[i] = byte(i*7 + me)
	}
	var all []byte // the whole file, at the rank that streams it
	if me == 0 {
		all = bytes.Repeat(mine, n)
	}
	each := func(do func([]byte, int64) (int, error)) error {
		for i := 0; i < benchSize/benchBlock; i++ {
			if _, err := do(mine[i*benchBlock:][:benchBlock], int64((i*n+me)*benchBlock)); err != nil {
				return err
			}
		}
		return nil
	}
	stream := func(do func([]byte, int64) (int, error)) error {
		for at := 0; at < len(all); at += benchStream {
			if _, err := do(all[at:min(at+benchStream, len(all))], int64(at)); err != nil {
				return err
			}
		}
		return nil
	}
	readAll := func(where Place) error { _, err := ReadAll(f, where, mpi.Whole(mine)); return err }
	interleaved := Strided(me*benchBlock, benchSize/benchBlock, benchBlock, n*benchBlock)
	whole := Range(me*benchSize, benchSize)
	for _, way := range []func() error{
		func() error { return each(f.WriteAt) },
		func() error { return WriteAll(f, interleaved, mpi.Whole(mine)) },
		func() error { return each(f.ReadAt) },
		func() error { return readAll(interleaved) },
		func() error { return stream(f.WriteAt) },
		func() error { return WriteAll(f, whole, mpi.Whole(mine)) },
		func() error { return stream(f.ReadAt) },
		func() error { return readAll(whole) },
	} {
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		begin := mpi.Wtime()
		if err := way(); err != nil {
			return err
		}
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		if me == 0 {
			fmt.Println(mpi.Wtime() - begin)
		}
	}
	return f.Close()
})

// BenchmarkFile tells how many times as fast eight ranks write and read a file together as without the
// package, on the file system of TMPDIR: interleaved blocks of 64 bytes against calls for each block, and one
// part for each rank against one rank that has the whole file in memory:
//
//	go test ./mpi/file -run '^$' -bench File -benchtime 5x
func BenchmarkFile(b *testing.B) {
	names := []string{"interleaved-write", "interleaved-read", "contiguous-write", "contiguous-read"}
	times := make([]float64, 2*len(names))
	for b.Loop() {
		r := launchertest.Run(b, launchertest.Ranks(8, filePatterns, "FILE_DIR="+b.TempDir()))
		require.NoError(b, r.Failure, "%s%s", r.Out, r.Err)
		lines := bytes.Fields([]byte(r.Out))
		require.Len(b, lines, len(times))
		for i, line := range lines {
			var seconds float64
			_, err := fmt.Sscan(string(line), &seconds)
			require.NoError(b, err)
			times[i] += seconds
		}
	}
	for i, name := range names {
		b.ReportMetric(times[2*i]/times[2*i+1], name+"-times")
	}
	b.ReportMetric(0, "ns/op")
}
