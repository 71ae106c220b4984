// Package file reads and writes a file by all ranks of a communicator together (MPI 4.1, chapter 14). Each
// rank says which elements of the file are its own:
//
//	f, err := file.Open(world, "plate.bin", os.O_RDWR|os.O_CREATE, 0o666)
//	…
//	where := file.Sub([]int{height, width}, []int{y, x}, []int{rows, columns})
//	err = file.WriteAll(f, where, mpi.Whole(cells))
//	…
//	n, err := file.ReadAll(f, where, mpi.Whole(cells))
//	…
//	err = f.Close()
//
// The bytes of the file depend on the elements alone, not on the number of ranks. On several hosts the file
// has to be on a file system that they share.
//
// # How it works
//
// If the ranks' elements are interleaved in the file, the first and the last rank of each host, the
// aggregators, read and write parts of it for all, in long contiguous accesses, and exchange the elements
// with the other ranks (two-phase I/O). If each rank has a long part of the file to itself, it reads and
// writes that part directly. In both cases no two ranks write to the same block of the file system, and
// nobody writes bytes that are no rank's element: weft never reads a block to write it back. A rank uses at
// most some windows of 256 KiB to 4 MiB as buffers, and transfers elements of the next window while it reads
// or writes the last.
//
// # Errors
//
// A collective call returns the same error at all ranks or at none. After an error of WriteAll or
// WriteOrdered, some of the elements may have been written. When a rank has failed, the error is
// mpi.ErrProcFailed, and the File can only be closed: the remaining ranks shrink their communicator and open
// the file again.
//
// What WriteAll has written can be read by every rank. [File.Sync] makes it survive a crash of the host.
package file

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/together"
)

// A File is a file that the ranks of a communicator have opened together. ReadAll, WriteAll, WriteOrdered,
// their non-blocking forms, and the methods SetSize, Preallocate, Sync and Close are collective: all ranks
// call them in the same order. ReadAt, WriteAt and Size are for one rank alone.
type File struct {
	comm        *mpi.Comm
	file        *os.File
	name        string
	block       int64 // of the file system
	window      int64 // how much of the file is read at once
	aggregators []int // the ranks that read and write for others
	syncs       bool  // this rank is the first of its host
	wantData    bool
	end         int64 // after the last byte that collective calls have written

	mu     sync.Mutex
	latest *turn // of the collective call that began last
	closed bool
}

const (
	// windowSize is how much of the file an aggregator reads at once. Each costs a request and a reply.
	windowSize int64 = 1 << 20
	// writeWindows is how many windows an aggregator writes in place of one that it reads. Two of them, and
	// the messages that the ranks put together for them, should fit the second-level cache.
	writeWindows = 4
	// ownWindows is how many times as long windows are that a rank has to itself.
	ownWindows = 4
)

// roundUp returns the multiple of a block that is not below a length.
func roundUp(length, block int64) int64 { return (length + block - 1) / block * block }

// Open opens a file at all ranks of c, with the flags and permissions of [os.OpenFile], except os.O_APPEND,
// which has no meaning with places. Rank 0 creates or truncates it. All ranks pass the same arguments. Open
// is collective.
func Open(c *mpi.Comm, name string, flag int, perm os.FileMode) (*File, error) {
	comm, err := together.Dup(c, "a file")
	if err != nil {
		return nil, fmt.Errorf("file: open %s: %w", name, err)
	}
	f := &File{comm: comm, name: name}
	if err := f.open(flag, perm); err != nil {
		if f.file != nil {
			f.file.Close()
		}
		return nil, fmt.Errorf("file: %w", errors.Join(f.leave(err), comm.Free()))
	}
	return f, nil
}

func (f *File) open(flag int, perm os.FileMode) error {
	var err error
	switch {
	case flag&os.O_APPEND != 0:
		err = fmt.Errorf("open %s: %w: os.O_APPEND; WriteOrdered appends", f.name, mpi.ErrArg)
	case f.comm.Rank() == 0:
		err = f.openHere(flag, perm)
	}
	if err := together.Agree(f.comm, err, kinds...); err != nil {
		return err
	}
	if f.comm.Rank() != 0 {
		err = f.openHere(flag&^(os.O_CREATE|os.O_TRUNC|os.O_EXCL), 0)
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w; rank 0 has opened it: all hosts need the same file system", err)
		}
	}
	if err := together.Agree(f.comm, err, kinds...); err != nil {
		return err
	}
	host, err := hostOf(f.comm)
	if err != nil {
		return err
	}
	hosts := make([]int, f.comm.Size())
	if err := mpi.Allgather(f.comm, []int{host}, hosts); err != nil {
		return err
	}
	f.syncs = host == f.comm.Rank()
	last := make(map[int]int) // the last rank of each host
	for rank, host := range hosts {
		last[host] = rank
	}
	for rank, host := range hosts {
		if rank == host || rank == last[host] {
			f.aggregators = append(f.aggregators, rank)
		}
	}
	blocks := []int64{f.block}
	if err := mpi.Allreduce(f.comm, mpi.InPlace[int64](), blocks, mpi.Max[int64]()); err != nil {
		return err
	}
	f.block = blocks[0]
	f.window = roundUp(windowSize, f.block)
	return nil
}

// openHere opens the file at this rank.
func (f *File) openHere(flag int, perm os.FileMode) error {
	if info, err := os.Stat(f.name); err == nil && !info.Mode().IsRegular() {
		// Opening a pipe would wait.
		return fmt.Errorf("open %s: %w: not a regular file", f.name, os.ErrInvalid)
	}
	var err error
	if f.file, err = os.OpenFile(f.name, flag, perm); err != nil {
		return err
	}
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	f.block = blockOf(info)
	return nil
}

// hostOf is together.HostOf. A test has hosts of its own.
var hostOf = together.HostOf

func (f *File) leave(err error) error { return together.Leave(f.comm, err) }

// SetAggregators has n ranks of the file, evenly spread from the first to the last, read and write for all
// where the ranks' elements are interleaved, in place of two of each host. All ranks pass the same n, while
// no call is under way.
func (f *File) SetAggregators(n int) error {
	if n < 1 || n > f.comm.Size() {
		return fmt.Errorf("file: %s: %w: %d aggregators of %d ranks", f.name, mpi.ErrArg, n, f.comm.Size())
	}
	f.aggregators = nil
	for i := range n {
		f.aggregators = append(f.aggregators, i*(f.comm.Size()-1)/max(n-1, 1))
	}
	return nil
}

// RefuseHoles has ReadAll fail where elements are in a hole of the file: a part that nobody has written. A
// read of a hole otherwise gives zeros. Some file systems do not tell holes, and some, such as ZFS, make
// holes of written zeros. All ranks pass the same value, while no call is under way.
func (f *File) RefuseHoles(refuse bool) { f.wantData = refuse }

// Name returns the name that was passed to Open.
func (f *File) Name() string { return f.name }

// ReadAt reads for this rank alone, as [os.File.ReadAt] does.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) { return f.file.ReadAt(p, off) }

// WriteAt writes for this rank alone, as [os.File.WriteAt] does.
func (f *File) WriteAt(p []byte, off int64) (n int, err error) { return f.file.WriteAt(p, off) }

// Size returns how long the file is now, as this rank sees it.
func (f *File) Size() (int64, error) {
	info, err := f.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// SetSize makes the file so many bytes long. All ranks pass the same size. SetSize is collective.
func (f *File) SetSize(size int64) error {
	err := f.resize("SetSize", size, f.file.Truncate)
	if err == nil {
		f.end = size
	}
	return err
}

// Preallocate reserves room on the disk up to an offset, and extends the file to it if it is shorter, so that
// later writes do not run out of space. All ranks pass the same size. Preallocate is collective.
func (f *File) Preallocate(size int64) error {
	return f.resize("Preallocate", size, func(size int64) error {
		if size == 0 {
			return nil
		}
		return preallocate(f.file, size)
	})
}

// resize has rank 0 change the size.
func (f *File) resize(op string, size int64, change func(size int64) error) error {
	return f.run(op, func() (failed, err error) {
		lowest, highest := []int64{size}, []int64{size}
		if err := errors.Join(
			mpi.Allreduce(f.comm, mpi.InPlace[int64](), lowest, mpi.Min[int64]()),
			mpi.Allreduce(f.comm, mpi.InPlace[int64](), highest, mpi.Max[int64]())); err != nil {
			return nil, err
		}
		switch {
		case lowest[0] != highest[0]:
			failed = fmt.Errorf("%w: ranks pass sizes from %d to %d", mpi.ErrArg, lowest[0], highest[0])
		case size < 0:
			failed = fmt.Errorf("%w: a size of %d", mpi.ErrArg, size)
		case f.comm.Rank() == 0:
			failed = change(size)
		}
		return failed, nil
	})
}

// Sync writes to the disk what the ranks have written (MPI 4.1, 14.6.1), as [os.File.Sync] does. Sync is
// collective.
func (f *File) Sync() error {
	return f.run("Sync", func() (failed, err error) {
		// What a host has of the file is written to the disk by a call of any process there.
		if err := mpi.Barrier(f.comm); err != nil || !f.syncs {
			return nil, err
		}
		return f.file.Sync(), nil
	})
}

// Close waits for the calls that are under way, and closes the file at all ranks. It is collective, also
// after an error. It does not Sync.
func (f *File) Close() error {
	p, err := f.begin("Close")
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	p.wait()
	err = f.finish("Close", f.file.Close(), nil)
	close(p.done)
	return errors.Join(err, f.comm.Free())
}
